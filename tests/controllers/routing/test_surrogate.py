import math

import numpy as np
import pytest

from controllers.routing.null_threshold import (
    PHI_HAT,
    ar1_traces,
    critical_trend,
    critical_values,
    rank_autocorrelation,
)
from controllers.routing.surrogate import SurrogateRouter
from tests.controllers.routing.observe import observe
from workbench.errors import InputError
from workbench.protocols import RouteReason, Strategy

ROWS = 20_000
FALL = -2.0 * np.arange(64) / 63.0  # two standard deviations over 64 tokens


def shares(router, traces, num_tokens=None):
    _, action = router.step(None, observe(traces, num_tokens))
    return [(action.strategy == s).mean() for s in (Strategy.COT, Strategy.DIRECT)]


def margin(rate, rows=ROWS):
    return 3.0 * math.sqrt(rate * (1.0 - rate) / rows)


@pytest.mark.parametrize("phi", [0.0, 0.3, 0.5, 0.7, 0.9, 0.95])
def test_false_cot_plus_false_direct_is_at_most_five_percent(phi):
    traces = ar1_traces(phi, ROWS, 64, np.random.default_rng(101))
    assert sum(shares(SurrogateRouter(), traces)) <= 0.05 + margin(0.05)


@pytest.mark.parametrize("rate", [0.01, 0.2])
def test_other_rates_hold_too(rate):
    for phi in (0.0, 0.9):
        traces = ar1_traces(phi, ROWS, 64, np.random.default_rng(102))
        assert sum(shares(SurrogateRouter(false_route_rate=rate), traces)) <= rate + margin(rate)


@pytest.mark.parametrize("n", [16, 23, 40])
def test_probes_that_end_early_hold_it(n):
    traces = ar1_traces(0.6, ROWS, 64, np.random.default_rng(103))
    assert sum(shares(SurrogateRouter(), traces, np.full(ROWS, n))) <= 0.05 + margin(0.05)


def test_a_skewed_marginal_changes_nothing():
    """Entropies are positive and skewed; both numbers read ranks only."""
    traces = ar1_traces(0.7, 500, 64, np.random.default_rng(104))
    router = SurrogateRouter()
    _, plain = router.step(None, observe(traces))
    _, skewed = router.step(None, observe(np.exp(1.5 * traces)))
    assert np.array_equal(plain.strategy, skewed.strategy)


def test_power_against_a_linear_fall():
    """At phi = 0 the fall is found 8 times in 10 or more; smoother noise hides it, and never turns it into a rise."""
    rng = np.random.default_rng(105)
    power = {}
    for phi in (0.0, 0.3, 0.5, 0.9):
        power[phi], wrong = shares(SurrogateRouter(), ar1_traces(phi, 4000, 64, rng) + FALL)
        assert wrong < 0.01
    assert power[0.0] >= 0.8
    assert power[0.0] > power[0.3] > power[0.5] > power[0.9]


def test_decisions():
    router = SurrogateRouter()
    falling = np.linspace(3.0, 1.0, 64) + 0.3 * np.random.default_rng(0).standard_normal(64)
    _, action = router.step(None, observe([falling, falling[::-1], np.full(64, 0.1)]))
    assert list(action.strategy) == [Strategy.COT, Strategy.DIRECT, Strategy.STANDARD]
    assert list(action.reason) == [RouteReason.FALLING, RouteReason.RISING, RouteReason.NO_TREND]
    _, action = router.step(None, observe([falling], [9]))
    assert list(action.reason) == [RouteReason.TOO_SHORT]
    _, action = SurrogateRouter(overload_nats=32.0).step(None, observe([falling]))
    assert list(action.reason) == [RouteReason.OVERLOAD]


def test_no_row_depends_on_its_neighbours():
    traces = ar1_traces(0.4, 40, 64, np.random.default_rng(106)) + FALL
    router = SurrogateRouter()
    _, together = router.step(None, observe(traces))
    alone = [int(router.step(None, observe(row))[1].strategy[0]) for row in traces]
    assert list(together.strategy) == alone


def test_curve_is_monotone_bounded_and_reproducible():
    curve = critical_values(64, 0.05)
    assert np.all(np.diff(curve) >= 0.0)
    assert 0.2 < curve[0] < 0.3
    assert curve[-1] <= 1.0
    assert np.array_equal(critical_values.__wrapped__(64, 0.05), curve)
    assert np.array_equal(critical_trend(np.array([64, 70, 7]), PHI_HAT[:3], 0.05)[:2], curve[:2])
    assert critical_trend(np.array([7]), np.array([0.0]), 0.05)[0] == 1.0


def test_rank_autocorrelation_against_a_plain_loop():
    rng = np.random.default_rng(3)
    h = rng.gamma(1.5, 1.0, 30)
    rank = h.argsort().argsort() + 1.0
    line = np.polyval(np.polyfit(np.arange(30), rank, 1), np.arange(30))
    rest = rank - line
    expected = (rest[1:] * rest[:-1]).sum() / (rest**2).sum()
    assert rank_autocorrelation(h[None], np.ones((1, 30), bool))[0] == pytest.approx(expected, abs=1e-12)
    assert rank_autocorrelation(np.arange(30.0)[None], np.ones((1, 30), bool))[0] == 1.0


@pytest.mark.parametrize("bad", [{"false_route_rate": 0.0}, {"false_route_rate": math.nan}, {"min_tokens": 0}])
def test_bad_parameters_are_refused(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        SurrogateRouter(**bad)
