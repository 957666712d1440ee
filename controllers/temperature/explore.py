"""Integral law with the exploring sign: entropy high, temperature up. Kept to show why it is not a regulator."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from controllers.temperature.feedback import check_feedback, velocity_gains
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
class IntegralExplore:
    """u+ = u + k (H - H*), T = exp(u) clamped: the sign opposite to `PITemperature`.

    At a fixed point the slope is 1 + k V > 1, so the law *expands*: with frozen logits it leaves H* for one of the
    clamps, and stays there. There is no gain interval to prove; k in (0, inf). Other fields as in `PITemperature`.
    Source: ours, after the exploration reading of arXiv 2603.03310 ("raise temperature where entropy is high").
    Raises InputError for k outside (0, inf), for a target outside [0, ln n].
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.TEMPERATURE
    sign: ClassVar[str] = "explore"
    target_entropy_nats: float
    vocab_size: int
    k: float = 0.01
    delay_steps: int = 0
    target_steps: TargetSteps = ()
    temperature_start: float = 1.0
    temperature_min: float = 0.1
    temperature_max: float = 2.0
    unsafe: bool = False

    def __post_init__(self) -> None:
        check_feedback(self)
        if not 0.0 < self.k < np.inf:
            raise InputError(
                f"IntegralExplore.k must be in (0, inf), got {self.k:g}; for the stabilising sign use PITemperature"
            )

    @cached_property
    def _gains(self) -> VelocityGains:
        return velocity_gains(self, k_i=-self.k)

    def init(self, capacity: int) -> VelocityState:
        return velocity_init(capacity, self.delay_steps, self.temperature_start)

    def step(self, state: VelocityState, observation: TemperatureObservation) -> tuple[VelocityState, SamplingAction]:
        target = target_at(self.target_entropy_nats, self.target_steps, observation.token_index)
        return velocity_step(state, observation, target, self._gains)

    def compiled(self, state: VelocityState, width: int) -> VelocityRule | None:
        """As in `controllers.compiled`."""
        return velocity_rule(state, self.target_entropy_nats, self.target_steps, self._gains)
