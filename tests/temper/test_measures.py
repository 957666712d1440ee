"""Settling, overshoot, matched constants and intervals against cases worked out by hand."""

import numpy as np
import pytest

from workbench.temper.measures import (
    ConstantGrid,
    bootstrap_indices,
    distinct_3,
    drift_nats,
    mean_interval,
    spread_interval,
    step_response,
    tracking_nats,
    trailing_mean,
    variation_nats,
)


def test_trailing_mean_is_a_mean_of_sixteen() -> None:
    h = np.random.default_rng(0).uniform(0, 3, (5, 80))
    mean = trailing_mean(h)
    assert mean[50] == pytest.approx(h[:, 35:51].mean())
    assert mean[3] == pytest.approx(h[:, :4].mean())


def test_step_response_of_a_ramp_with_overshoot() -> None:
    """1 up to token 128, then a linear rise to 2.6 in 40 tokens, down to 2 by token 208 and flat."""
    k = np.arange(256)
    h = np.interp(k, [0, 128, 168, 190, 255], [1.0, 1.0, 2.6, 2.0, 2.0])
    got = step_response(np.tile(h, (3, 1)), 128, 1.0, 2.2)
    curve = trailing_mean(h[None, :])
    final = h[-64:].mean()
    assert got.final_error_nats == pytest.approx(final - 2.2)
    assert got.overshoot_nats == pytest.approx(curve[128:].max() - final)
    inside = np.abs(curve[128:] - final) <= 0.25
    assert got.settle_tokens == np.flatnonzero(~inside)[-1] + 1


def test_doing_nothing_settles_at_once_and_shows_its_distance() -> None:
    got = step_response(np.full((4, 256), 1.7), 128, 1.0, 2.0)
    assert (got.settle_tokens, got.overshoot_nats) == (0.0, 0.0)
    assert got.final_error_nats == pytest.approx(-0.3)


def test_overshoot_of_a_step_down_counts_below() -> None:
    h = np.r_[np.full(128, 2.0), np.full(30, 0.2), np.full(98, 1.0)]
    got = step_response(np.tile(h, (2, 1)), 128, 2.0, 1.0)
    assert got.overshoot_nats == pytest.approx(0.8, abs=1e-9)
    assert step_response(np.tile(h, (2, 1)), 128, 1.0, 2.0).overshoot_nats == pytest.approx(1.0 - 1.0 / 16, abs=0.1)


def test_a_law_that_never_settles_is_undefined_not_zero() -> None:
    h = np.r_[np.full(128, 1.0), np.tile([0.0] * 20 + [3.0] * 20, 4)[:128]]
    assert step_response(h[None, :], 128, 1.0, 2.0).settle_tokens > 100


def test_per_prompt_figures() -> None:
    h = np.array([[1.0, 2.0, 1.0, 2.0], [0.0, 0.5, 1.0, 1.5]])
    np.testing.assert_allclose(tracking_nats(h, 1.0), [0.5, 0.5])
    np.testing.assert_allclose(variation_nats(h), [1.0, 0.5])
    np.testing.assert_allclose(drift_nats(h), [20.0, 50.0])
    np.testing.assert_allclose(distinct_3(np.array([[1, 2, 3, 1, 2, 3], [1, 1, 1, 1, 1, 1]])), [3 / 4, 1 / 4])


def test_intervals_cover_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for k in range(200):
        x = rng.normal(0.0, 1.0, 30)
        e = mean_interval(x, bootstrap_indices(30, k))
        hits += e.low <= 0.0 <= e.high
    assert 0.88 <= hits / 200 <= 0.98
    spread = spread_interval(rng.normal(0.0, 2.0, 400), bootstrap_indices(400))
    assert spread.low < 2.0 < spread.high


def test_matched_constant_by_interpolation() -> None:
    """Texts with H = c T: the constant of equal mean H is found, and a law that *is* a constant shows no difference."""
    c = np.random.default_rng(1).uniform(0.5, 2.0, 12)
    temperatures = np.array([0.5, 0.7, 1.0, 1.4])
    grid = ConstantGrid(np.log(temperatures), temperatures[:, None] * c)
    everyone = np.arange(12)
    assert np.exp(grid.matched(0.7 * c, everyone)) == pytest.approx(0.7)
    assert np.isnan(grid.matched(9.0 * c, everyone))
    indices = bootstrap_indices(12)
    same = grid.difference(3.0 * 0.7 * c, 3.0 * temperatures[:, None] * c, 0.7 * c, indices)
    assert same.value == pytest.approx(0.0, abs=1e-12)
    assert same.low == pytest.approx(0.0, abs=1e-9)
    better = grid.difference(3.0 * 0.7 * c - 0.4, 3.0 * temperatures[:, None] * c, 0.7 * c, indices)
    assert better.high < 0.0
    assert better.value == pytest.approx(-0.4)
