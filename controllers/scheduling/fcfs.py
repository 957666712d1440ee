"""First come, first served: the order every scheduler is compared with."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numba import njit

from controllers.scheduling.ranking import LAST, order_by_arrival, ranks_of
from workbench.protocols import DecisionPoint, OrderAction, OrderObservation


@dataclass(frozen=True, kw_only=True)
class FCFS:
    """Rank = arrival rank. A preempted request keeps its place. Source: the default of vLLM."""

    point: ClassVar[DecisionPoint] = DecisionPoint.ORDER

    def init(self, capacity: int) -> None:
        return None

    def step(self, state: None, observation: OrderObservation) -> tuple[None, OrderAction]:
        return None, order_by_arrival(observation)

    def compiled(self, state: None, width: int) -> "FCFSRule":
        """As in `controllers.compiled`."""
        return FCFSRule(LAST)


@njit(cache=True)
def _decide(rule, view, out):
    ranks_of(np.where(view.active, view.arrival_rank, rule.last), out)


class FCFSRule(NamedTuple):
    """`FCFS` as compiled code has it."""

    last: int  # the key of rows that are not ready

    decide = _decide

    def state(self, shown_width: int) -> None:
        return None
