"""The user's priority classes, first come first served within each."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit

from controllers.scheduling.ranking import order_by_urgency
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, OrderAction, OrderObservation
from workbench.signals import IntArray


@dataclass(frozen=True)
class PriorityState:
    waited_steps: IntArray  # [capacity] steps since last served


@dataclass(frozen=True, kw_only=True)
class PriorityClasses:
    """Rank by max(0, priority - waited // promote_steps), then arrival; 0 is the most urgent class.

    `promote_steps` lifts a waiting row by one class each so many steps (0: never; a busy class then starves those below).
    Source: strict priority as in vLLM's priority policy; promotion is ours. Raises InputError for promote_steps < 0.
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.ORDER
    promote_steps: int = 0

    def __post_init__(self) -> None:
        if self.promote_steps < 0:
            raise InputError(f"PriorityClasses.promote_steps must be at least 0, got {self.promote_steps}; 0 is never")

    def init(self, capacity: int) -> PriorityState:
        return PriorityState(np.zeros(capacity, dtype=np.int64))

    def step(self, state: PriorityState, observation: OrderObservation) -> tuple[PriorityState, OrderAction]:
        waited = state.waited_steps.copy()
        urgency = _rows(
            observation.active,
            observation.joined,
            observation.served,
            observation.priority,
            waited,
            self.promote_steps,
        )
        return PriorityState(waited), order_by_urgency(observation, urgency)


@njit(cache=True)
def _rows(active, joined, served, priority, waited, promote_steps):
    urgency = np.zeros(active.shape[0])
    for i in range(active.shape[0]):
        if not active[i]:
            continue
        waited[i] = 0 if joined[i] or served[i] else waited[i] + 1
        lift = waited[i] // promote_steps if promote_steps > 0 else 0
        # 1 / (1 + class) falls with the class and single precision tells classes up to 4,000 apart.
        urgency[i] = 1.0 / (1.0 + max(0, priority[i] - lift))
    return urgency
