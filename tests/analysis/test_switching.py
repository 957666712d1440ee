"""Invariant polytopes, joint spectral radius and Lyapunov functions against random switchings and known values."""

import copy
from fractions import Fraction

import numpy as np
import pytest

from workbench.analysis.certificates.pi_lyapunov import LOOPS, _matrices
from workbench.analysis.certificates.switching import CRITICAL, decode, pattern_multiplier, prove_limit
from workbench.analysis.closed_loop import proportional_integral, simulate
from workbench.analysis.invariant_polytope import Polytope, grow, is_invariant, with_images
from workbench.analysis.joint_spectral_radius import best_product, radius_is_at_least, switching_matrix
from workbench.analysis.lyapunov import common_quadratic, decreases
from workbench.analysis.surd import Surd


def test_known_joint_spectral_radius():
    """The pair [[1,1],[0,1]], [[1,0],[1,1]] has radius equal to the golden ratio, attained by alternating."""
    a = [[Fraction(1), Fraction(1)], [Fraction(0), Fraction(1)]]
    b = [[Fraction(1), Fraction(0)], [Fraction(1), Fraction(1)]]
    golden = (1 + 5**0.5) / 2
    lower, word = best_product([a, b], 6)
    assert lower == pytest.approx(golden, rel=1e-12)
    assert sorted(word) == [0, 1]
    assert radius_is_at_least([a, b], word, Fraction(int(golden * 10**9), 10**9))
    assert not radius_is_at_least([a, b], word, Fraction(int(golden * 10**9) + 2, 10**9))
    rate = Fraction(int(golden * 1.01 * 10**6), 10**6)
    vertices = grow([a, b], [[Fraction(1), Fraction(0)], [Fraction(0), Fraction(1)]], rate)
    assert is_invariant([a, b], with_images([a, b], vertices), rate)


@pytest.mark.parametrize("delay", [1, 2, 3])
def test_polytope_norm_never_grows_under_any_switching(delay):
    """At the critical gain, random switchings and mixtures keep every state inside the hull (by linear programming)."""
    from scipy.optimize import linprog

    a, b, m = CRITICAL[delay]
    gain = float(Surd(Fraction(a), Fraction(b), m))
    witness = prove_limit((delay,))
    vertices = np.array(
        [[float(x) for x in v] for v in decode(witness["evidence"][str(delay)]["polytope"], m).vertices]
    ).T
    rng = np.random.default_rng(3)

    def norm(x):
        n = vertices.shape[1]
        found = linprog(np.ones(2 * n), A_eq=np.hstack([vertices, -vertices]), b_eq=x, bounds=(0, None))
        return found.fun

    for _ in range(20):
        x = rng.normal(size=delay + 1)
        before = norm(x)
        for _ in range(5):
            g = gain * rng.choice([0.0, 1.0, rng.uniform()])
            x = np.array([x[0] - g * x[-1], *x[:-1]])
            after = norm(x)
            assert after <= before * (1 + 1e-9)
            before = after


@pytest.mark.parametrize(("delay", "word"), [(1, (0, 1, 1)), (2, (0, 0, 1, 1, 1, 1)), (3, (0, 0, 0, 1, 1, 1, 1, 1, 1))])
def test_patterns_just_above_the_critical_gain_diverge_in_simulation(delay, word):
    a, b, m = CRITICAL[delay]
    critical = float(Surd(Fraction(a), Fraction(b), m))
    for factor, grows in ((1.02, True), (0.98, False)):
        gain = critical * factor
        path = simulate(proportional_integral(0.0, gain), list(map(float, word)) * 120, delay)
        assert (np.abs(path[-20:]).max() > 1.0) == grows
        assert (abs(pattern_multiplier(gain, delay, list(word))) > 1.0) == grows


def test_no_short_pattern_beats_the_critical_gain():
    """All switchings up to length 12 just below it: no product grows."""
    for delay in (1, 2, 3):
        a, b, m = CRITICAL[delay]
        gain = Fraction(int(float(Surd(Fraction(a), Fraction(b), m)) * 10**6) - 1, 10**6)
        lower, _ = best_product([switching_matrix(Fraction(0), delay), switching_matrix(gain, delay)], 12)
        assert lower <= 1.0 + 1e-9


def test_a_polytope_with_one_wrong_coefficient_is_rejected():
    matrices = [switching_matrix(Fraction(0), 1), switching_matrix(Fraction(9, 10), 1)]
    vertices = grow(matrices, [[Fraction(1), Fraction(1)]], Fraction(1))
    polytope = with_images(matrices, vertices)
    assert is_invariant(matrices, polytope, Fraction(1))
    images = copy.deepcopy(polytope.images)
    index, coefficient = images[1][0][0]
    images[1][0][0] = (index, coefficient / 2)
    assert not is_invariant(matrices, Polytope(polytope.vertices, images), Fraction(1))
    assert not is_invariant(matrices, Polytope(polytope.vertices[:1], polytope.images), Fraction(1))
    flat = Polytope([[Fraction(1), Fraction(1)]], [[[(0, Fraction(1))]], [[(0, Fraction(1))]]])
    assert not is_invariant([matrices[0], matrices[0]], flat, Fraction(1)), "a segment is no norm's unit ball"


def test_lyapunov_rate_holds_for_random_switching_and_is_near_the_frozen_radius():
    loop = LOOPS[0]
    law = proportional_integral(Fraction(loop["k_p"]), Fraction(loop["k_i"]))
    found = common_quadratic(law, Fraction(loop["low"]), Fraction(loop["high"]), 0)
    matrices = _matrices(loop)
    assert decreases(found.p, matrices, found.rate)
    frozen = max(np.abs(np.linalg.eigvals(np.array(a, dtype=float))).max() for a in matrices)
    assert frozen <= float(found.rate) <= frozen + 0.01
    p, rng = np.array(found.p, dtype=float), np.random.default_rng(0)
    ends = [np.array(a, dtype=float) for a in matrices]
    for _ in range(200):
        mix = rng.uniform()
        x = rng.normal(size=2)
        y = (mix * ends[0] + (1 - mix) * ends[1]) @ x
        assert y @ p @ y <= float(found.rate) ** 2 * (x @ p @ x) * (1 + 1e-9)


def test_no_lyapunov_function_beyond_the_switching_limit():
    """At delay 2 and k_i V_max = 0.60 some switching diverges, so the LMI must fail although frozen V settles."""
    assert (
        common_quadratic(proportional_integral(Fraction(0), Fraction(3, 5)), Fraction(1, 1000), Fraction(1), 2) is None
    )
