"""Entropy from the top k: brackets, direction of error, and every temperature law fed with each."""

import numpy as np
import pytest

from controllers.estimators import (
    Bracket,
    Estimator,
    Exact,
    TailCorrected,
    TopK,
    log_probabilities,
    top_log_probabilities,
)
from controllers.temperature.anchored import AnchoredI
from controllers.temperature.gain_scheduled import GainScheduled
from controllers.temperature.pi import PITemperature
from controllers.temperature.pid import PIDTemperature
from controllers.temperature.positional import PositionalPI
from tests.controllers.temperature.closed_loop import observation
from workbench.errors import InputError
from workbench.signals import entropy_and_varentropy

N = 2000
ROWS = np.random.default_rng(0).normal(0.0, 1.0, (40, N)) * np.linspace(0.3, 6.0, 40)[:, None]


@pytest.mark.parametrize("k", [1, 2, 5, 20, 100, 1999, 2000])
def test_bracket_holds_and_renormalised_top_k_never_exceeds_its_lower_end(k: int) -> None:
    h, _ = entropy_and_varentropy(ROWS)
    top = top_log_probabilities(ROWS, k)
    for estimator in (TopK(k=k), TailCorrected(k=k), Bracket(k=k)):
        got = estimator.estimate(top, N)
        assert np.all(got.lower_nats <= h + 1e-9)
        assert np.all(h <= got.upper_nats + 1e-9)
        if not isinstance(estimator, TopK):
            assert np.all((got.lower_nats - 1e-12 <= got.entropy_nats) & (got.entropy_nats <= got.upper_nats + 1e-12))
    renormalised = TopK(k=k).estimate(top, N)
    assert np.all(renormalised.entropy_nats <= renormalised.lower_nats + 1e-9)
    if k == N:
        np.testing.assert_allclose(Bracket(k=k).estimate(top, N).entropy_nats, h, atol=1e-9)
        assert np.all(Bracket(k=k).estimate(top, N).upper_nats == Bracket(k=k).estimate(top, N).lower_nats)


def test_exact_equals_the_signal_definitions() -> None:
    h, v = entropy_and_varentropy(ROWS, 0.7)
    got = Exact().estimate(log_probabilities(ROWS, 0.7), N)
    np.testing.assert_allclose(got.entropy_nats, h, atol=1e-10)
    np.testing.assert_allclose(got.varentropy_nats2, v, atol=1e-8)


def test_renormalised_entropy_is_that_of_the_renormalised_distribution() -> None:
    top = top_log_probabilities(ROWS, 20)
    h, v = entropy_and_varentropy(top)
    got = TopK(k=20).estimate(top, N)
    np.testing.assert_allclose(got.entropy_nats, h, atol=1e-10)
    np.testing.assert_allclose(got.varentropy_nats2, v, atol=1e-8)


def test_tail_correction_is_exact_enough_on_a_power_law_and_beats_the_others() -> None:
    z = -1.2 * np.log(np.arange(1, N + 1.0))[None, :]
    h, v = entropy_and_varentropy(z)
    top = top_log_probabilities(z, 20)
    tail = TailCorrected(k=20).estimate(top, N)
    assert abs(tail.entropy_nats[0] - h[0]) < 0.01
    assert abs(tail.varentropy_nats2[0] / v[0] - 1.0) < 0.02
    for other in (TopK(k=20), Bracket(k=20)):
        assert abs(other.estimate(top, N).entropy_nats[0] - h[0]) > 0.1


def test_tail_correction_can_err_either_way() -> None:
    h, _ = entropy_and_varentropy(ROWS)
    error = TailCorrected(k=20).estimate(top_log_probabilities(ROWS, 20), N).entropy_nats - h
    assert error.min() < 0.0 < error.max()


def test_processed_values_are_refused() -> None:
    logp = top_log_probabilities(ROWS, 20)
    with pytest.raises(InputError, match="not processed"):
        Bracket(k=20).estimate(logp / 2.0, N)  # "undoing" T by dividing is no distribution
    with pytest.raises(InputError, match="clip k"):
        Bracket(k=21).estimate(np.zeros((1, 21)) - 5.0, 20)
    with pytest.raises(InputError, match="use Bracket"):
        Exact().estimate(logp, N)
    for kind in (TopK, TailCorrected, Bracket):
        for k in (0, -1):
            with pytest.raises(InputError, match="k must be at least 1"):
                kind(k=k)


def tracking_error(law: object, estimator: Estimator, num_tokens: int = 120) -> float:
    """Mean |H - H*| over rows of drifting logits when the law is fed with the estimator's H and V."""
    rng = np.random.default_rng(3)
    z = rng.normal(0.0, 1.0, (16, N)) * rng.uniform(1.0, 4.0, (16, 1))
    state, told, errors = law.init(16), {}, []
    for token in range(num_tokens):
        z = z + 0.02 * rng.normal(0.0, 1.0, z.shape)
        state, action = law.step(state, observation(16, token, **told))
        logp = -np.sort(-log_probabilities(z, action.temperature), axis=1)
        got = estimator.estimate(logp, N)
        told = {
            "measured": True,
            "measured_step": token,
            "entropy_nats": got.entropy_nats,
            "varentropy_nats2": got.varentropy_nats2,
            "temperature_applied": action.temperature,
        }
        if token > 40:
            errors.append(np.abs(entropy_and_varentropy(z, action.temperature)[0] - law.target_entropy_nats).mean())
    return float(np.mean(errors))


@pytest.mark.parametrize("law", [PITemperature, PositionalPI, PIDTemperature, AnchoredI, GainScheduled])
def test_every_law_runs_on_every_estimator_and_tracking_is_lost_as_k_falls(law: type) -> None:
    controller = law(target_entropy_nats=3.0, vocab_size=N, temperature_max=4.0)
    exact = tracking_error(controller, Exact())
    assert exact < 0.15
    renormalised = [tracking_error(controller, TopK(k=k)) for k in (10, 100, 1000)]
    assert renormalised[0] > renormalised[1] > renormalised[2] >= exact - 1e-3
    corrected = tracking_error(controller, TailCorrected(k=100))
    assert corrected < renormalised[1]
    assert tracking_error(controller, Bracket(k=1000)) < 2.0
