"""Integral law with the gain divided by the measured varentropy: Newton's step, with a limit on its length."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from controllers.temperature.feedback import check_feedback, velocity_gains
from controllers.temperature.gain_bounds import varentropy_limit
from controllers.temperature.setpoint import TargetSteps, target_at
from controllers.temperature.velocity import (
    VelocityGains,
    VelocityRule,
    VelocityState,
    velocity_init,
    velocity_rule,
    velocity_step,
)
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, SamplingAction, TemperatureObservation


@dataclass(frozen=True, kw_only=True)
class GainScheduled:
    """u+ = u + clip(k (H* - H) / max(V, V_floor), -max_step, max_step), T = exp(u) clamped.

    Near the solution with frozen logits the loop gain is k whatever V is, so it settles equally fast on flat and on
    spiky distributions. Away from it Newton's step may overshoot without bound: on spike-plus-uniform logits the law
    cycles from clamp to clamp even at k = 0.5. `max_step` bounds what a cycle can do; its certificate is *local*,
    unless k / V_floor is below 2 / ((2 d + 1) V_max), where the bound for any logits applies.

    k           in (0, 2 sin(pi / (2 (2 d + 1)))): 2, 1, 0.618 at delay 0, 1, 2 (frozen V)
    V_floor     `varentropy_floor_nats2` > 0
    max_step    nepers a token

    A missing V counts as V_max, the cautious end. Other fields as in `PITemperature`.
    Source: ours. Raises InputError for numbers outside their range (k also when `unsafe` is not set).
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.TEMPERATURE
    sign: ClassVar[str] = "stabilise"
    target_entropy_nats: float
    vocab_size: int
    k: float = 0.3
    varentropy_floor_nats2: float = 0.5
    max_step: float = 0.2
    delay_steps: int = 0
    target_steps: TargetSteps = ()
    temperature_start: float = 1.0
    temperature_min: float = 0.1
    temperature_max: float = 2.0
    unsafe: bool = False

    def __post_init__(self) -> None:
        check_feedback(self)
        limit = 2.0 * np.sin(np.pi / (2.0 * (2 * self.delay_steps + 1)))
        if not 0.0 < self.k < (np.inf if self.unsafe else limit):
            raise InputError(
                f"GainScheduled.k must be in (0, {limit:.3g}) for delay {self.delay_steps}, got {self.k:g}; "
                "lower it or pass unsafe=True"
            )
        for name in ("varentropy_floor_nats2", "max_step"):
            if not 0.0 < getattr(self, name) < np.inf:
                raise InputError(f"GainScheduled.{name} must be in (0, inf), got {getattr(self, name):g}")

    @property
    def certificate_scope(self) -> str:
        """`global` where the bound for any logits covers the largest gain k / V_floor, else `local`."""
        largest = self.k / self.varentropy_floor_nats2
        bound = 2.0 / ((2 * self.delay_steps + 1) * varentropy_limit(self.vocab_size))
        return "global" if largest < bound else "local"

    @cached_property
    def _gains(self) -> VelocityGains:
        return velocity_gains(self, k_i=self.k, varentropy_floor=self.varentropy_floor_nats2, max_step=self.max_step)

    def init(self, capacity: int) -> VelocityState:
        return velocity_init(capacity, self.delay_steps, self.temperature_start)

    def step(self, state: VelocityState, observation: TemperatureObservation) -> tuple[VelocityState, SamplingAction]:
        target = target_at(self.target_entropy_nats, self.target_steps, observation.token_index)
        return velocity_step(state, observation, target, self._gains)

    def compiled(self, state: VelocityState, width: int) -> VelocityRule | None:
        """As in `controllers.compiled`."""
        return velocity_rule(state, self.target_entropy_nats, self.target_steps, self._gains)
