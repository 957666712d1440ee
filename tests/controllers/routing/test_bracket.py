import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.routing.bracket import bracket, certain_strategy
from controllers.routing.descriptors import describe
from controllers.routing.heuristic import HeuristicRouter
from tests.controllers.routing.observe import observe
from workbench.errors import InputError
from workbench.protocols import Strategy

LEVELS = st.floats(0.0, 8.0, allow_nan=False).map(lambda x: round(x, 1))


@given(st.lists(st.tuples(LEVELS, st.floats(0.0, 2.0), st.floats(0.0, 1.0)), min_size=3, max_size=40))
def test_every_trace_inside_lies_in_the_bracket(rows):
    low, width, at = np.array(rows).T
    truth = low + width * at
    got = describe(truth)
    bounds = bracket(low, low + width)
    slack = 1e-9
    assert bounds.sum_nats[0] - slack <= got.sum_nats[0] <= bounds.sum_nats[1] + slack
    if np.isfinite(got.trend[0]):
        assert bounds.trend[0] - slack <= got.trend[0] <= bounds.trend[1] + slack
    if np.isfinite(got.avnr[0]):
        assert bounds.avnr[0] - slack <= got.avnr[0] <= bounds.avnr[1] + slack
    router = HeuristicRouter(min_tokens=3)
    certain = certain_strategy(router, bounds)
    if certain is not None:
        assert router.step(None, observe(truth))[1].strategy[0] == certain


def test_a_bracket_of_width_zero_is_exact():
    h = np.random.default_rng(0).gamma(1.5, 1.0, 64)
    bounds, exact = bracket(h, h), describe(h)
    assert bounds.trend == pytest.approx((exact.trend[0], exact.trend[0]), abs=1e-12)
    assert bounds.sum_nats == pytest.approx((exact.sum_nats[0],) * 2)


def test_certain_and_open_decisions():
    falling = np.linspace(0.6, 0.1, 64)
    router = HeuristicRouter()
    assert certain_strategy(router, bracket(falling, falling + 0.001)) == Strategy.COT
    assert certain_strategy(router, bracket(np.zeros(64), falling + 3.0)) is None
    assert certain_strategy(router, bracket(falling + 1.0, falling + 3.0)) == Strategy.DIRECT  # overload either way
    assert certain_strategy(router, bracket(falling[:2], falling[:2])) == Strategy.STANDARD


def test_swapped_bounds_are_refused():
    with pytest.raises(InputError, match="bracket 1"):
        bracket(np.array([0.0, 2.0, 0.0]), np.array([1.0, 1.0, 1.0]))
