"""Shortest remaining output first, told the true length: what no real server knows, and so the yardstick."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controllers.scheduling.ranking import order_by_urgency
from workbench.protocols import DecisionPoint, OrderAction, OrderObservation


@dataclass(frozen=True, kw_only=True)
class SRPTOracle:
    """Rank by `remaining_tokens_oracle`, least first; rows whose length the plant cannot know come last, by arrival.

    Minimises mean time in system on one server (Schrage 1968); long requests may starve.
    Source: Schrage, A proof of the optimality of SRPT, 1968.
    Deviates: output tokens only, prefill work not counted.
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.ORDER

    def init(self, capacity: int) -> None:
        return None

    def step(self, state: None, observation: OrderObservation) -> tuple[None, OrderAction]:
        remaining = observation.remaining_tokens_oracle
        with np.errstate(invalid="ignore"):
            urgency = 1.0 / (1.0 + np.maximum(remaining, 0.0))
        return None, order_by_urgency(observation, np.where(np.isnan(urgency), 0.0, urgency))
