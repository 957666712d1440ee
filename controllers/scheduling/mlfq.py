"""Multi-level feedback queue: new work first, long-running work sinks, and waiting long enough starts afresh."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit

from controllers.scheduling.ranking import order_by_urgency
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, OrderAction, OrderObservation
from workbench.signals import IntArray


@dataclass(frozen=True)
class QueueState:
    level: IntArray  # [capacity] 0 is the most urgent
    used_steps: IntArray  # [capacity] steps served at this level
    waited_steps: IntArray  # [capacity] steps since last served


@dataclass(frozen=True, kw_only=True)
class MLFQ:
    """Lowest level first, then arrival. At level l a row may be served `quantum_steps` 2^l steps before it sinks to l + 1.

    A row not served for `boost_steps` returns to level 0 (0: never, which can starve). Length-blind: approximates
    shortest-first because what has run long is likely to run on.
    Source: Corbato et al. 1962; in LLM serving FastServe, arXiv 2305.05920.
    Deviates: no skip-join by prompt length; the boost is per row, so that rows stay independent.
    Raises InputError for numbers outside their range.
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.ORDER
    num_levels: int = 6
    quantum_steps: int = 16
    boost_steps: int = 512

    def __post_init__(self) -> None:
        if not 1 <= self.num_levels <= 32:
            raise InputError(f"MLFQ.num_levels must be in 1 .. 32, got {self.num_levels}")
        if not 1 <= self.quantum_steps <= 1_000_000:
            raise InputError(f"MLFQ.quantum_steps must be in 1 .. 1000000, got {self.quantum_steps}")
        if self.boost_steps < 0:
            raise InputError(f"MLFQ.boost_steps must be at least 0, got {self.boost_steps}; 0 allows starvation")

    def init(self, capacity: int) -> QueueState:
        return QueueState(*(np.zeros(capacity, dtype=np.int64) for _ in range(3)))

    def step(self, state: QueueState, observation: OrderObservation) -> tuple[QueueState, OrderAction]:
        new = QueueState(state.level.copy(), state.used_steps.copy(), state.waited_steps.copy())
        urgency = _rows(
            observation.active,
            observation.joined,
            observation.served,
            new.level,
            new.used_steps,
            new.waited_steps,
            self.num_levels,
            self.quantum_steps,
            self.boost_steps,
        )
        return new, order_by_urgency(observation, urgency)


@njit(cache=True)
def _rows(active, joined, served, level, used, waited, num_levels, quantum, boost):
    urgency = np.zeros(active.shape[0])
    for i in range(active.shape[0]):
        if not active[i]:
            continue
        if joined[i]:
            level[i] = 0
            used[i] = 0
            waited[i] = 0
        elif served[i]:
            used[i] += 1
            waited[i] = 0
            if used[i] >= quantum << level[i] and level[i] < num_levels - 1:
                level[i] += 1
                used[i] = 0
        else:
            waited[i] += 1
            if boost > 0 and waited[i] >= boost:
                level[i] = 0
                used[i] = 0
        urgency[i] = num_levels - level[i]
    return urgency
