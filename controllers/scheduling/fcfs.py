"""First come, first served: the order every scheduler is compared with."""

from dataclasses import dataclass
from typing import ClassVar

from controllers.scheduling.ranking import order_by_arrival
from workbench.protocols import DecisionPoint, OrderAction, OrderObservation


@dataclass(frozen=True, kw_only=True)
class FCFS:
    """Rank = arrival rank. A preempted request keeps its place. Source: the default of vLLM."""

    point: ClassVar[DecisionPoint] = DecisionPoint.ORDER

    def init(self, capacity: int) -> None:
        return None

    def step(self, state: None, observation: OrderObservation) -> tuple[None, OrderAction]:
        return None, order_by_arrival(observation)
