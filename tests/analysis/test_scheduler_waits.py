"""The exhaustive scheduler against a direct simulation with random adversaries, and the published example."""

from fractions import Fraction

import numpy as np
import pytest

from workbench.analysis.certificates.scheduler import STARVING, run_schedule, wait_bound, worst_wait


@pytest.mark.parametrize(("n", "b", "ratio"), [(3, 1, Fraction(1)), (4, 2, Fraction(2)), (4, 1, Fraction(1, 2))])
def test_random_adversaries_never_wait_longer_than_the_exhausted_worst(n, b, ratio):
    worst = worst_wait(n, b, ratio, stop_above=100)
    assert worst <= wait_bound(n, b, ratio)
    rng, seen = np.random.default_rng(2), 0
    age = np.ones(n, dtype=int)
    for _ in range(20_000):
        score = rng.choice([0.0, float(ratio)], size=n) + age
        batch = np.argsort(-score - 1e-6 * rng.uniform(size=n))[:b]
        seen = max(seen, int(age[batch].max()))
        age += 1
        age[batch] = 1
    assert seen <= worst
    assert seen >= worst - 1, "random search should come close to the exhausted worst case"


def test_the_example_with_thirty_two_requests():
    """P = 2, alpha = 0.1, N = 32, B = 8: bound 20 + 4 + 1; hot ones always score P, the cold one 0."""
    assert wait_bound(32, 8, Fraction(20)) == 25
    alpha, score, waited = 0.1, 2.0, 0
    age = np.zeros(31)
    for step in range(200):
        hot = score + alpha * age
        if (hot > alpha * step).sum() < 8:
            waited = step
            break
        batch = np.argsort(-hot, kind="stable")[:8]
        age += 1
        age[batch] = 0
    assert 20 <= waited <= 25


def test_with_aging_the_cold_request_is_served_and_without_it_never():
    case = STARVING["no aging"]
    assert not any(s.cold_served for s in run_schedule(case, 5000))
    aged = run_schedule({**case, "alpha": "1/10"}, 60)
    assert next(i for i, s in enumerate(aged) if s.cold_served) <= wait_bound(3, 2, Fraction(20))


def test_bypass_starves_and_its_absence_does_not():
    case = STARVING["bypass"]
    assert not any(s.cold_served for s in run_schedule(case, 5000))
    assert any(s.cold_served for s in run_schedule({**case, "bypass": False}, 60))
