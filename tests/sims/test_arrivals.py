"""Arrival processes against their means and variances, generators against the trace they imitate."""

import numpy as np
import pytest
from scipy.stats import kstest, spearmanr

from sims.arrivals import (
    KindMix,
    azure_like,
    gamma_arrivals,
    modulated_arrivals,
    poisson_arrivals,
    requests_at,
    requests_from_trace,
)
from sims.traces import Trace, read_trace
from workbench.errors import InputError

TRACE = Trace(
    name="four",
    arrival_s=np.array([0.0, 1.0, 3.0, 6.0]),
    prompt_tokens=np.array([10, 20, 30, 40]),
    output_tokens=np.array([1, 2, 3, 4]),
)


def test_slicing_starts_at_zero_and_scaling_keeps_lengths():
    spec = requests_from_trace(TRACE, first=1, count=2, rate_multiplier=4.0)
    assert spec.arrival_s.tolist() == [0.0, 0.5]
    assert spec.prompt_tokens.tolist() == [20, 30]
    scaled = requests_from_trace(TRACE, rate_per_s=3.0)
    assert (len(scaled) - 1) / scaled.arrival_s[-1] == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"first": 4}, "is empty"),
        ({"count": 0}, "is empty"),
        ({"rate_multiplier": 0.0}, "rate_multiplier"),
        ({"rate_per_s": -1.0}, "rate_per_s"),
        ({"count": 1, "rate_per_s": 1.0}, "no rate to scale"),
    ],
)
def test_impossible_slices_and_rates_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        requests_from_trace(TRACE, **options)


def test_poisson_gaps_are_exponential():
    gaps = np.diff(poisson_arrivals(20_000, 4.0, seed=3))
    assert kstest(gaps, "expon", args=(0, 0.25)).pvalue > 0.01


@pytest.mark.parametrize("cv", [0.25, 3.0])
def test_gamma_gaps_have_their_mean_and_spread(cv):
    gaps = np.diff(gamma_arrivals(60_000, 2.0, cv, seed=5))
    assert gaps.mean() == pytest.approx(0.5, rel=4 * cv / np.sqrt(60_000))
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)


def test_modulated_arrivals_have_the_mean_rate_and_are_burstier_than_poisson():
    times = modulated_arrivals(60_000, (1.0, 9.0), dwell_s=20.0, seed=7)
    assert np.all(np.diff(times) >= 0.0)
    assert 60_000 / times[-1] == pytest.approx(5.0, rel=0.06)
    counts = np.histogram(times, np.arange(0.0, times[-1], 10.0))[0]
    # Variance of counts over mean is 1 for Poisson. Here, for windows of w and mean dwell m in each of two states, it is
    # 1 + 2 (d / 2)^2 (m / 2) (1 - (m / 2w) (1 - exp(-2 w / m))) / mean rate, with d the rate difference.
    m, w, half = 20.0, 10.0, 4.0
    expected = 1 + 2 * half**2 * (m / 2) * (1 - (m / 2 / w) * (1 - np.exp(-2 * w / m))) / 5.0
    assert counts.var() / counts.mean() == pytest.approx(expected, rel=0.1)


def test_asking_for_more_requests_never_changes_the_first():
    few, many = (azure_like("azure-conversation", n, seed=11) for n in (20, 200))
    for name in ("arrival_s", "prompt_tokens", "output_tokens", "kind"):
        np.testing.assert_array_equal(getattr(few, name), getattr(many, name)[:20])


def test_generated_requests_match_the_trace_they_imitate(shared_data):
    for name, file in (("azure-code", "code"), ("azure-conversation", "conv")):
        real = read_trace(shared_data / "traces" / "azure_llm_2023" / f"AzureLLMInferenceTrace_{file}.csv")
        made = azure_like(name, 20_000, seed=1)
        for part in ("prompt_tokens", "output_tokens"):
            a, b = getattr(real, part), getattr(made, part)
            assert b.mean() == pytest.approx(a.mean(), rel=0.03)
            np.testing.assert_allclose(np.quantile(b, [0.1, 0.5, 0.9]), np.quantile(a, [0.1, 0.5, 0.9]), rtol=0.06)
        gaps, truth = np.diff(made.arrival_s), np.diff(real.arrival_s)
        np.testing.assert_allclose(np.quantile(gaps, [0.25, 0.5, 0.9]), np.quantile(truth, [0.25, 0.5, 0.9]), rtol=0.1)
        assert gaps.mean() == pytest.approx(truth.mean(), rel=0.25 if name == "azure-code" else 0.05)


def test_kinds_have_their_shares_and_follow_length_when_coupled():
    output = azure_like("azure-conversation", 30_000, seed=2).output_tokens
    mix = KindMix(names=("copy", "code", "creative"), weights=(1.0, 2.0, 1.0))
    shares = np.bincount(mix.draw(9, output), minlength=3) / output.size
    np.testing.assert_allclose(shares, [0.25, 0.5, 0.25], atol=0.01)
    assert abs(spearmanr(mix.draw(9, output), output)[0]) < 0.02
    coupled = KindMix(names=mix.names, weights=mix.weights, length_coupling=0.8)
    assert 0.6 < spearmanr(coupled.draw(9, output), output)[0] < 0.8


@pytest.mark.parametrize(
    "options",
    [
        {"names": ("a", "b"), "weights": (1.0,)},
        {"names": ("a", "a"), "weights": (1.0, 1.0)},
        {"weights": (0.0,)},
        {"weights": (float("nan"),)},
        {"length_coupling": 1.5},
    ],
)
def test_impossible_mixes_are_refused(options):
    with pytest.raises(InputError, match="KindMix"):
        KindMix(**options)


def test_bad_generators_are_refused():
    with pytest.raises(InputError, match="azure-code"):
        azure_like("azure-cod", 5)
    with pytest.raises(InputError, match="count"):
        azure_like("azure-code", 0)
    with pytest.raises(InputError, match="two rates"):
        modulated_arrivals(5, (1.0,), 1.0, 0)
    with pytest.raises(InputError, match="gap_cv"):
        gamma_arrivals(5, 1.0, 0.0, 0)
    with pytest.raises(InputError, match="sorted"):
        requests_at(np.array([1.0, 0.0]), np.array([1, 1]), np.array([1, 1]))
    with pytest.raises(InputError, match="at least 1 token"):
        requests_at(np.array([0.0]), np.array([1]), np.array([0]))
