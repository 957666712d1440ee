import math

import numpy as np
import pytest

from sims.oracles.shuffle import Shuffle
from sims.oracles.table import all_sequences
from tests.sims.oracles.against_enumeration import check_against_joint, check_defined_off_support, check_samples
from workbench.errors import InputError


@pytest.mark.parametrize("counts", [[3, 2], [1, 1, 1, 1], [2, 1, 2], [4, 0], [0, 3, 3]])
def test_agrees_with_the_enumerated_joint(counts):
    sequences = all_sequences(sum(counts), len(counts))
    fits = np.ones(len(sequences), dtype=bool)
    for symbol, count in enumerate(counts):
        fits &= (sequences == symbol).sum(axis=1) == count
    joint = fits / fits.sum()
    oracle = Shuffle(np.array(counts))
    check_against_joint(oracle, joint)
    check_samples(oracle, joint)
    check_defined_off_support(oracle)


def test_special_cases_have_their_entropies():
    assert Shuffle.permutation(100).entropy_nats == pytest.approx(math.lgamma(101))
    assert Shuffle.k_of_n(20, 3).entropy_nats == pytest.approx(math.log(math.comb(20, 3)))


def test_a_permutation_batch_matches_the_falling_factorial():
    oracle = Shuffle.permutation(200)
    tokens = np.full((1, 200), -1)
    batch = np.zeros((1, 200), dtype=bool)
    batch[0, :7] = True
    assert oracle.batch_entropy(tokens, batch)[0] == pytest.approx(sum(math.log(200 - j) for j in range(7)))


def test_refuses_bad_counts():
    with pytest.raises(InputError, match="k must be in"):
        Shuffle.k_of_n(4, 5)
    with pytest.raises(InputError, match="non-negative"):
        Shuffle(np.array([2, -1]))
    with pytest.raises(InputError, match="table entries"):
        Shuffle.permutation(2**15)
