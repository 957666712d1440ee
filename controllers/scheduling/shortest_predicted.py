"""Shortest predicted remaining output first, the length predicted from the entropy trend."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from controllers.scheduling.ranking import order_by_urgency
from controllers.scheduling.remaining_length import EntropyTrend, TrendState
from workbench.protocols import DecisionPoint, OrderAction, OrderObservation


@dataclass(frozen=True, kw_only=True)
class ShortestPredicted:
    """Rank by `predictor`'s remaining tokens, least first. Can starve long requests; as good as its prediction.

    Source: SRPT with predictions (for LLM serving e.g. arXiv 2404.08509); the entropy trend as predictor is ours.
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.ORDER
    predictor: EntropyTrend = field(default_factory=EntropyTrend)

    def init(self, capacity: int) -> TrendState:
        return self.predictor.init(capacity)

    def step(self, state: TrendState, observation: OrderObservation) -> tuple[TrendState, OrderAction]:
        state, remaining = self.predictor.step(state, observation)
        return state, order_by_urgency(observation, np.where(np.isnan(remaining), 0.0, 1.0 / (1.0 + remaining)))
