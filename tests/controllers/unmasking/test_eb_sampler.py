import numpy as np
import pytest

from controllers.unmasking.eb_sampler import EBSampler
from tests.controllers.unmasking.observed import decide, observe
from workbench.errors import InputError


def brute(entropy, order, gamma):
    """The largest prefix with sum H - max H <= gamma, from the definition; at least one."""
    best = 1
    for k in range(1, len(order) + 1):
        h = entropy[order[:k]]
        if h.sum() - h.max() <= gamma:
            best = k
    return sorted(order[:best].tolist())


@pytest.mark.parametrize("name", ["entropy", "confidence", "margin"])
def test_agrees_with_its_definition(name):
    rng = np.random.default_rng(1)
    for _ in range(200):
        entropy = rng.exponential(0.2, 10)
        confidence = rng.uniform(0.3, 1.0, 10)
        runner_up = (1.0 - confidence) * rng.random(10)
        score = {"entropy": entropy, "confidence": -confidence, "margin": runner_up - confidence}[name]
        order = np.argsort(score, kind="stable")
        gamma = rng.uniform(0.0, 1.5)
        got = decide(
            EBSampler(gamma_nats=gamma, order=name), observe(entropy, confidence=confidence, runner_up=runner_up)
        )
        assert got == brute(entropy, order, gamma)


def test_refuses_bad_numbers():
    with pytest.raises(InputError, match="gamma_nats"):
        EBSampler(gamma_nats=-1.0)
    with pytest.raises(InputError, match="order"):
        EBSampler(order="random")  # type: ignore[arg-type]
