"""Expected-reduction estimators against direct computation."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from controllers.scheduling.expected_reduction import Ewma, Kalman, LastDrop
from tests.controllers.scheduling.queue_plant import observation
from workbench.errors import InputError


def feed(estimator: object, values: list[float]) -> list[float]:
    state, out = estimator.init(1), []
    for step, h in enumerate(values):
        obs = observation(1, step, measured=not np.isnan(h), entropy_raw_nats=h)
        state, expected = estimator.step(state, obs)
        out.append(float(expected[0]))
    return out


def test_last_drop_and_ewma() -> None:
    trace = [3.0, 2.0, 2.5, np.nan, 1.5]
    np.testing.assert_allclose(feed(LastDrop(), trace), [np.nan, 1.0, 0.0, 0.0, 1.0])
    np.testing.assert_allclose(feed(Ewma(weight=0.5), trace), [np.nan, 1.0, 0.5, 0.5, 0.75])


def test_kalman_is_the_expectation_under_its_own_model() -> None:
    q, r = 0.3, 1.2
    trace = [2.0, 3.5, 1.0, 1.2, 4.0]
    got = feed(Kalman(level_variance_nats2=q, noise_variance_nats2=r), trace)
    level, variance = trace[0], r
    for k, h in enumerate(trace):
        if k:
            prior = variance + q
            level += prior / (prior + r) * (h - level)
            variance = prior * r / (prior + r)
        s = np.sqrt(variance + q + r)
        expected = quad(lambda x, h=h, level=level, s=s: max(0.0, h - x) * norm.pdf(x, level, s), -40, 40, limit=400)[0]
        assert got[k] == pytest.approx(expected, abs=1e-6)


def test_fit_recovers_the_variances() -> None:
    rng = np.random.default_rng(0)
    traces = []
    for _ in range(30):
        level = 3.0 + np.cumsum(rng.normal(0, 0.2, 200))
        traces.append(level + rng.normal(0, 1.0, 200))
    fit = Kalman.fitted(traces)
    assert fit.level_variance_nats2 == pytest.approx(0.04, rel=0.25)
    assert fit.noise_variance_nats2 == pytest.approx(1.0, rel=0.1)


def test_kalman_predicts_drops_better_than_the_last_drop_on_noise_around_a_level() -> None:
    rng = np.random.default_rng(1)
    trace = list(2.0 + 0.7 * rng.standard_normal(2000))
    actual = np.maximum(0.0, np.array(trace[:-1]) - np.array(trace[1:]))
    errors = []
    for estimator in (Kalman(level_variance_nats2=1e-4, noise_variance_nats2=0.5), Ewma(), LastDrop()):
        guess = np.array(feed(estimator, trace))[:-1]
        known = ~np.isnan(guess)
        errors.append(np.mean((guess - actual)[known] ** 2))
    assert errors[0] < errors[1] < errors[2]


def test_refusals() -> None:
    for bad in (0.0, 1.5, np.nan):
        with pytest.raises(InputError, match=r"Ewma\.weight"):
            Ewma(weight=bad)
    with pytest.raises(InputError, match=r"Kalman\.noise"):
        Kalman(noise_variance_nats2=0.0)
    with pytest.raises(InputError, match="at least 10"):
        Kalman.fitted([np.array([1.0, 2.0])])


def test_fitted_ewma_is_the_weight_of_least_error() -> None:
    rng = np.random.default_rng(2)
    level = np.abs(np.cumsum(rng.normal(0.0, 0.4, (6, 200)), axis=1)) + 1.0  # drops whose size wanders
    traces = [row + rng.normal(0.0, 0.2 * row) for row in level]

    def error(weight: float) -> float:
        total = 0.0
        for trace in traces:
            drops = np.maximum(0.0, trace[:-1] - trace[1:])
            mean = drops[0]
            for drop in drops[1:]:
                total += (drop - mean) ** 2
                mean += weight * (drop - mean)
        return total

    best = Ewma.fitted(traces).weight
    assert error(best) <= min(error(w) for w in np.geomspace(1e-3, 1.0, 60)) + 1e-6
