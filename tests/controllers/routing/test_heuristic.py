import math

import numpy as np
import pytest

from controllers.routing.heuristic import HeuristicRouter
from controllers.routing.null_threshold import ar1_traces
from tests.controllers.routing.observe import observe
from workbench.errors import InputError
from workbench.protocols import RouteReason, Strategy

FALLING = np.linspace(0.6, 0.1, 64)


def route(router, *args, **kwargs):
    _, action = router.step(router.init(1), observe(*args, **kwargs))
    return [Strategy(s) for s in action.strategy], [RouteReason(r) for r in action.reason]


def test_falling_is_cot_and_rising_is_direct():
    strategies, reasons = route(HeuristicRouter(), [FALLING, FALLING[::-1]])
    assert strategies == [Strategy.COT, Strategy.DIRECT]
    assert reasons == [RouteReason.FALLING, RouteReason.RISING]


def test_overload_wins_over_a_falling_trend():
    strategies, reasons = route(HeuristicRouter(), [4.0 * FALLING])
    assert (strategies, reasons) == ([Strategy.DIRECT], [RouteReason.OVERLOAD])
    strategies, _ = route(HeuristicRouter(overload_nats=math.inf), [4.0 * FALLING])
    assert strategies == [Strategy.COT]


def test_a_hundredfold_scale_changes_only_overload():
    off = HeuristicRouter(overload_nats=math.inf)
    noise = np.random.default_rng(0).gamma(1.5, 1.0, (50, 64))
    assert route(off, noise) == route(off, 100.0 * noise)


@pytest.mark.parametrize("level", [0.0, 0.1, 0.3])
def test_constant_trace_is_standard(level):
    assert route(HeuristicRouter(), [np.full(64, level)]) == ([Strategy.STANDARD], [RouteReason.NO_TREND])


@pytest.mark.parametrize("n", [0, 1, 2, 3, 15])
def test_a_short_probe_is_standard_and_says_why(n):
    assert route(HeuristicRouter(), [FALLING], [n]) == ([Strategy.STANDARD], [RouteReason.TOO_SHORT])


def test_all_missing_is_standard():
    assert route(HeuristicRouter(), [np.full(64, np.nan)]) == ([Strategy.STANDARD], [RouteReason.TOO_SHORT])


def test_inactive_rows_are_blank_and_rows_do_not_meet():
    together = route(HeuristicRouter(), [FALLING, 4.0 * FALLING], active=[True, False])
    assert together == ([Strategy.COT, Strategy.STANDARD], [RouteReason.FALLING, RouteReason(0)])


@pytest.mark.parametrize(("phi", "share"), [(0.0, 0.13), (0.5, 0.36), (0.9, 0.48)])
def test_the_plain_rule_routes_chance(phi, share):
    """What the calibrated rule is there to fix: shares of trend-free traces, each way, within Monte-Carlo error."""
    traces = ar1_traces(phi, 8000, 64, np.random.default_rng(7)) + 20.0
    strategies, _ = route(HeuristicRouter(overload_nats=math.inf), traces)
    for strategy in (Strategy.COT, Strategy.DIRECT):
        assert strategies.count(strategy) / 8000 == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize("bad", [{"k": -1.0}, {"k": math.nan}, {"overload_nats": 0.0}, {"min_tokens": 2}])
def test_bad_parameters_are_refused(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        HeuristicRouter(**bad)
