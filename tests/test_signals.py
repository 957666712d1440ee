"""Signals against scipy in float64, closed forms, and the identities the papers hide."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import log_softmax
from scipy.stats import entropy as scipy_entropy

from workbench.signals import entropic_time, entropy_and_varentropy, max_varentropy

logits = arrays(np.float64, st.tuples(st.just(1), st.integers(1, 40)), elements=st.floats(-50, 50))


@given(logits, st.floats(0.05, 20))
def test_entropy_and_varentropy_match_scipy(z, temperature):
    h, v = entropy_and_varentropy(z, temperature)
    logp = log_softmax(z / temperature, axis=-1)
    p = np.exp(logp)
    assert h[0] == pytest.approx(scipy_entropy(p[0]), abs=1e-9)
    assert v[0] == pytest.approx((p * logp**2).sum() - (p * logp).sum() ** 2, abs=1e-8)


@given(logits)
def test_entropy_slope_in_log_temperature_is_varentropy(z):
    step = 1e-5
    (low, high), (_, v) = (entropy_and_varentropy(z, np.exp(s))[0] for s in (-step, step)), entropy_and_varentropy(z)
    assert (high[0] - low[0]) / (2 * step) == pytest.approx(v[0], abs=1e-5, rel=1e-4)


def test_impossible_and_certain_rows():
    inf, nan = np.inf, np.nan
    rows = [
        [1, 1, 1, -inf],
        [2, -inf, -inf, -inf],
        [60000, -60000, -inf, -inf],
        [nan, 0, 0, 0],
        [inf, 0, 0, 0],
        [-inf] * 4,
    ]
    h, v = entropy_and_varentropy(np.array(rows))
    np.testing.assert_allclose(h[:3], [np.log(3), 0, 0], atol=1e-12)
    assert not np.signbit(h[1:3]).any()
    assert not np.signbit(v[:3]).any()
    np.testing.assert_array_equal(v[:3], 0)
    assert np.isnan(h[3:]).all()
    assert np.isnan(v[3:]).all()


@pytest.mark.parametrize(
    ("temperature", "expected"), [(0.0, 0.0), (1e-30, np.log(2)), (1e-4, np.log(2)), (1e6, 1.09861)]
)
def test_extreme_temperatures(temperature, expected):
    # In float16 9.999 is 10.0: a tie, which every T > 0 keeps and greedy (T = 0) breaks.
    h, v = entropy_and_varentropy(np.float16([10, 9.999, 0]).astype(float), temperature)
    assert h == pytest.approx(expected, abs=1e-5)
    assert np.isfinite(v)


@pytest.mark.parametrize("temperature", [-1.0, np.nan, np.inf])
def test_impossible_temperatures_are_refused(temperature):
    with pytest.raises(ValueError, match=r"\[0, inf\)"):
        entropy_and_varentropy(np.zeros(3), temperature)


@given(arrays(np.float64, st.integers(0, 60), elements=st.floats(0, 11)))
def test_entropic_time_identity(trace):
    tau = entropic_time(trace)
    assert tau.tau_nats == pytest.approx((tau.net_drop_nats + tau.total_variation_nats) / 2, abs=1e-9)


def test_entropic_time_rewards_a_trace_that_goes_nowhere():
    oscillating = np.tile([3.0, 1.0], 50)
    falling = np.linspace(3.0, 1.0, 100)
    assert entropic_time(oscillating).tau_nats == pytest.approx(100.0)
    assert entropic_time(falling).tau_nats == pytest.approx(2.0)
    assert entropic_time(np.array([3.0, np.nan, 1.0])).tau_nats == 2.0


@pytest.mark.parametrize(
    ("n", "value"), [(25, 3.433), (50, 4.719), (32000, 27.890), (49152, 30.163), (128256, 35.576), (151936, 36.579)]
)
def test_max_varentropy_matches_published_figures_and_a_grid(n, value):
    assert max_varentropy(n) == pytest.approx(value, abs=5e-4)
    p = 1 / (1 + np.exp(-np.linspace(0, 8, 200_001)))
    grid = p * (1 - p) * np.log((n - 1) * p / (1 - p)) ** 2
    assert grid.max() <= max_varentropy(n) <= grid.max() + 1e-6
    assert max_varentropy(n) < np.log(n - 1) ** 2 / 4 + 1
