"""PI with a derivative term on the measurement, for those who ask whether it helps."""

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
class PIDTemperature:
    """u+ = u + k_i (H* - H_k) + k_p (H_{k-1} - H_k) - k_d (H_k - 2 H_{k-1} + H_{k-2}), T = exp(u) clamped.

    k_i in (0, (2/V_max - 2 |k_p| - 4 |k_d|) / (2 d + 1)); None takes half of the upper end. Other fields, anti-windup and
    missing measurements as in `PITemperature`. Token entropy is close to white, so differencing it twice amplifies noise.
    Source: velocity form of the textbook PID (Astrom and Hagglund); gain interval ours, `gain_bounds`.
    Raises InputError as `PITemperature` does.
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.TEMPERATURE
    sign: ClassVar[str] = "stabilise"
    target_entropy_nats: float
    vocab_size: int
    k_i: float | None = None
    k_p: float = 0.0
    k_d: float = 0.002
    delay_steps: int = 0
    target_steps: TargetSteps = ()
    temperature_start: float = 1.0
    temperature_min: float = 0.1
    temperature_max: float = 2.0
    unsafe: bool = False

    def __post_init__(self) -> None:
        check_feedback(self)
        owner = type(self).__name__
        if self.k_i is None:
            limit = integral_gain_limit(self.vocab_size, self.delay_steps, self.k_p, self.k_d)
            object.__setattr__(self, "k_i", 0.5 * limit)
        check_finite(owner, k_i=self.gain, k_p=self.k_p, k_d=self.k_d)
        if not self.unsafe:
            check_integral_gain(
                owner,
                self.gain,
                vocab_size=self.vocab_size,
                delay_steps=self.delay_steps,
                k_p=self.k_p,
                k_d=self.k_d,
            )

    @property
    def gain(self) -> float:
        """k_i as used."""
        assert self.k_i is not None
        return self.k_i

    @cached_property
    def _gains(self) -> VelocityGains:
        return velocity_gains(self, k_i=self.gain, k_p=self.k_p, k_d=self.k_d)

    def init(self, capacity: int) -> VelocityState:
        return velocity_init(capacity, self.delay_steps, self.temperature_start)

    def step(self, state: VelocityState, observation: TemperatureObservation) -> tuple[VelocityState, SamplingAction]:
        target = target_at(self.target_entropy_nats, self.target_steps, observation.token_index)
        return velocity_step(state, observation, target, self._gains)

    def compiled(self, state: VelocityState, width: int) -> VelocityRule | None:
        """As in `controllers.compiled`."""
        return velocity_rule(state, self.target_entropy_nats, self.target_steps, self._gains)
