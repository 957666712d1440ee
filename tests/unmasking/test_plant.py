from itertools import pairwise

import numpy as np
import pytest

from controllers.temperature.fixed import Fixed
from controllers.temperature.pi import PITemperature
from controllers.unmasking.confidence_threshold import ConfidenceThreshold
from controllers.unmasking.entropy_sum import EntropySum
from controllers.unmasking.klass import KLASS
from controllers.unmasking.left_to_right import LeftToRight
from sims.oracles.independent import Independent
from sims.oracles.markov import Markov
from sims.oracles.names import OracleRequest, build_oracle
from tests.contracts.checks import same
from workbench.catalog import CATALOG, build_controller
from workbench.errors import InputError
from workbench.protocols import DecisionPoint
from workbench.unmasking.plant import UnmaskPlant, decode
from workbench.unmasking.predictor import Marginals, OraclePredictor

CHAIN = Markov.sticky(40, 4, entropy_nats=8.0)


def plant(oracle=CHAIN, rows=5, **options):
    return UnmaskPlant(OraclePredictor(oracle), np.full((rows, oracle.length), -1), **options)


@pytest.mark.parametrize("kind", CATALOG[DecisionPoint.REVEAL])
@pytest.mark.parametrize("length", [1, 2, 33, 100])
def test_every_policy_reveals_every_position_once_in_at_most_as_many_iterations(kind, length):
    oracle = Independent(np.full((length, 3), 1.0 / 3.0))
    done = decode(plant(oracle, measure_divergence=True), build_controller(DecisionPoint.REVEAL, {"kind": kind}, {}))
    assert done.tokens.shape == (5, length)
    assert np.all(done.tokens >= 0)
    assert np.all(done.ledger.revealed_at >= 0)
    assert np.all((done.ledger.iterations >= 1) & (done.ledger.iterations <= length))


def test_a_threshold_nobody_reaches_takes_one_position_an_iteration():
    done = decode(plant(Independent(np.full((50, 2), 0.5))), ConfidenceThreshold(threshold=0.999))
    assert np.all(done.ledger.iterations == 50)


def test_eta_zero_takes_length_iterations_and_infinity_one():
    bits = Independent(np.full((30, 2), 0.5))
    assert np.all(decode(plant(bits), EntropySum(eta_nats=0.0)).ledger.iterations == 30)
    assert np.all(decode(plant(bits), EntropySum(eta_nats=np.inf)).ledger.iterations == 1)


def test_one_at_a_time_samples_the_joint_exactly():
    oracle = Markov.sticky(3, 2, entropy_nats=1.2)
    done = decode(plant(oracle, rows=20_000), LeftToRight())
    code = done.tokens @ np.array([4, 2, 1])
    seen = np.bincount(code, minlength=8)
    expected = 20_000 * np.exp(oracle.log_probability(np.array([[i >> 2, i >> 1 & 1, i & 1] for i in range(8)])))
    assert ((seen - expected) ** 2 / expected).sum() < 7 + 5 * np.sqrt(14)
    np.testing.assert_allclose(done.ledger.surprisal_nats, -oracle.log_probability(done.tokens), atol=1e-9)


def test_draws_do_not_depend_on_slot_batch_or_neighbours():
    together = decode(plant(rows=6, seed=3), EntropySum(eta_nats=0.5))
    ids = np.array([4, 1])
    alone = decode(plant(rows=2, seed=3, request_id=ids), EntropySum(eta_nats=0.5))
    assert np.array_equal(alone.tokens, together.tokens[ids])
    assert np.array_equal(alone.ledger.revealed_at, together.ledger.revealed_at[ids])


def test_rows_that_end_early_stay_as_they_are_and_are_not_predicted_again():
    calls = []

    class Counting(OraclePredictor):
        def predict(self, tokens):
            calls.append(tokens.shape[0])
            return super().predict(tokens)

    tokens = np.full((2, 40), -1)
    tokens[0, 1:] = 0
    done = decode(UnmaskPlant(Counting(CHAIN), tokens), LeftToRight())
    assert done.ledger.iterations.tolist() == [1, 40]
    assert calls == [2] + [1] * 39


def test_truth_is_what_is_revealed_and_its_surprisal_is_charged():
    truth = CHAIN.sample(np.random.default_rng(0), 5)
    done = decode(plant(truth=truth), EntropySum(eta_nats=0.5))
    assert np.array_equal(done.tokens, truth)
    assert np.all(done.ledger.entropy_spent_nats > done.ledger.excess_spent_nats)


def test_plain_draws_equal_those_of_the_sampling_op():
    fast = decode(plant(seed=11), EntropySum(eta_nats=0.5))
    by_op = decode(plant(seed=11, steered_temperature=True), EntropySum(eta_nats=0.5), Fixed(temperature=1.0))
    assert np.array_equal(fast.tokens, by_op.tokens)
    np.testing.assert_allclose(fast.ledger.surprisal_nats, by_op.ledger.surprisal_nats, atol=1e-9)


def test_temperature_zero_takes_the_likeliest_token():
    table = np.array([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]])
    done = decode(plant(Independent(table), temperature=0.0), EntropySum(eta_nats=9.0))
    assert np.all(done.tokens == np.array([1, 0]))


def test_a_temperature_law_steers_the_revealed_tokens_and_sees_what_was_applied():
    law = PITemperature(
        target_entropy_nats=0.9, vocab_size=3, k_i=0.5, temperature_min=0.3, temperature_max=3.0, unsafe=True
    )
    seen = []

    class Log:
        def decision(self, observation, action, applied):
            if observation.point is DecisionPoint.TEMPERATURE:
                seen.append((observation, applied))

    rng = np.random.default_rng(0)
    oracle = Independent(rng.dirichlet(np.ones(3), size=60))
    decode(plant(oracle, rows=2, steered_temperature=True), LeftToRight(), law, Log())
    assert len(seen) == 60
    for (_, applied), (observation, _) in pairwise(seen):
        np.testing.assert_allclose(observation.temperature_applied, applied.temperature)
        assert np.all(observation.measured)
    assert len({float(a.temperature[0]) for _, a in seen}) > 30


def test_replay_gives_the_recorded_actions():
    decisions = []

    class Log:
        def decision(self, observation, action, applied):
            decisions.append((observation, action))

    policy = KLASS()
    decode(plant(measure_divergence=True), policy, recorder=Log())
    state = policy.init(5)
    for observation, action in decisions:
        state, again = policy.step(state, observation)
        assert same(action, again)


class Broken:
    num_symbols = 2

    def __init__(self, row):
        self.row = row

    def predict(self, tokens):
        p = np.full((*tokens.shape, 2), 0.5)
        p[0, 1] = self.row
        return Marginals(probability=p)


@pytest.mark.parametrize(("row", "message"), [([0.6, 0.6], "sums to 1.2"), ([np.nan, 0.5], "NaN")])
def test_a_broken_predictor_is_one_clear_line(row, message):
    with pytest.raises(InputError, match=message):
        decode(UnmaskPlant(Broken(row), np.full((1, 4), -1)), EntropySum())


def test_bad_input_is_one_clear_line():
    predictor = OraclePredictor(CHAIN)
    masked = np.full((2, 40), -1)
    with pytest.raises(InputError, match="row 1 has no masked position: everything is already revealed"):
        UnmaskPlant(predictor, np.stack([np.full(40, -1), np.zeros(40, int)]))
    with pytest.raises(InputError, match="length >= 1"):
        UnmaskPlant(predictor, np.zeros((2, 0), int))
    with pytest.raises(InputError, match="no permutation"):
        UnmaskPlant(predictor, masked, orders=np.zeros((2, 40), int))
    with pytest.raises(InputError, match="outside the predictor's 4 symbols"):
        UnmaskPlant(predictor, np.where(np.arange(40) == 3, 4, masked))
    with pytest.raises(InputError, match="truth must have the shape"):
        UnmaskPlant(predictor, masked, truth=np.zeros((2, 39), int))


def test_impossible_tokens_revealed_together_do_not_break_the_run():
    oracle = build_oracle("permutation", OracleRequest(length=12))
    done = decode(plant(oracle, rows=50), EntropySum(eta_nats=6.0))
    assert np.all(done.tokens >= 0)
    assert any(len(set(row)) < 12 for row in done.tokens.tolist())
