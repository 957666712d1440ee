import numpy as np
import pytest

from sims.oracles.independent import Independent
from sims.oracles.table import all_sequences
from tests.sims.oracles.against_enumeration import check_against_joint, check_defined_off_support, check_samples
from workbench.errors import InputError

TABLE = np.array([[0.2, 0.8, 0.0], [1.0, 0.0, 0.0], [0.3, 0.3, 0.4], [0.1, 0.2, 0.7]])


def joint() -> np.ndarray:
    return np.prod(TABLE[np.arange(4), all_sequences(4, 3)], axis=1)


def test_agrees_with_the_enumerated_joint():
    check_against_joint(Independent(TABLE), joint())
    check_samples(Independent(TABLE), joint())
    check_defined_off_support(Independent(TABLE))


def test_refuses_a_table_that_is_no_distribution():
    with pytest.raises(InputError, match="sum to 1"):
        Independent(TABLE * 0.9)
    with pytest.raises(InputError, match="finite probabilities"):
        Independent(np.where(TABLE == 0.4, np.nan, TABLE))
