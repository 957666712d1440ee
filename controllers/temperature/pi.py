"""Proportional-integral control of the tempered entropy, stabilising sign: entropy high, temperature down.

`PITemperature` is the loop of Entropic-Time Inference with the gain interval that is proven for any logits.
"""

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
class PITemperature:
    """u+ = u + k_p (H_{k-1} - H_k) + k_i (H* - H_k), T = exp(u) clamped to [T_min, T_max].

    H*      `target_entropy_nats`, from token `i` on `h` for each (i, h) in `target_steps`
    k_i     in (0, (2/V_max - 2 |k_p|) / (2 d + 1)) 1/nat; None takes half of the upper end
    k_p     1/nat, either sign
    d       `delay_steps`: the plant's delay plus that of any wrapper
    n       `vocab_size`, which sets V_max

    The state is u itself, clamped, so nothing winds up; a temperature the plant applied instead of the one asked for is
    taken over before the next increment. A missing measurement holds T. An H* out of reach is held at the nearer clamp
    and counted in `saturated_tokens`.
    Source: arXiv 2603.03310 (the PI loop); gain interval ours, `gain_bounds`.
    Deviates: velocity form, because the paper's positional sum winds up (`PositionalPI` has it with back-calculation).
    Raises InputError for a gain outside the proven interval unless `unsafe`, for a target outside [0, ln n].
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.TEMPERATURE
    sign: ClassVar[str] = "stabilise"
    target_entropy_nats: float
    vocab_size: int
    k_i: float | None = None
    k_p: float = 0.0
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
            limit = integral_gain_limit(self.vocab_size, self.delay_steps, self.k_p)
            object.__setattr__(self, "k_i", 0.5 * limit)
        check_finite(owner, k_i=self.gain, k_p=self.k_p)
        if not self.unsafe:
            check_integral_gain(
                owner, self.gain, vocab_size=self.vocab_size, delay_steps=self.delay_steps, k_p=self.k_p
            )

    @property
    def gain(self) -> float:
        """k_i as used."""
        assert self.k_i is not None
        return self.k_i

    @cached_property
    def _gains(self) -> VelocityGains:
        return velocity_gains(self, k_i=self.gain, k_p=self.k_p)

    def init(self, capacity: int) -> VelocityState:
        return velocity_init(capacity, self.delay_steps, self.temperature_start)

    def step(self, state: VelocityState, observation: TemperatureObservation) -> tuple[VelocityState, SamplingAction]:
        target = target_at(self.target_entropy_nats, self.target_steps, observation.token_index)
        return velocity_step(state, observation, target, self._gains)

    def compiled(self, state: VelocityState, width: int) -> VelocityRule | None:
        """As in `controllers.compiled`."""
        return velocity_rule(state, self.target_entropy_nats, self.target_steps, self._gains)
