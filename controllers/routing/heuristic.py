"""The paper's rule on the three numbers of a probe.

    Direct     if S_H > S_max                    overload: `overload_nats`, inf switches it off
    CoT        if V_sp < -k avnr                 falling entropy: thinking pays
    Direct     if V_sp >  k avnr                 rising entropy: it does not
    Standard   otherwise

tried in this order, so overload wins over a trend. A probe with fewer than `min_tokens` measured tokens, or a constant one, has no trend.
Source: EDRM (arXiv 2605.22873); k = 0.07; S_max = 32 for base models and 10 for reasoning models.
Deviates: the precedence of overload and `min_tokens` are ours. The threshold k avnr falls where a trace is smooth, so a
trend-free AR(1) trace with phi = 0.9 is routed by chance 96 times in 100: see `surrogate.py`.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controllers.routing.descriptors import Descriptors, describe
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, RouteAction, RouteObservation, RouteReason, Strategy
from workbench.signals import BoolArray


@dataclass(frozen=True, kw_only=True)
class HeuristicRouter:
    """Frozen parameters of the rule; no state."""

    point: ClassVar[DecisionPoint] = DecisionPoint.ROUTE
    k: float = 0.07
    overload_nats: float = 32.0  # S_max
    min_tokens: int = 16

    def __post_init__(self) -> None:
        if not (math.isfinite(self.k) and self.k >= 0.0):
            raise InputError(f"HeuristicRouter.k must be finite and at least 0, got {self.k!r}; the paper uses 0.07")
        check_common("HeuristicRouter", self.overload_nats, self.min_tokens)

    def init(self, capacity: int) -> None:
        return None

    def step(self, state: None, observation: RouteObservation) -> tuple[None, RouteAction]:
        numbers = describe(observation.probe_entropy_nats, observation.num_probe_tokens)
        return None, self.decide(numbers, observation.active)

    def decide(self, numbers: Descriptors, active: BoolArray) -> RouteAction:
        """The rule on numbers already computed (streamed or batched)."""
        with np.errstate(invalid="ignore"):
            falling = numbers.trend < -self.k * numbers.avnr
            rising = numbers.trend > self.k * numbers.avnr
        return choose(
            active,
            overload=numbers.sum_nats > self.overload_nats,
            too_short=numbers.num_measured < self.min_tokens,
            falling=falling,
            rising=rising,
        )


def check_common(owner: str, overload_nats: float, min_tokens: int) -> None:
    if not overload_nats > 0.0:
        raise InputError(
            f"{owner}.overload_nats must be above 0, got {overload_nats!r}; 32 base, 10 reasoning models, inf is off"
        )
    if min_tokens < 3:
        raise InputError(f"{owner}.min_tokens must be at least 3, got {min_tokens!r}; two tokens have no trend")


def choose(
    active: BoolArray, *, overload: BoolArray, too_short: BoolArray, falling: BoolArray, rising: BoolArray
) -> RouteAction:
    """The common order of precedence: overload, too short, falling, rising, no trend. Inactive rows are all zero."""
    conditions = [~active, overload, too_short, falling, rising]
    strategy = np.select(
        conditions, [Strategy.STANDARD, Strategy.DIRECT, Strategy.STANDARD, Strategy.COT, Strategy.DIRECT]
    )
    reason = np.select(
        conditions,
        [0, RouteReason.OVERLOAD, RouteReason.TOO_SHORT, RouteReason.FALLING, RouteReason.RISING],
        RouteReason.NO_TREND,
    )
    return RouteAction(strategy=strategy.astype(np.int64), reason=reason.astype(np.int64))
