"""Constant temperature: the baseline every law must beat, at the T whose mean entropy equals the law's."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numba import njit

from workbench.errors import InputError
from workbench.protocols import DecisionPoint, SamplingAction, TemperatureObservation


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """T = `temperature` for every token; 0 is greedy.

    Source: the default of every decoder. Raises InputError unless T is in [0, inf).
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.TEMPERATURE
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature < np.inf:
            raise InputError(
                f"Fixed.temperature must be in [0, inf), got {self.temperature:g}; 0 is greedy, 1 the model's own"
            )

    def init(self, capacity: int) -> None:
        return None

    def step(self, state: None, observation: TemperatureObservation) -> tuple[None, SamplingAction]:
        return None, SamplingAction(temperature=np.where(observation.active, self.temperature, np.nan))

    def compiled(self, state: None, width: int) -> "FixedRule":
        """As in `controllers.compiled`."""
        return FixedRule(float(self.temperature))


@njit(cache=True)
def _decide(rule, view, out):
    for s in range(out.shape[0]):
        out[s] = rule.temperature if view.active[s] else np.nan


class FixedRule(NamedTuple):
    """`Fixed` as compiled code has it."""

    temperature: float
    temperature_min: float = 0.0
    temperature_max: float = np.inf

    decide = _decide

    def state(self, shown_width: int) -> None:
        return None
