"""Proportional-integral control of the tempered entropy, stabilising sign: entropy high, temperature down.

`PITemperature` is the loop of Entropic-Time Inference with the gain interval that is proven for any logits.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from controllers.temperature.gain_bounds import (
    check_integral_gain,
    check_plant,
    check_target,
    check_temperatures,
    integral_gain_limit,
    varentropy_limit,
)
from controllers.temperature.setpoint import TargetSteps, checked_steps, target_at
from controllers.temperature.velocity import VelocityGains, VelocityState, velocity_init, velocity_step
from workbench.errors import InputError
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
    Deviates: velocity form, because the paper's positional sum winds up.
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
        owner = type(self).__name__
        check_plant(owner, self.vocab_size, self.delay_steps)
        object.__setattr__(self, "target_steps", checked_steps(owner, self.target_steps))
        check_target(
            owner, [self.target_entropy_nats, *(h for _, h in self.target_steps)], self.vocab_size, self.unsafe
        )
        check_temperatures(owner, self.temperature_min, self.temperature_start, self.temperature_max)
        if not np.isfinite(self.k_p):
            raise InputError(f"{owner}.k_p must be finite, got {self.k_p:g}")
        if self.k_i is None:
            limit = integral_gain_limit(self.vocab_size, self.delay_steps, self.k_p)
            object.__setattr__(self, "k_i", 0.5 * limit)
        if not (self.unsafe and np.isfinite(self.gain)):
            check_integral_gain(
                owner, self.gain, vocab_size=self.vocab_size, delay_steps=self.delay_steps, k_p=self.k_p
            )

    @property
    def gain(self) -> float:
        """k_i as used."""
        assert self.k_i is not None
        return self.k_i

    def init(self, capacity: int) -> VelocityState:
        return velocity_init(capacity, self.delay_steps, self.temperature_start)

    @cached_property
    def _gains(self) -> VelocityGains:
        return VelocityGains(
            k_i=self.gain,
            k_p=self.k_p,
            k_d=0.0,
            varentropy_floor=0.0,
            max_step=np.inf,
            anchored=False,
            temperature_start=self.temperature_start,
            temperature_min=self.temperature_min,
            temperature_max=self.temperature_max,
            entropy_limit=float(np.log(self.vocab_size)),
            varentropy_limit=varentropy_limit(self.vocab_size),
        )

    def step(self, state: VelocityState, observation: TemperatureObservation) -> tuple[VelocityState, SamplingAction]:
        target = target_at(self.target_entropy_nats, self.target_steps, observation.token_index)
        return velocity_step(state, observation, target, self._gains)
