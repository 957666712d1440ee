"""One strategy for a whole data set, chosen once from about 50 calibration probes.

The probes of different questions are independent, so the mean trend over n of them is tested with Student's t whatever the
autocorrelation inside a trace is:

    t = mean(V_sp) / (sd(V_sp) / sqrt(n))
    CoT       if the two-sided p-value is below `false_route_rate` and mean(V_sp) < 0
    Direct    if it is and mean(V_sp) > 0, or if the mean S_H > `overload_nats` (off by default)
    Standard  otherwise

Source: EDRM (arXiv 2605.22873) for the data-set level; the test is ours. What it cannot tell: a trend that every text has
because of where it starts (a drift common to all questions) from one that speaks for reasoning. A data set without a
trend is routed at most `false_route_rate` of the time. Once calibrated it serves without a probe.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import stats

from controllers.routing.descriptors import Descriptors
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, RouteAction, RouteObservation, RouteReason, Strategy

MIN_SAMPLES = 8


@dataclass(frozen=True, kw_only=True)
class DatasetRouter:
    """The decision and what it rests on; made by `calibrated`."""

    point: ClassVar[DecisionPoint] = DecisionPoint.ROUTE
    needs_probe: ClassVar[bool] = False
    strategy: Strategy = Strategy.STANDARD  # uncalibrated: nothing is known, so nothing is changed
    reason: RouteReason = RouteReason.NO_TREND
    mean_trend: float = math.nan
    p_value: float = math.nan
    num_samples: int = 0

    @classmethod
    def calibrated(
        cls,
        numbers: Descriptors,
        *,
        false_route_rate: float = 0.05,
        overload_nats: float = math.inf,
        min_tokens: int = 16,
    ) -> "DatasetRouter":
        """Decide from the descriptors of calibration probes; those under `min_tokens` are left out."""
        if not 0.0 < false_route_rate < 1.0:
            raise InputError(f"false_route_rate must be in (0, 1), got {false_route_rate!r}; try 0.05")
        usable = (numbers.num_measured >= min_tokens) & ~np.isnan(numbers.trend)
        trend = numbers.trend[usable]
        if len(numbers.trend) < MIN_SAMPLES:
            raise InputError(
                f"a data-set router needs at least {MIN_SAMPLES} calibration probes, got {len(numbers.trend)}; use about 50"
            )
        mean_load = float(numbers.sum_nats.mean())
        if mean_load > overload_nats:
            strategy, reason, mean, p_value = Strategy.DIRECT, RouteReason.OVERLOAD, math.nan, math.nan
        elif trend.size < MIN_SAMPLES:
            strategy, reason, mean, p_value = Strategy.STANDARD, RouteReason.TOO_SHORT, math.nan, math.nan
        else:
            mean, error = float(trend.mean()), float(trend.std(ddof=1) / np.sqrt(trend.size))
            p_value = float(2.0 * stats.t.sf(abs(mean) / error, trend.size - 1)) if error > 0.0 else float(mean == 0.0)
            if p_value >= false_route_rate:
                strategy, reason = Strategy.STANDARD, RouteReason.NO_TREND
            elif mean < 0.0:
                strategy, reason = Strategy.COT, RouteReason.FALLING
            else:
                strategy, reason = Strategy.DIRECT, RouteReason.RISING
        return cls(strategy=strategy, reason=reason, mean_trend=mean, p_value=p_value, num_samples=int(trend.size))

    def init(self, capacity: int) -> None:
        return None

    def step(self, state: None, observation: RouteObservation) -> tuple[None, RouteAction]:
        active = observation.active
        return None, RouteAction(
            strategy=np.where(active, int(self.strategy), 0).astype(np.int64),
            reason=np.where(active, int(self.reason), 0).astype(np.int64),
        )
