import numpy as np
import pytest

from sims.oracles.mixture import Mixture
from sims.oracles.table import all_sequences
from tests.sims.oracles.against_enumeration import check_against_joint, check_defined_off_support, check_samples
from workbench.errors import InputError


def joint(mixture: Mixture) -> np.ndarray:
    x = all_sequences(mixture.length, mixture.num_symbols)
    p = np.zeros(len(x))
    for w, table in zip(mixture.weight, mixture.table, strict=True):
        p += w * np.prod(table[mixture.position_class, x], axis=1)
    return p


def test_agrees_with_the_enumerated_joint():
    rng = np.random.default_rng(2)
    table = rng.dirichlet(np.ones(3), size=(4, 2))
    table[0, 0] = [0.0, 0.4, 0.6]
    mixture = Mixture(np.array([0.1, 0.4, 0.3, 0.2]), table, np.array([0, 1, 1, 0, 0, 1]))
    check_against_joint(mixture, joint(mixture))
    check_samples(mixture, joint(mixture))
    check_defined_off_support(mixture)


def test_codewords_agree_with_the_enumerated_joint():
    mixture = Mixture.codewords(9, entropy_nats=2.5)
    check_against_joint(mixture, joint(mixture))


def test_codewords_reach_the_asked_entropy():
    assert Mixture.codewords(1024, entropy_nats=20.0).entropy_nats == pytest.approx(20.0, abs=1e-6)


def test_refuses_bad_shapes_and_hopeless_batches():
    with pytest.raises(InputError, match="components"):
        Mixture(np.array([1.0]), np.full((2, 1, 2), 0.5), np.zeros(3, int))
    with pytest.raises(InputError, match="count vectors"):
        Mixture(np.array([1.0]), np.full((1, 3, 2), 0.5), np.arange(900) % 3)
    with pytest.raises(InputError, match="entropy_nats"):
        Mixture.codewords(8, entropy_nats=0.5)
