import numpy as np
import pytest
from scipy import stats

from workbench.unmasking.estimate import estimate, exact


def test_agrees_with_the_students_interval():
    x = np.random.default_rng(0).normal(3.0, 2.0, 17)
    low, high = stats.t.interval(0.95, 16, x.mean(), stats.sem(x))
    got = estimate(x)
    assert (got.low, got.high) == (pytest.approx(low), pytest.approx(high))


def test_one_value_has_no_spread_and_an_exact_one_none():
    assert np.isnan(estimate(np.array([2.0])).half_width)
    assert exact(2.0).half_width == 0.0
    assert str(exact(2.0)) == "2"
