"""Entropy rule that does not punish nearly finished work: finishing a request is worth nats too."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from controllers.scheduling.entropy_aging import EntropyAging, aging_scores
from controllers.scheduling.expected_reduction import Ewma, ReductionEstimator
from controllers.scheduling.ranking import order_by_urgency
from controllers.scheduling.remaining_length import EntropyTrend
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, OrderAction, OrderObservation
from workbench.signals import IntArray


@dataclass(frozen=True)
class CompletionState:
    estimate: Any  # state of the expected-reduction estimator
    trend: Any  # state of the length predictor
    age_steps: IntArray  # [capacity] order decisions since the row was last served


@dataclass(frozen=True, kw_only=True)
class CompletionAware:
    """score = min((E[max(0, dH)] + w / R) / max(cost, c_min), P) + alpha age; the highest first, ties to the older.

    The plain ratio ranks a request low once its entropy has come down, which is when it is nearly done: it then holds its
    KV for longer, the opposite of shortest-first. Here completing a request is worth w `completion_nats`, spread over the
    R tokens still to come (oracle length where the plant knows it and `use_oracle`, else `predictor`). w = 0 is the
    entropy rule, w large is shortest-remaining-first. Other fields, and the wait bound, as in `EntropyAging`.
    Source: ours. Raises InputError for numbers outside their range.
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.ORDER
    completion_nats: float = 20.0
    use_oracle: bool = False
    aging_nats_per_s: float = 100.0
    ratio_max_nats_per_s: float = 20_000.0
    cost_min_s: float = 1e-5
    prior_reduction_nats: tuple[float, ...] = (0.7,)
    estimator: ReductionEstimator = field(default_factory=Ewma)
    predictor: EntropyTrend = field(default_factory=EntropyTrend)

    def __post_init__(self) -> None:
        if not 0.0 <= self.completion_nats < np.inf:
            raise InputError(
                f"CompletionAware.completion_nats must be in [0, inf), got {self.completion_nats:g}; 0 is EntropyAging"
            )
        object.__setattr__(self, "prior_reduction_nats", self._rule.prior_reduction_nats)

    @cached_property
    def _rule(self) -> EntropyAging:
        return EntropyAging(
            aging_nats_per_s=self.aging_nats_per_s,
            ratio_max_nats_per_s=self.ratio_max_nats_per_s,
            cost_min_s=self.cost_min_s,
            prior_reduction_nats=self.prior_reduction_nats,
            estimator=self.estimator,
        )

    def wait_bound_steps(self, num_ready: int, num_served: int) -> float:
        """Most steps a row can wait; inf when alpha is 0."""
        return self._rule.wait_bound_steps(num_ready, num_served)

    def init(self, capacity: int) -> CompletionState:
        age = np.zeros(capacity, dtype=np.int64)
        return CompletionState(self.estimator.init(capacity), self.predictor.init(capacity), age)

    def step(self, state: CompletionState, observation: OrderObservation) -> tuple[CompletionState, OrderAction]:
        estimate, reduction = self.estimator.step(state.estimate, observation)
        trend, remaining = self.predictor.step(state.trend, observation)
        if self.use_oracle:
            told = observation.remaining_tokens_oracle
            remaining = np.where(np.isnan(told), remaining, np.maximum(told, 1.0))
        age = state.age_steps.copy()
        bonus = self.completion_nats / remaining
        score = aging_scores(self._rule, observation, reduction, bonus, age)
        return CompletionState(estimate, trend, age), order_by_urgency(observation, score)
