"""The paper's rule as it stands: nats per second, without aging."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from controllers.scheduling.entropy_aging import AgingState, EntropyAging
from controllers.scheduling.expected_reduction import LastDrop, ReductionEstimator
from workbench.protocols import DecisionPoint, OrderAction, OrderObservation


@dataclass(frozen=True, kw_only=True)
class EntropyRatio:
    """score = min(E[max(0, dH)] / max(cost, c_min), P), the highest first: `EntropyAging` with alpha = 0.

    Boundedness of the score does not prevent starvation: a row whose entropy stays flat is passed over for as long as
    others arrive. Kept to show that. Fields as in `EntropyAging`.
    Source: arXiv 2603.03310, its scheduling rule. Raises InputError as `EntropyAging` does.
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.ORDER
    ratio_max_nats_per_s: float = 20_000.0
    cost_min_s: float = 1e-5
    prior_reduction_nats: tuple[float, ...] = (0.7,)
    estimator: ReductionEstimator = field(default_factory=LastDrop)

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior_reduction_nats", self._rule.prior_reduction_nats)

    @cached_property
    def _rule(self) -> EntropyAging:
        return EntropyAging(
            aging_nats_per_s=0.0,
            ratio_max_nats_per_s=self.ratio_max_nats_per_s,
            cost_min_s=self.cost_min_s,
            prior_reduction_nats=self.prior_reduction_nats,
            estimator=self.estimator,
        )

    def init(self, capacity: int) -> AgingState:
        return self._rule.init(capacity)

    def step(self, state: AgingState, observation: OrderObservation) -> tuple[AgingState, OrderAction]:
        return self._rule.step(state, observation)
