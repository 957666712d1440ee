"""How often each router routes a trend-free trace, and how often it finds a real fall: by simulation, with intervals.

Traces are stationary Gaussian AR(1) with lag-1 correlation phi; a fall is a straight line of `fall_sd` standard deviations
over the probe. Decisions are the routers' own.
Source: ours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from controllers.routing.heuristic import HeuristicRouter
from controllers.routing.null_threshold import ar1_traces
from controllers.routing.surrogate import SurrogateRouter
from workbench.protocols import Controller, RouteObservation, Strategy
from workbench.signals import FloatArray

ROUTERS = {
    "plain rule (k = 0.07)": HeuristicRouter(overload_nats=float("inf")),
    "calibrated (5 %)": SurrogateRouter(),
}


@dataclass(frozen=True)
class NullRow:
    router: str
    phi: float
    fall_sd: float
    num_traces: int
    share_cot: float
    share_direct: float

    @property
    def routed(self) -> float:
        return self.share_cot + self.share_direct

    @property
    def error(self) -> float:
        """Half-width of the 95 % Monte-Carlo interval of `routed`."""
        return 1.96 * float(np.sqrt(max(self.routed * (1.0 - self.routed), 1e-12) / self.num_traces))


def null_study(
    phis: Sequence[float] = (0.0, 0.5, 0.9),
    falls_sd: Sequence[float] = (0.0,),
    *,
    routers: Mapping[str, Controller[Any, Any, Any]] | None = None,
    num_traces: int = 4000,
    num_tokens: int = 64,
    seed: int = 0,
) -> list[NullRow]:
    """A row per router, phi and fall; every router sees the same traces."""
    rows = []
    for phi in phis:
        noise = ar1_traces(phi, num_traces, num_tokens, np.random.default_rng((seed, int(1000 * phi))))
        for fall in falls_sd:
            traces = noise - fall * np.arange(num_tokens) / (num_tokens - 1)
            for name, router in (routers or ROUTERS).items():
                strategy = router.step(router.init(num_traces), observation(traces))[1].strategy
                share = [float((strategy == s).mean()) for s in (Strategy.COT, Strategy.DIRECT)]
                rows.append(NullRow(name, phi, fall, num_traces, *share))
    return rows


def observation(traces: FloatArray) -> RouteObservation:
    n, length = traces.shape
    return RouteObservation(
        step=0,
        active=np.ones(n, dtype=bool),
        joined=np.ones(n, dtype=bool),
        request_id=np.arange(n),
        measured=np.ones(n, dtype=bool),
        measured_step=np.zeros(n, dtype=np.int64),
        num_probe_tokens=np.full(n, length),
        probe_entropy_nats=traces,
    )
