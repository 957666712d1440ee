"""A router that routes a trend-free trace at most `false_route_rate` of the time, however smooth the trace is.

    CoT        if V_sp < -c_N(phi_hat)
    Direct     if V_sp >  c_N(phi_hat), or if S_H > `overload_nats` (off by default)
    Standard   otherwise, and always below `min_tokens`

c_N(phi_hat) is the simulated critical value of `null_threshold.py`; phi_hat is the trace's own rank autocorrelation. The
rate counts false CoT and false Direct together. A trace so smooth that c_N = 1 is never routed by its trend.
Source: ours; it replaces the threshold k avnr of EDRM (arXiv 2605.22873). Deviates: no overload unless asked for.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controllers.routing.descriptors import describe, measured_tokens
from controllers.routing.heuristic import check_common, choose
from controllers.routing.null_threshold import critical_trend, rank_autocorrelation
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, RouteAction, RouteObservation


@dataclass(frozen=True, kw_only=True)
class SurrogateRouter:
    """Frozen parameters of the calibrated rule; no state."""

    point: ClassVar[DecisionPoint] = DecisionPoint.ROUTE
    false_route_rate: float = 0.05  # alpha: false CoT plus false Direct
    overload_nats: float = math.inf
    min_tokens: int = 16
    seed: int = 0  # of the simulated critical values

    def __post_init__(self) -> None:
        if not 0.001 <= self.false_route_rate <= 0.5:
            raise InputError(
                f"SurrogateRouter.false_route_rate must be in [0.001, 0.5], got {self.false_route_rate!r}; try 0.05"
            )
        check_common("SurrogateRouter", self.overload_nats, self.min_tokens)

    def init(self, capacity: int) -> None:
        return None

    def step(self, state: None, observation: RouteObservation) -> tuple[None, RouteAction]:
        trace, tokens = observation.probe_entropy_nats, observation.num_probe_tokens
        numbers = describe(trace, tokens)
        testable = observation.active & (numbers.num_measured >= self.min_tokens)
        critical = np.ones(len(testable))
        if testable.any():
            phi_hat = rank_autocorrelation(trace[testable], measured_tokens(trace, tokens)[testable])
            critical[testable] = critical_trend(
                numbers.num_measured[testable], phi_hat, self.false_route_rate, self.seed
            )
        trend = np.nan_to_num(numbers.trend)
        return None, choose(
            observation.active,
            overload=numbers.sum_nats > self.overload_nats,
            too_short=numbers.num_measured < self.min_tokens,
            falling=trend < -critical,
            rising=trend > critical,
        )
