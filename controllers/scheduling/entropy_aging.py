"""Entropy-aware scheduling with aging: nats taken off a request's entropy per second of engine time, plus age."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numba import njit

from controllers.scheduling.expected_reduction import DropState, Ewma, LastDrop, ReductionEstimator, mean_drop
from controllers.scheduling.ranking import order_by_urgency, rank_by_urgency
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, OrderAction, OrderObservation
from workbench.signals import FloatArray, IntArray


@dataclass(frozen=True)
class AgingState:
    estimate: Any  # state of the expected-reduction estimator
    age_steps: IntArray  # [capacity] order decisions since the row was last served


@dataclass(frozen=True, kw_only=True)
class EntropyAging:
    """score = min(E[max(0, dH)] / max(cost, c_min), P) + alpha age; the highest score first, ties to the older.

    E[max(0, dH)]  `estimator`; before it knows anything `prior_reduction_nats[kind]` (the last entry for further kinds)
    cost           `marginal_step_s` of the row: seconds it adds to the next step; c_min where missing
    c_min          `cost_min_s`
    P              `ratio_max_nats_per_s`
    alpha          `aging_nats_per_s`: nats/s per step waited; 0 is the paper's rule without aging, which can starve
    age            steps since the row was last served, 0 for a new row; preemption does not reset it

    With at most N ready rows and the B highest really served each step, no row waits more than
    ceil(P/alpha) + ceil((N-1)/B) + 1 steps (`wait_bound_steps`). With alpha = 0 there is no bound.
    Source: arXiv 2603.03310 for the ratio; clip, floor and aging are ours.
    Raises InputError for numbers outside their range.
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.ORDER
    aging_nats_per_s: float = 100.0
    ratio_max_nats_per_s: float = 20_000.0
    cost_min_s: float = 1e-5
    prior_reduction_nats: tuple[float, ...] = (0.7,)
    estimator: ReductionEstimator = field(default_factory=Ewma)

    def __post_init__(self) -> None:
        owner = type(self).__name__
        object.__setattr__(self, "prior_reduction_nats", tuple(float(x) for x in self.prior_reduction_nats))
        if not 0.0 <= self.aging_nats_per_s < np.inf:
            raise InputError(
                f"{owner}.aging_nats_per_s must be in [0, inf), got {self.aging_nats_per_s:g}; 0 allows starvation"
            )
        for name in ("ratio_max_nats_per_s", "cost_min_s"):
            if not 0.0 < getattr(self, name) < np.inf:
                raise InputError(f"{owner}.{name} must be in (0, inf), got {getattr(self, name):g}")
        prior = self.prior_reduction_nats
        if not prior or not all(0.0 <= x < np.inf for x in prior):
            raise InputError(f"{owner}.prior_reduction_nats needs one value in [0, inf) per kind, got {list(prior)}")

    def wait_bound_steps(self, num_ready: int, num_served: int) -> float:
        """Most steps a row can wait; inf when alpha is 0."""
        if self.aging_nats_per_s == 0.0:
            return np.inf
        climb = np.ceil(self.ratio_max_nats_per_s / self.aging_nats_per_s)
        return float(climb + np.ceil((num_ready - 1) / num_served) + 1)

    @cached_property
    def _prior(self) -> FloatArray:
        return np.array(self.prior_reduction_nats)

    @cached_property
    def _no_bonus(self) -> FloatArray:
        return np.zeros(1)

    @property
    def prior(self) -> FloatArray:
        """`prior_reduction_nats` as an array."""
        return self._prior

    def init(self, capacity: int) -> AgingState:
        return AgingState(self.estimator.init(capacity), np.zeros(capacity, dtype=np.int64))

    def step(self, state: AgingState, observation: OrderObservation) -> tuple[AgingState, OrderAction]:
        estimate, reduction = self.estimator.step(state.estimate, observation)
        new = AgingState(estimate, state.age_steps.copy())
        score = aging_scores(self, observation, reduction, self._no_bonus, new.age_steps)
        return new, order_by_urgency(observation, score)

    def compiled(self, state: AgingState, width: int) -> "AgingRule | None":
        """As in `controllers.compiled`, for the estimators that are running means of drops."""
        if type(self) is not EntropyAging or not isinstance(self.estimator, Ewma | LastDrop):
            return None
        return AgingRule(
            self.estimator.weight, self.prior, self._no_bonus, self.aging_nats_per_s, self.ratio_max_nats_per_s,
            self.cost_min_s, state.estimate.entropy_nats.copy(), state.estimate.drop_nats.copy(), state.age_steps.copy(),
        )  # fmt: skip


def aging_scores(
    rule: EntropyAging, observation: OrderObservation, reduction: FloatArray, bonus: FloatArray, age: IntArray
) -> FloatArray:
    """Scores [num_slots]; `age` is brought up to date in place. bonus: nats added to the reduction, [num_slots] or [1]."""
    return _scores(
        observation.active,
        observation.joined,
        observation.served,
        observation.kind,
        observation.marginal_step_s,
        reduction,
        bonus,
        rule.prior,
        age,
        rule.aging_nats_per_s,
        rule.ratio_max_nats_per_s,
        rule.cost_min_s,
    )


@njit(cache=True)
def _scores(active, joined, served, kind, cost, reduction, bonus, prior, age, alpha, ratio_max, cost_min):
    score = np.zeros(active.shape[0])
    for i in range(active.shape[0]):
        if not active[i]:
            continue
        age[i] = 0 if joined[i] or served[i] else age[i] + 1
        nats = reduction[i] if reduction[i] >= 0.0 else prior[min(max(kind[i], 0), prior.shape[0] - 1)]
        nats += bonus[min(i, bonus.shape[0] - 1)]
        seconds = cost[i] if cost[i] > cost_min else cost_min
        score[i] = min(nats / seconds, ratio_max) + alpha * age[i]
    return score


@njit(cache=True)
def _decide(rule, view, out):
    mean_drop(
        view.active, view.joined, view.measured, view.entropy_raw_nats, rule.entropy_nats, rule.drop_nats, rule.weight
    )
    score = _scores(
        view.active, view.joined, view.served, view.kind, view.marginal_step_s, rule.drop_nats, rule.no_bonus,
        rule.prior, rule.age_steps, rule.alpha, rule.ratio_max, rule.cost_min,
    )  # fmt: skip
    rank_by_urgency(view.active, view.arrival_rank, score, out)


class AgingRule(NamedTuple):
    """`EntropyAging` over a running mean of drops, as compiled code has it."""

    weight: float
    prior: FloatArray
    no_bonus: FloatArray
    alpha: float
    ratio_max: float
    cost_min: float
    entropy_nats: FloatArray
    drop_nats: FloatArray
    age_steps: IntArray

    decide = _decide

    def state(self, shown_width: int) -> AgingState:
        return AgingState(DropState(self.entropy_nats, self.drop_nats), self.age_steps)
