"""Schedules blind to the model: uniform, random size, dilated, left to right, low confidence (sized, not adaptive)."""

import numpy as np
import pytest

from controllers.unmasking.dilated import Dilated
from controllers.unmasking.left_to_right import LeftToRight
from controllers.unmasking.low_confidence import LowConfidence
from controllers.unmasking.random_size import RandomSize
from controllers.unmasking.uniform import Uniform
from sims.oracles.independent import Independent
from tests.controllers.unmasking.observed import decide, observe
from workbench.errors import InputError
from workbench.unmasking.plant import UnmaskPlant, decode
from workbench.unmasking.predictor import OraclePredictor


def batches(policy, length, rows=1):
    """Batch sizes of each row, from a run on independent bits."""
    plant = UnmaskPlant(OraclePredictor(Independent(np.full((length, 2), 0.5))), np.full((rows, length), -1))
    at = decode(plant, policy).ledger.revealed_at
    return [np.bincount(row).tolist() for row in at]


@pytest.mark.parametrize(("length", "iterations"), [(16, 4), (17, 4), (3, 8), (100, 7)])
def test_uniform_takes_its_iterations_in_equal_parts(length, iterations):
    (sizes,) = batches(Uniform(num_iterations=iterations), length)
    assert len(sizes) == min(iterations, length)
    assert sum(sizes) == length
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(("length", "iterations"), [(64, 8), (5, 8), (40, 1)])
def test_random_size_takes_its_iterations_exactly(length, iterations):
    for sizes in batches(RandomSize(num_iterations=iterations), length, rows=50):
        assert len(sizes) == min(iterations, length)
        assert min(sizes) >= 1
        assert sum(sizes) == length


def test_random_sizes_spread_like_a_uniform_composition():
    sizes = np.array(batches(RandomSize(num_iterations=4), 404, rows=400))
    # Exchangeable parts of a broken stick: equal means, standard deviation near (n - r) sqrt(3/80).
    assert np.abs(sizes.mean(axis=0) - 101.0).max() < 5.0 * 80.0 / np.sqrt(400)
    assert np.all(np.abs(sizes.std(axis=0) / (400 * np.sqrt(3.0 / 80.0)) - 1.0) < 0.15)


def test_dilated_goes_from_coarse_to_fine_in_log_rounds():
    first = decide(Dilated(), observe(np.ones(8)))
    assert first == [0, 4]
    masked = np.ones(8, bool)
    masked[first] = False
    assert decide(Dilated(), observe(np.ones(8), masked=masked, iteration=1)) == [2, 6]
    (sizes,) = batches(Dilated(), 64)
    assert sizes == [2, 2, 4, 8, 16, 32]
    (sizes,) = batches(Dilated(block_length=4), 10)
    assert sum(sizes) == 10


def test_left_to_right_is_left_to_right():
    assert decide(LeftToRight(count=2), observe(np.ones(6), masked=[0, 1, 0, 1, 1, 1])) == [1, 3]
    (sizes,) = batches(LeftToRight(), 9)
    assert sizes == [1] * 9


def test_low_confidence_takes_the_surest():
    assert decide(LowConfidence(count=2), observe(np.ones(4), confidence=[0.3, 0.9, 0.5, 0.8])) == [1, 3]


@pytest.mark.parametrize(
    "build",
    [
        lambda: Uniform(num_iterations=0),
        lambda: RandomSize(num_iterations=0),
        lambda: Dilated(base=1),
        lambda: Dilated(block_length=0),
        lambda: LeftToRight(count=0),
        lambda: LowConfidence(count=0),
    ],
)
def test_refuse_numbers_below_their_range(build):
    with pytest.raises(InputError, match="must be at least"):
        build()
