import numpy as np
import pytest

from sims.oracles.hidden_markov import HiddenMarkov
from sims.oracles.table import all_sequences
from tests.sims.oracles.against_enumeration import check_against_joint, check_defined_off_support, check_samples
from workbench.errors import InputError

INITIAL = np.array([0.2, 0.5, 0.3])
TRANSITION = np.array([[0.7, 0.3, 0.0], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5]])
EMISSION = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]])


def joint(initial, transition, emission, length):
    """Sum over every hidden path, one by one."""
    x = all_sequences(length, emission.shape[1])
    p = np.zeros(len(x))
    for z in all_sequences(length, len(initial)):
        path = initial[z[0]] * np.prod(transition[z[:-1], z[1:]])
        p += path * np.prod(emission[z, x], axis=1)
    return p


def test_agrees_with_the_enumerated_joint():
    oracle = HiddenMarkov(INITIAL, TRANSITION, EMISSION, 6)
    want = joint(INITIAL, TRANSITION, EMISSION, 6)
    check_against_joint(oracle, want)
    check_samples(oracle, want)
    check_defined_off_support(oracle)
    assert oracle.entropy_error_nats == 0.0


def test_the_bracket_holds_the_entropy():
    exact = HiddenMarkov.noisy_switch(14)
    assert exact.entropy_error_nats == 0.0
    for depth in (2, 4, 8):
        n = exact.num_states
        bracket = HiddenMarkov(np.full(n, 1 / n), exact.transition, exact.emission, 14, depth=depth)
        assert bracket.entropy_error_nats > 0.0
        assert abs(bracket.entropy_nats - exact.entropy_nats) <= bracket.entropy_error_nats


def test_the_bracket_agrees_with_sampled_log_probabilities():
    oracle = HiddenMarkov.noisy_switch(512)
    assert oracle.entropy_error_nats < 0.01 * oracle.entropy_nats
    x = oracle.sample(np.random.default_rng(5), 300)
    surprisal = -oracle.log_probability(x)
    error = surprisal.std() / np.sqrt(len(x))
    assert abs(surprisal.mean() - oracle.entropy_nats) < 4 * error + oracle.entropy_error_nats


def test_refuses_what_it_cannot_enumerate():
    oracle = HiddenMarkov.noisy_switch(40)
    everything = np.full((1, 40), -1)
    with pytest.raises(InputError, match="outcomes"):
        oracle.batch_entropy(everything, everything < 0)
    with pytest.raises(InputError, match="stationary"):
        HiddenMarkov(INITIAL, TRANSITION, EMISSION, 100)
    with pytest.raises(InputError, match="agree on the number of states"):
        HiddenMarkov(INITIAL, np.eye(2), EMISSION, 4)
