"""Integral law anchored at the measured token: late measurements do not cost gain."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from controllers.temperature.feedback import check_feedback, check_finite, velocity_gains
from controllers.temperature.gain_bounds import check_integral_gain, integral_gain_limit
from controllers.temperature.setpoint import TargetSteps, target_at
from controllers.temperature.velocity import (
    VelocityGains,
    VelocityRule,
    VelocityState,
    velocity_init,
    velocity_rule,
    velocity_step,
)
from workbench.protocols import DecisionPoint, SamplingAction, TemperatureObservation


@dataclass(frozen=True, kw_only=True)
class AnchoredI:
    """u_{k+1} = ln T_{k-d} + k_i (H* - H_{k-d}): the step is taken from the temperature the measurement belongs to.

    The textbook law adds the correction of an old measurement to the newest u, so its gain must shrink to
    2 / ((2 d + 1) V_max). Anchored, u_{k+1} depends on u_{k-d} only: the loop is d + 1 interleaved copies of the
    undelayed one. Each has slope 1 - k_i V, so for 0 < k_i < 2/V_max the law is nonexpansive for every logit vector
    *at any delay*, also where V varies. The price: the copies share no information, so neighbouring tokens may run
    at temperatures that differ by the drift seen d + 1 tokens apart.
    `delay_steps` is recorded for reports; the law does not need it. At delay 0 this is the I law of `PITemperature`.
    T is clamped; a missing measurement holds the last T. Fields as in `PITemperature`. k_i None takes half of 2/V_max.
    Source: ours.
    Raises InputError for a gain outside (0, 2/V_max) unless `unsafe`, for a target outside [0, ln n].
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.TEMPERATURE
    sign: ClassVar[str] = "stabilise"
    target_entropy_nats: float
    vocab_size: int
    k_i: float | None = None
    delay_steps: int = 0
    target_steps: TargetSteps = ()
    temperature_start: float = 1.0
    temperature_min: float = 0.1
    temperature_max: float = 2.0
    unsafe: bool = False

    def __post_init__(self) -> None:
        check_feedback(self)
        if self.k_i is None:
            object.__setattr__(self, "k_i", 0.5 * integral_gain_limit(self.vocab_size, 0))
        check_finite(type(self).__name__, k_i=self.gain)
        if not self.unsafe:
            check_integral_gain(type(self).__name__, self.gain, vocab_size=self.vocab_size, delay_steps=0)

    @property
    def gain(self) -> float:
        """k_i as used."""
        assert self.k_i is not None
        return self.k_i

    @cached_property
    def _gains(self) -> VelocityGains:
        return velocity_gains(self, k_i=self.gain, anchored=True)

    def init(self, capacity: int) -> VelocityState:
        return velocity_init(capacity, self.delay_steps, self.temperature_start)

    def step(self, state: VelocityState, observation: TemperatureObservation) -> tuple[VelocityState, SamplingAction]:
        target = target_at(self.target_entropy_nats, self.target_steps, observation.token_index)
        return velocity_step(state, observation, target, self._gains)

    def compiled(self, state: VelocityState, width: int) -> VelocityRule | None:
        """As in `controllers.compiled`."""
        return velocity_rule(state, self.target_entropy_nats, self.target_steps, self._gains)
