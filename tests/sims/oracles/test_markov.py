import numpy as np
import pytest

from sims.oracles.forward_backward import forward_backward
from sims.oracles.markov import Markov
from sims.oracles.table import all_sequences
from tests.sims.oracles.against_enumeration import check_against_joint, check_defined_off_support, check_samples
from workbench.errors import InputError

INITIAL = np.array([0.2, 0.5, 0.3])
TRANSITION = np.array([[0.7, 0.3, 0.0], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5]])


def joint(initial, transition, length):
    x = all_sequences(length, len(initial))
    p = initial[x[:, 0]]
    for i in range(1, length):
        p = p * transition[x[:, i - 1], x[:, i]]
    return p


@pytest.mark.parametrize("length", [1, 2, 6])
def test_agrees_with_the_enumerated_joint(length):
    oracle = Markov(INITIAL, TRANSITION, length)
    check_against_joint(oracle, joint(INITIAL, TRANSITION, length))
    check_samples(oracle, joint(INITIAL, TRANSITION, length))
    check_defined_off_support(oracle)


def test_sticky_agrees_with_the_enumerated_joint():
    oracle = Markov.sticky(8, num_symbols=3, entropy_nats=3.0)
    check_against_joint(oracle, joint(oracle.initial, oracle.transition, 8))


def test_powers_give_what_forward_backward_gives_at_length_4096():
    oracle = Markov.sticky(4096, 8, entropy_nats=20.0)
    assert oracle.entropy_nats == pytest.approx(20.0, abs=1e-9)
    rng = np.random.default_rng(1)
    truth = oracle.sample(rng, 1)
    for share in (0.001, 0.02, 0.5):
        tokens = np.where(rng.random((1, 4096)) < share, truth, -1)
        evidence = np.where(tokens[0][:, None] < 0, 1.0, tokens[0][:, None] == np.arange(8)).astype(float)
        want, log_likelihood = forward_backward(oracle.initial, oracle.transition, evidence)
        np.testing.assert_allclose(oracle.marginals(tokens)[0], want, atol=1e-9)
        assert oracle.log_probability(tokens)[0] == pytest.approx(log_likelihood, abs=1e-7)


def test_the_batch_of_everything_has_the_entropy_of_the_chain():
    oracle = Markov.sticky(500, 4, entropy_nats=100.0)
    everything = np.full((1, 500), -1)
    assert oracle.batch_entropy(everything, everything < 0)[0] == pytest.approx(100.0, abs=1e-8)


def test_refuses_an_entropy_out_of_reach():
    with pytest.raises(InputError, match=r"entropy_nats must be in \[2.079"):
        Markov.sticky(100, 8, entropy_nats=1.0)
    with pytest.raises(InputError, match="sum to 1"):
        Markov(INITIAL, TRANSITION * 1.1, 4)
    with pytest.raises(InputError, match="3 x 3"):
        Markov(INITIAL, np.eye(2), 4)
