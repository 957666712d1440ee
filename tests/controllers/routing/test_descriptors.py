import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.stattools import durbin_watson

from controllers.routing.descriptors import average_ranks, describe


def trace(seed, n=64, ties=False):
    values = np.random.default_rng(seed).gamma(1.5, 1.0, n)
    return np.round(values, 1) if ties else values


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("n", [3, 4, 17, 64, 200])
def test_equals_scipy_and_statsmodels(n, ties):
    for seed in range(20):
        h = trace(seed, n, ties)
        if h.min() == h.max():
            continue
        got = describe(h)
        assert got.sum_nats[0] == pytest.approx(h.sum(), abs=1e-12)
        assert got.trend[0] == pytest.approx(stats.spearmanr(np.arange(n), h).statistic, abs=1e-12)
        assert got.avnr_sample[0] == pytest.approx(durbin_watson(h - h.mean()), abs=1e-12)
        assert got.avnr[0] == pytest.approx(np.mean(np.diff(h) ** 2) / np.var(h), abs=1e-12)


def test_sign_convention():
    falling = np.linspace(3.0, 1.0, 64)
    assert describe(falling).trend[0] == -1.0
    assert describe(falling[::-1]).trend[0] == 1.0


def test_ties_are_averaged_not_ranked_by_position():
    assert describe(np.array([3.0, 3, 2, 2, 1, 1])).trend[0] == pytest.approx(-0.95618, abs=5e-6)


@pytest.mark.parametrize("level", [0.0, 0.1, 1.0 / 3.0, 2.7])
def test_constant_trace_has_no_trend_and_no_roughness(level):
    got = describe(np.full(64, level))
    assert np.isnan(got.trend[0])
    assert np.isnan(got.avnr[0])
    assert got.sum_nats[0] == pytest.approx(64 * level)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_too_few_tokens_have_no_trend(n):
    got = describe(np.arange(64.0), np.array([n]))
    assert got.num_measured[0] == n
    assert np.isnan(got.trend[0])
    assert got.sum_nats[0] == sum(range(n))
    assert np.isfinite(got.features()).all()


def test_a_missing_measurement_is_left_out_never_ranked():
    h = trace(5)
    holed = h.copy()
    holed[[10, 40]] = np.nan
    keep = np.isfinite(holed)
    got = describe(holed)
    assert got.num_measured[0] == 62
    assert got.trend[0] == pytest.approx(stats.spearmanr(np.arange(64)[keep], h[keep]).statistic, abs=1e-12)
    # Four differences touch a hole; the other 59 are averaged.
    steps = np.diff(holed)
    assert got.avnr[0] == pytest.approx(np.nanmean(steps**2) / np.var(h[keep]), abs=1e-12)
    assert describe(np.where(keep, h, np.inf)).trend[0] == got.trend[0]


def test_scale_changes_only_the_sum():
    h = trace(6)
    one, hundred = describe(h), describe(100.0 * h)
    assert hundred.trend[0] == one.trend[0]
    assert hundred.avnr[0] == pytest.approx(one.avnr[0], rel=1e-12)
    assert hundred.sum_nats[0] == pytest.approx(100.0 * one.sum_nats[0])


def test_batched_equals_single_with_early_ends():
    lengths = np.array([1, 2, 10, 63, 64, 3, 0, 33])
    probes = np.stack([trace(seed) for seed in range(8)])
    garbage = np.where(np.arange(64) < lengths[:, None], probes, 7.0)  # the pad must not be read
    batch = describe(garbage, lengths)
    for row, n in enumerate(lengths):
        single = describe(probes[row, :n][None, :], np.array([n]))
        for name in ("num_measured", "sum_nats", "trend", "avnr", "avnr_sample"):
            a, b = getattr(batch, name)[row], getattr(single, name)[0]
            # A padded row sums in another order: agreement to rounding.
            assert (np.isnan(a) and np.isnan(b)) or a == pytest.approx(b, rel=1e-13, abs=1e-13)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=30))
def test_average_ranks_equal_scipy(values):
    row = np.array([values], dtype=np.float64)
    assert np.array_equal(average_ranks(row, np.ones_like(row, dtype=bool))[0], stats.rankdata(values))
