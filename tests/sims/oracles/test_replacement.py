import numpy as np
import pytest

from sims.oracles.replacement import Replacement
from sims.oracles.table import all_sequences
from tests.sims.oracles.against_enumeration import check_against_joint, check_defined_off_support, check_samples
from workbench.errors import InputError


@pytest.mark.parametrize(("length", "n"), [(5, 3), (1, 3), (6, 2)])
def test_agrees_with_the_enumerated_joint(length, n):
    sequences = all_sequences(length, n)
    one = (sequences != np.arange(length) % n).sum(axis=1) == 1
    joint = one / one.sum()
    oracle = Replacement(length, n)
    check_against_joint(oracle, joint)
    check_samples(oracle, joint)
    check_defined_off_support(oracle)


def test_refuses_one_symbol():
    with pytest.raises(InputError, match="at least 2"):
        Replacement(4, 1)
