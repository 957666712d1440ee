"""Semi-autoregressive blocks and remasking around any policy."""

import numpy as np
import pytest

from controllers.temperature.fixed import Fixed
from controllers.unmasking.entropy_sum import EntropySum
from controllers.unmasking.klass import KLASS
from controllers.unmasking.low_confidence import LowConfidence
from controllers.unmasking.remasking import Remasking
from controllers.unmasking.semi_autoregressive import SemiAutoregressive
from sims.oracles.names import OracleRequest, build_oracle
from workbench.catalog import CATALOG, build_controller
from workbench.errors import InputError
from workbench.protocols import DecisionPoint
from workbench.unmasking.plant import UnmaskPlant, decode
from workbench.unmasking.predictor import OraclePredictor


def run(policy, length=37, rows=6, oracle="markov"):
    predictor = OraclePredictor(build_oracle(oracle, OracleRequest(length=length)))
    return decode(UnmaskPlant(predictor, np.full((rows, length), -1), measure_divergence=True), policy)


@pytest.mark.parametrize("kind", CATALOG[DecisionPoint.REVEAL])
@pytest.mark.parametrize("block", [1, 8, 37, 100])
def test_blocks_finish_from_left_to_right_at_the_asked_length(kind, block):
    policy = SemiAutoregressive(build_controller(DecisionPoint.REVEAL, {"kind": kind}, {}), block_length=block)
    plant = run(policy)
    assert plant.tokens.shape == (6, 37)
    assert np.all(plant.tokens >= 0)
    at = plant.ledger.revealed_at
    for start in range(block, 37, block):
        assert np.all(at[:, :start].max(axis=1) < at[:, start : start + block].min(axis=1))


def test_one_block_as_long_as_the_text_changes_nothing():
    bare, wrapped = run(EntropySum(eta_nats=0.3)), run(SemiAutoregressive(EntropySum(eta_nats=0.3), block_length=37))
    assert np.array_equal(bare.tokens, wrapped.tokens)
    assert np.array_equal(bare.ledger.revealed_at, wrapped.ledger.revealed_at)


def test_remasking_gives_doubtful_positions_a_second_chance_and_ends():
    bare, again = run(LowConfidence(count=4)), run(Remasking(LowConfidence(count=4), threshold=0.9, count=2))
    assert np.all(again.tokens >= 0)
    assert np.all(again.ledger.iterations > bare.ledger.iterations)
    assert np.all(again.ledger.iterations <= 2 * 37)


def test_remasking_below_zero_confidence_changes_nothing():
    bare, wrapped = run(LowConfidence(count=3)), run(Remasking(LowConfidence(count=3), threshold=0.0))
    assert np.array_equal(bare.tokens, wrapped.tokens)


def test_given_positions_are_never_masked_again():
    oracle = build_oracle("markov", OracleRequest(length=20))
    tokens = np.where(np.arange(20) % 2 == 0, oracle.sample(np.random.default_rng(0), 4), -1)
    plant = UnmaskPlant(OraclePredictor(oracle), tokens)
    decode(plant, Remasking(LowConfidence(count=2), threshold=1.0, count=5, max_times=3))
    assert np.array_equal(plant.tokens[:, ::2], tokens[:, ::2])


def test_wrappers_pass_on_what_the_policy_needs():
    assert SemiAutoregressive(Remasking(KLASS())).needs_divergence
    assert not SemiAutoregressive(EntropySum()).needs_divergence


def test_refuse_a_controller_of_another_point_and_bad_numbers():
    for wrapper in (SemiAutoregressive, Remasking):
        with pytest.raises(InputError, match="wraps an unmasking policy"):
            wrapper(Fixed())
    with pytest.raises(InputError, match="block_length"):
        SemiAutoregressive(EntropySum(), block_length=0)
    with pytest.raises(InputError, match="threshold"):
        Remasking(EntropySum(), threshold=1.5)
    with pytest.raises(InputError, match="count"):
        Remasking(EntropySum(), count=0)
