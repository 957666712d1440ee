import numpy as np
import pytest

from sims.oracles.parity import Parity
from sims.oracles.table import all_sequences
from tests.sims.oracles.against_enumeration import check_against_joint, check_defined_off_support, check_samples
from workbench.errors import InputError


@pytest.mark.parametrize(("length", "block"), [(6, None), (7, 3), (1, None), (5, 1)])
def test_agrees_with_the_enumerated_joint(length, block):
    sequences = all_sequences(length, 2)
    even = np.ones(len(sequences), dtype=bool)
    for start in range(0, length, block or length):
        even &= sequences[:, start : start + (block or length)].sum(axis=1) % 2 == 0
    joint = even / even.sum()
    oracle = Parity(length, block)
    check_against_joint(oracle, joint)
    check_samples(oracle, joint)
    check_defined_off_support(oracle)


def test_taking_everything_at_once_costs_one_bit():
    oracle = Parity(64)
    tokens = np.full((1, 64), -1)
    marginal_sum = 64 * np.log(2.0)
    assert marginal_sum - oracle.batch_entropy(tokens, tokens < 0)[0] == pytest.approx(np.log(2.0))


def test_refuses_an_empty_block():
    with pytest.raises(InputError, match="block_length"):
        Parity(4, 0)
