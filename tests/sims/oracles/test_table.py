import numpy as np
import pytest

from sims.oracles.markov import Markov
from sims.oracles.table import Table, all_sequences
from tests.sims.oracles.against_enumeration import check_against_joint, check_defined_off_support, check_samples
from workbench.errors import InputError


def test_agrees_with_the_enumerated_joint():
    table = Table.random(np.random.default_rng(0), 5, 3)
    check_against_joint(table, table.probability)
    check_samples(table, table.probability)
    check_defined_off_support(table)


def test_another_oracle_written_out_answers_alike():
    chain = Markov.sticky(7, 3, entropy_nats=4.0)
    written = Table.of(chain)
    rng = np.random.default_rng(4)
    truth = chain.sample(rng, 50)
    tokens = np.where(rng.random(truth.shape) < 0.5, truth, -1)
    batch = rng.random(truth.shape) < 0.5
    np.testing.assert_allclose(written.marginals(tokens), chain.marginals(tokens), atol=1e-12)
    np.testing.assert_allclose(written.batch_entropy(tokens, batch), chain.batch_entropy(tokens, batch), atol=1e-12)


def test_refuses_what_is_too_large_or_uneven():
    with pytest.raises(InputError, match="enumerated"):
        all_sequences(40, 2)
    with pytest.raises(InputError, match="equal size"):
        Table(np.full((2, 3), 1 / 6))
