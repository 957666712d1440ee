"""Rules on confidence: threshold, factor, stability (KLASS)."""

import numpy as np
import pytest

from controllers.unmasking.confidence_factor import ConfidenceFactor
from controllers.unmasking.confidence_threshold import ConfidenceThreshold
from controllers.unmasking.klass import KLASS
from tests.controllers.unmasking.observed import decide, observe, taken
from workbench.errors import InputError


def test_threshold_takes_all_that_reach_it():
    confidence = [0.95, 0.2, 0.9, 0.89]
    assert decide(ConfidenceThreshold(threshold=0.9), observe(np.ones(4), confidence=confidence)) == [0, 2]


def test_threshold_out_of_reach_still_makes_progress():
    assert decide(ConfidenceThreshold(threshold=0.999), observe(np.ones(4), confidence=[0.5, 0.5, 0.6, 0.5])) == [2]


def brute_factor(confidence, factor):
    c = np.sort(confidence)[::-1]
    return max([n for n in range(1, c.size + 1) if (n + 1) * (1 - c[n - 1]) < factor], default=1)


def test_factor_agrees_with_its_definition():
    rng = np.random.default_rng(0)
    for _ in range(300):
        confidence = 1.0 - rng.exponential(0.1, 12).clip(0, 0.9)
        factor = rng.uniform(0.05, 2.0)
        count = brute_factor(confidence, factor)
        got = decide(ConfidenceFactor(factor=factor), observe(np.ones(12), confidence=confidence))
        assert got == sorted(np.argsort(-confidence, kind="stable")[:count].tolist())


def test_stability_needs_its_history():
    policy = KLASS(confidence=0.9, divergence_nats=0.01, history=2, fallback=1)
    state = policy.init(1)
    confidence = [0.95, 0.96, 0.5, 0.99]
    divergences = [np.full(4, np.nan), np.array([0.001, 0.5, 0.001, 0.001]), np.array([0.001, 0.001, 0.001, 0.5])]
    got = []
    for k, divergence in enumerate(divergences):
        observation = observe(np.ones(4), confidence=confidence, divergence=divergence, iteration=k)
        state, action = policy.step(state, observation)
        got.append(taken(action, observation))
    # Nothing is stable for two passes before the third; then only position 0 is sure and still.
    assert got == [[3], [3], [0]]


@pytest.mark.parametrize(
    "build",
    [
        lambda: ConfidenceThreshold(threshold=0.0),
        lambda: ConfidenceThreshold(threshold=1.1),
        lambda: ConfidenceFactor(factor=0.0),
        lambda: KLASS(confidence=0.0),
        lambda: KLASS(divergence_nats=0.0),
        lambda: KLASS(history=0),
    ],
)
def test_refuse_numbers_out_of_range(build):
    with pytest.raises(InputError):
        build()
