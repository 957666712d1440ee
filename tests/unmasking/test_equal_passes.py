import numpy as np
import pytest

from workbench.errors import InputError
from workbench.unmasking.equal_passes import common_range, curve, paired_difference


def test_a_curve_linear_in_the_logarithm_is_read_exactly_and_never_beyond_its_ends():
    c = curve(np.array([16.0, 1.0, 4.0]), np.array([0.9, 0.1, 0.5]))
    assert c.at(2.0) == pytest.approx(0.3)
    assert c.at(8.0) == pytest.approx(0.7)
    with pytest.raises(InputError, match=r"\[1, 16\], got 17"):
        c.at(17.0)


def test_settings_of_equal_passes_are_averaged():
    c = curve(np.array([2.0, 4.0, 2.0]), np.array([0.2, 0.8, 0.4]))
    assert c.passes.tolist() == [2.0, 4.0]
    assert c.at(2.0) == pytest.approx(0.3)


def test_pairing_removes_what_a_sequence_brings_by_itself():
    """Sequences differ by far more than the rules do; the difference within a sequence is known to 0.01."""
    rng = np.random.default_rng(0)
    ours, theirs = {}, {}
    for unit in range(12):
        own = rng.normal(0.0, 1.0)
        passes = np.array([1.0, 4.0, 16.0])
        theirs[str(unit)] = curve(passes, own + np.log(passes))
        ours[str(unit)] = curve(passes * 1.5, own + np.log(passes * 1.5) + 0.05 + rng.normal(0.0, 0.005))
    found = paired_difference(ours, theirs, 4.0)
    assert found.low < 0.05 < found.high
    assert found.half_width < 0.01
    assert common_range(ours, theirs) == (1.5, 16.0)


def test_rules_that_decoded_different_sequences_are_not_compared():
    a, b = {"x": curve(np.ones(1), np.ones(1))}, {"y": curve(np.ones(1), np.ones(1))}
    with pytest.raises(InputError, match="same sequences"):
        paired_difference(a, b, 1.0)
    with pytest.raises(InputError, match="at least one pass"):
        curve(np.array([0.0]), np.array([1.0]))
