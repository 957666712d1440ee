import numpy as np
import pytest

from sims.oracles.duplicates import Duplicates
from sims.oracles.table import all_sequences
from tests.sims.oracles.against_enumeration import check_against_joint, check_defined_off_support, check_samples
from workbench.errors import InputError


@pytest.mark.parametrize("group", [[0, 0, 1, 1, 2], [0, 1, 0, 1], [0, 0, 0, 1, 1]])
def test_agrees_with_the_enumerated_joint(group):
    p = np.array([0.5, 0.2, 0.3])
    sequences = all_sequences(len(group), 3)
    joint = np.ones(len(sequences))
    for g in set(group):
        members = sequences[:, [i for i, h in enumerate(group) if h == g]]
        joint *= np.where((members == members[:, :1]).all(axis=1), p[members[:, 0]], 0.0)
    oracle = Duplicates(np.array(group), p)
    check_against_joint(oracle, joint)
    check_samples(oracle, joint)
    check_defined_off_support(oracle)


def test_pairs_have_the_asked_entropy_and_adjacent_mates():
    oracle = Duplicates.pairs(256, 0.01)
    assert oracle.entropy_nats == pytest.approx(128 * 0.01, rel=1e-12)
    x = oracle.sample(np.random.default_rng(0), 50)
    assert np.array_equal(x[:, ::2], x[:, 1::2])


def test_a_copy_lies_half_the_length_later():
    oracle = Duplicates.copy_list(10, 4)
    x = oracle.sample(np.random.default_rng(0), 50)
    assert np.array_equal(x[:, :5], x[:, 5:])
    assert oracle.entropy_nats == pytest.approx(5 * np.log(4.0))


def test_an_odd_length_leaves_one_alone():
    assert Duplicates.pairs(1, 0.3).entropy_nats == pytest.approx(0.3)
    assert Duplicates.pairs(7).num_groups == 4


def test_refuses_gaps_in_the_group_numbers():
    with pytest.raises(InputError, match="without a gap"):
        Duplicates(np.array([0, 2]), np.array([0.5, 0.5]))
