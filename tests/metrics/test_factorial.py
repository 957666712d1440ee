"""Main effects and interactions against least squares, and identical arms said to be identical."""

import itertools

import numpy as np
import pytest

from workbench.metrics.arm import ARM_CODES, ArmSample, arm_code, arm_label
from workbench.metrics.factorial import EFFECTS, changes, effects
from workbench.metrics.table import METRICS


def samples_of(values: np.ndarray) -> dict[str, ArmSample]:
    """`values` [arms, seeds] as metric 0 of eight arms; every other metric is undefined."""
    seeds = tuple(range(values.shape[1]))
    found = {}
    for row, code in zip(values, ARM_CODES, strict=True):
        seed_values = np.full((len(seeds), len(METRICS)), np.nan)
        seed_values[:, 0] = row
        reasons = (None,) * len(METRICS)
        found[code] = ArmSample(seeds, seed_values, np.empty((len(seeds), 0, len(METRICS))), reasons, {"completed": 99})
    return found


def test_effects_are_twice_the_least_squares_coefficients() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(10.0, 1.0, (8, 4))
    signs = {code: [1.0 if letter in code else -1.0 for letter in "STP"] for code in ARM_CODES}
    design = np.array(
        [[1.0] + [np.prod([signs[c]["STP".index(x)] for x in e]) for e in EFFECTS] for c in ARM_CODES for _ in range(4)]
    )
    coefficients = np.linalg.lstsq(design, values.ravel(), rcond=None)[0][1:]
    samples = samples_of(values)
    found = effects(samples)
    assert [found[name][0].difference.value for name in EFFECTS] == pytest.approx(list(2.0 * coefficients))


def test_a_planted_interaction_is_found_and_the_rest_covers_zero() -> None:
    rng = np.random.default_rng(3)
    common = rng.normal(0.0, 5.0, 6)  # common random numbers: the same for every arm
    values = np.stack(
        [10.0 - 2.0 * ("P" in c) + 1.0 * ("S" in c and "T" in c) + common + rng.normal(0, 0.02, 6) for c in ARM_CODES]
    )
    found = effects(samples_of(values))
    pruning, both, three = (found[name][0] for name in ("P", "ST", "STP"))
    assert pruning.difference.value == pytest.approx(-2.0, abs=0.05)
    assert both.difference.value == pytest.approx(0.5, abs=0.05)
    assert pruning.difference.covers_zero is False
    assert three.difference.value == pytest.approx(0.0, abs=0.05)


def test_identical_arms_are_an_exact_zero() -> None:
    values = np.tile(np.array([1.1, 2.2, 3.3]), (8, 1))
    found = changes(samples_of(values), "S")[0]
    assert found.identical
    assert (found.relative.low, found.relative.value, found.relative.high) == (0.0, 0.0, 0.0)


def test_undefined_metrics_stay_undefined() -> None:
    found = changes(samples_of(np.ones((8, 3))), "S")[1]
    assert not found.identical
    assert found.difference.value is None
    assert found.relative.reason


def test_seeds_pair_by_number_and_unshared_ones_are_left_out() -> None:
    samples = samples_of(np.stack([np.array([1.0, 2.0, 3.0, 4.0]) * (k + 1) for k in range(8)]))
    full = samples["S"]
    samples["S"] = ArmSample((1, 2, 3), full.seed_values[1:], full.batch_values[1:], full.reasons, full.counts)
    found = changes(samples, "S")[0]
    assert found.difference.value == pytest.approx(3.0)
    assert found.difference.num_replicates == 3


def test_codes_and_labels_name_all_eight_arms() -> None:
    names = ("scheduler", "temperature", "pruning")
    codes = {arm_code(dict(zip(names, on, strict=True))) for on in itertools.product((False, True), repeat=3)}
    assert codes == set(ARM_CODES)
    assert [arm_label(code) for code in ("-", "SP", "STP")] == ["none", "scheduler + pruning", "all three"]


def test_a_latency_cannot_fall_by_more_than_all_of_it() -> None:
    values = np.ones((8, 3))
    values[1] = [0.1, 0.9, 0.2]  # scattered: the symmetric interval would reach below -100 %
    found = changes(samples_of(values), "S")[0].relative
    assert found.low == -1.0
    assert found.high is not None
    assert found.high > 0.0
