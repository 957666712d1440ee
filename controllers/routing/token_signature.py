"""Token-Signature: route by the trend of the sampled tokens' probabilities instead of the entropy's.

    SC = Spearman(i, p_i) = -Spearman(i, surprisal_i)       p_i: raw probability of the probe's i-th token
    CoT     if SC >  threshold      the model grows surer as it goes
    Direct  otherwise

Source: Token Signature (ICML 2025, arXiv 2506.06008), its instance-level indicator with a single threshold.
Deviates: the paper feeds several indicators to a logistic regression; a fixed threshold (0, or one chosen by
`workbench route --calibrate`) is used here. A probe under `min_tokens`, or without surprisals, is answered Standard.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controllers.routing.descriptors import describe
from controllers.routing.heuristic import check_common, choose
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, RouteAction, RouteObservation


@dataclass(frozen=True, kw_only=True)
class TokenSignatureRouter:
    point: ClassVar[DecisionPoint] = DecisionPoint.ROUTE
    threshold: float = 0.0
    min_tokens: int = 16

    def __post_init__(self) -> None:
        if not -1.0 <= self.threshold <= 1.0:
            raise InputError(f"TokenSignatureRouter.threshold must be in [-1, 1], got {self.threshold!r}; try 0")
        check_common("TokenSignatureRouter", np.inf, self.min_tokens)

    def init(self, capacity: int) -> None:
        return None

    def step(self, state: None, observation: RouteObservation) -> tuple[None, RouteAction]:
        surprisal = observation.probe_surprisal_raw_nats
        if surprisal is None:
            surprisal = np.full_like(observation.probe_entropy_nats, np.nan)
        numbers = describe(surprisal, observation.num_probe_tokens)
        signature = -numbers.trend
        nothing = np.zeros(len(signature), dtype=bool)
        return None, choose(
            observation.active,
            overload=nothing,
            too_short=~(numbers.num_measured >= self.min_tokens) | np.isnan(signature),
            falling=signature > self.threshold,
            rising=signature <= self.threshold,
        )
