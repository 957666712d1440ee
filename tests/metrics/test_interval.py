"""Intervals against scipy, and against the share of repetitions in which they cover the truth."""

import numpy as np
import pytest
from scipy import stats

from workbench.metrics.interval import interval, num_batches, relative_interval

NO_BATCHES = np.empty((0,))


def test_over_seeds_is_students_t() -> None:
    values = np.array([1.0, 1.3, 0.8, 1.1])
    found = interval(values, np.empty((4, 0)), None)
    low, high = stats.t.interval(0.95, 3, loc=values.mean(), scale=stats.sem(values))
    assert (found.value, found.low, found.high) == pytest.approx((values.mean(), low, high))
    assert found.method == "t, 4 seeds"


def test_one_seed_uses_batches_around_the_whole_runs_value() -> None:
    batches = np.array([[2.0, 3.0, 2.5, 3.5, 2.0]])
    found = interval(np.array([2.7]), batches, None)
    half = stats.t.ppf(0.975, 4) * np.sqrt(((batches - 2.7) ** 2).sum() / 4 / 5)
    assert (found.low, found.high) == pytest.approx((2.7 - half, 2.7 + half))
    assert found.method == "batch means, 5 batches"


def test_too_few_of_everything_is_a_value_without_interval() -> None:
    found = interval(np.array([2.7, 2.9]), np.empty((2, 0)), None)
    assert found.value == pytest.approx(2.8)
    assert found.low is None
    assert found.reason == "too few requests for an interval"
    assert interval(np.array([np.nan]), np.empty((1, 0)), "nothing completed").reason == "nothing completed"


def test_a_seed_without_a_value_is_said() -> None:
    found = interval(np.array([1.0, 1.2, 1.1, np.nan]), np.empty((4, 0)), "no request completed")
    assert found.num_replicates == 3
    assert found.reason == "undefined in 1 of 4 seeds: no request completed"


@pytest.mark.parametrize("num_requests", [0, 3, 15, 16, 79, 80, 10_000])
def test_batches_hold_at_least_four_requests(num_requests: int) -> None:
    count = num_batches(num_requests)
    assert count == 0 or (4 <= count <= 20 and num_requests // count >= 4)
    assert (count == 0) == (num_requests < 16)


def test_within_run_interval_covers_the_mean_of_independent_requests() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(2000):
        values = rng.exponential(2.0, 200)
        found = interval(np.array([values.mean()]), values.reshape(1, 20, 10).mean(axis=2), None)
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 2.0 <= found.high
    # 95 % with a standard error of 0.5 %; skewed batch means cost about one more point.
    assert 0.92 < covered / 2000 < 0.97


def test_relative_change_covers_and_profits_from_pairing() -> None:
    """Common noise of 30 % and a true change of -10 %: paired, the interval is narrow and honest."""
    rng = np.random.default_rng(2)
    covered, widths = 0, []
    for _ in range(2000):
        base = 1.0 + 0.3 * rng.standard_normal(5)
        arms = np.stack([base, 0.9 * base + 0.01 * rng.standard_normal(5)])
        found = relative_interval(arms, np.empty((2, 5, 0)), np.array([-1.0, 1.0]))
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= -0.1 <= found.high
        widths.append(found.high - found.low)
    assert 0.93 < covered / 2000 < 0.97
    assert np.median(widths) < 0.05  # unpaired, the noise alone would span about 0.7


def test_relative_change_of_a_negative_baseline_keeps_the_direction() -> None:
    arms = np.array([[-2.0, -2.2, -1.8], [-1.0, -1.1, -0.9]])
    assert relative_interval(arms, np.empty((2, 3, 0)), np.array([-1.0, 1.0])).value == pytest.approx(0.5)


def test_relative_change_of_a_zero_baseline_is_undefined() -> None:
    arms = np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    found = relative_interval(arms, np.empty((2, 3, 0)), np.array([-1.0, 1.0]))
    assert found.value is None
    assert found.reason == "the baseline is zero"
