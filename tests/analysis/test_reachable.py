"""Reachable sets contain random runs; drift bounds hold on random logits; coupled loops against eigenvalues."""

import math
from fractions import Fraction

import numpy as np
import pytest

from workbench.analysis.ball import lower_rational, precision, upper_rational
from workbench.analysis.certificates.coupled import LOOP, SHAPES, _loop, _shapes
from workbench.analysis.coupling import CoupledLoops, simulate
from workbench.analysis.drift import drift_bound, ranges_of_logits
from workbench.analysis.reachable import BoundedLoop, reach
from workbench.errors import InputError
from workbench.signals import entropy_and_varentropy

CLAIM = {"loop": LOOP, "shapes": [list(levels) for levels, _ in SHAPES]}


@pytest.mark.parametrize("k_i", [Fraction(1, 40), Fraction(1, 25)], ids=["monotone", "not monotone"])
def test_random_runs_stay_in_the_reachable_sets(k_i):
    base = _loop(CLAIM)
    loop = BoundedLoop(k_i, *(getattr(base, f) for f in list(base.__dataclass_fields__)[1:]))
    shapes = _shapes(CLAIM)
    tokens = 30
    with precision(64):
        sets = reach(loop, shapes, tokens, pieces=24)
        ends = [(float(lower_rational(a)), float(upper_rational(b))) for a, b in sets]
    assert ends[-1][1] - ends[-1][0] < ends[0][1] - ends[0][0]
    rng = np.random.default_rng(11)
    for _ in range(20):
        u = rng.uniform(-0.7, 0.7)
        for k in range(tokens):
            levels = shapes[rng.integers(3)]
            z = np.array([float(level) for level, _ in levels])
            weight = np.array([math.log(count) for _, count in levels])
            x = z * math.exp(-u) + weight
            p = np.exp(x - x.max())
            p /= p.sum()
            entropy = float(-(p * (np.log(p) - weight)).sum())
            measured = entropy + rng.uniform(-0.1, 0.1)
            u = float(np.clip(u + float(k_i) * (3.0 - measured), -0.7, 0.7))
            assert ends[k + 1][0] - 1e-9 <= u <= ends[k + 1][1] + 1e-9


def test_drift_bound_holds_on_random_logits_and_counts_covered_tokens():
    rng = np.random.default_rng(5)
    logits = rng.normal(size=(60, 300)) * rng.uniform(0.5, 4.0, size=(60, 1))
    logits[40:45, 0] += 200.0  # near-deterministic tokens
    low, high, k_i, target = math.log(0.4), math.log(1.6), 0.05, 4.0
    tokens = ranges_of_logits(logits, target, np.linspace(low, high, 257))
    found = drift_bound(tokens, k_i)
    u = rng.uniform(low, high)
    for k, row in enumerate(logits):
        assert abs(u - tokens.log_temperature_solution[k]) <= found.bound[k] + 1e-4
        entropy = float(entropy_and_varentropy(row, math.exp(u))[0])
        u = float(np.clip(u + k_i * (target - entropy), low, high))
    assert found.covered_frac <= 55 / 60
    assert found.uniform_bound is None


def test_uniform_bound_where_every_token_is_covered():
    logits = np.random.default_rng(1).normal(size=(50, 200)) * 2.0
    tokens = ranges_of_logits(logits, 3.5, np.linspace(math.log(0.5), math.log(1.5), 129))
    found = drift_bound(tokens, 0.1)
    assert found.covered_frac == 1.0
    assert found.uniform_bound is not None
    assert found.bound[-1] <= found.rho.max() ** 50 * math.log(3.0) + found.uniform_bound + 1e-12


def test_drift_bound_refuses_bad_numbers():
    tokens = ranges_of_logits(np.zeros((2, 4)), 1.0, np.linspace(-1.0, 1.0, 5))
    with pytest.raises(InputError):
        drift_bound(tokens, 0.0)
    with pytest.raises(InputError):
        ranges_of_logits(np.zeros((2, 4)), 1.0, np.array([1.0]))


def test_small_gain_is_sufficient_everywhere_and_necessary_above_one():
    for g in np.linspace(0.05, 1.95, 39):
        for p in np.linspace(0.05, 0.95, 19):
            if abs(2 - g - 2 * p) < 1e-9 or abs(p - 0.5) < 1e-9:
                continue  # on the boundary floats decide nothing; the certificate does, exactly
            loops = CoupledLoops(float(g), float(p), reads_raw_entropy=False)
            if loops.small_gain():
                assert loops.spectral_radius() < 1.0
            elif g > 1.0:
                assert loops.spectral_radius() > 1.0


def test_the_counterexample_diverges_on_tempered_and_settles_on_raw_entropy():
    tempered = simulate(CoupledLoops(1.5, 0.3, reads_raw_entropy=False), 400)
    raw = simulate(CoupledLoops(1.5, 0.3, reads_raw_entropy=True), 400)
    assert np.abs(tempered[-1]).max() > 100.0
    assert np.abs(raw[-1]).max() < 1e-6
