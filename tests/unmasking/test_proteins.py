"""Real masked models through the unmasking plant; skipped where their packages are not installed."""

from importlib.util import find_spec

import numpy as np
import pytest

from controllers.unmasking.entropy_sum import EntropySum
from controllers.unmasking.left_to_right import LeftToRight
from tests.contracts.checks import same
from workbench.errors import InputError
from workbench.signals import entropy_and_varentropy
from workbench.unmasking.antibodies import CHAINS
from workbench.unmasking.plant import UnmaskPlant, decode
from workbench.unmasking.policies import named_policy

pytestmark = pytest.mark.skipif(find_spec("sapiens") is None, reason="the package sapiens is not installed")

FIRST = list(CHAINS["heavy"])


@pytest.fixture(scope="module")
def bench():
    from workbench.unmasking.proteins import ProteinBench

    return ProteinBench("sapiens-heavy")


def test_sequences_are_variable_domains():
    for chain, (low, high) in (("heavy", (110, 130)), ("light", (104, 115))):
        for sequence in CHAINS[chain].values():
            assert low <= len(sequence) <= high
            assert set(sequence) <= set("ACDEFGHIKLMNPQRSTVWY")
            assert sequence.count("C") >= 2  # the disulfide of every such domain


def test_fused_statistics_agree_with_float64(bench):
    truth = next(iter(bench.sequences.values()))
    tokens = np.where(np.arange(truth.size) % 2 == 0, truth, -1)[None]
    found = bench.predictor.predict(tokens)
    h, _ = entropy_and_varentropy(bench.model.logits(tokens))
    np.testing.assert_allclose(found.entropy_nats, h, atol=2e-5)
    np.testing.assert_allclose(found.confidence, found.probability.max(axis=-1), atol=2e-6)


def test_selection_of_the_backend_equals_the_numpy_twin(bench):
    from kernels.selection_numpy import reveal_prefix

    rng = np.random.default_rng(0)
    for _ in range(50):
        rank = rng.permuted(np.tile(np.arange(30), (3, 1)), axis=1)
        numbers = (rank, rng.exponential(0.3, (3, 30)), rng.random((3, 30)) < 0.6, rng.exponential(1.0, 3),
                   rng.random(3) < 0.5, np.ones(3, int), rng.integers(1, 30, 3))  # fmt: skip
        assert np.array_equal(bench.predictor.select(*numbers), reveal_prefix(*numbers))


@pytest.mark.parametrize(
    "policy", ["entropy-sum:10", "eb-sampler:10", "confidence-threshold:0.5", "klass:0.5", "uniform:8"]
)
def test_every_sequence_comes_back_whole_and_known_positions_stay(bench, policy):
    found = bench.decode(named_policy(policy).policy, 0.5, sequences=FIRST[:2], scored=0)
    for name, tokens, at in zip(found.names, found.tokens, found.revealed_at, strict=True):
        truth = bench.sequences[name]
        assert tokens.shape == truth.shape
        assert np.all(tokens >= 0)
        assert np.array_equal(tokens[at < 0], truth[at < 0])
        assert (at >= 0).sum() == round(0.5 * truth.size)
    # Half of a framework tells the other half far better than guessing one of twenty.
    assert found.recovery.mean() > 0.4


def test_entropies_are_those_known_for_this_model(bench):
    """Heavy chains: about 1.2 nats with half masked, 2.15 at 90 %, 2.4 with nothing known."""
    for share, expected in ((0.5, 1.22), (0.9, 2.15), (1.0, 2.42)):
        found = bench.decode(EntropySum(eta_nats=np.inf), share, sequences=FIRST[:4], scored=0)
        assert abs(found.entropy_first_nats.mean() - expected) < 0.25


def test_pseudo_likelihood_agrees_with_one_masked_at_a_time(bench):
    from workbench.unmasking.model_predictor import pseudo_nll

    truth = next(iter(bench.sequences.values()))
    positions = np.array([3, 50, 100])
    want = []
    for i in positions:
        tokens = truth.copy()
        tokens[i] = -1
        want.append(-np.log(bench.predictor.predict(tokens[None]).probability[0, i, truth[i]]))
    assert pseudo_nll(bench.model, truth[None], positions)[0] == pytest.approx(np.mean(want), abs=1e-5)


def test_a_live_run_replays_to_the_same_actions_and_tokens(bench):
    truth = next(iter(bench.sequences.values()))
    tokens = np.where(np.arange(truth.size) % 3 == 0, truth, -1)[None]
    decisions = []

    class Log:
        def decision(self, observation, action, applied):
            decisions.append((observation, action))

    policy = EntropySum(eta_nats=5.0)
    first = decode(UnmaskPlant(bench.predictor, tokens, seed=1, select=bench.predictor.select), policy, recorder=Log())
    again = decode(UnmaskPlant(bench.predictor, tokens, seed=1, select=bench.predictor.select), policy)
    assert np.array_equal(first.tokens, again.tokens)
    for observation, action in decisions:
        assert same(action, policy.step(None, observation)[1])


def test_bad_input_is_one_clear_line(bench):
    from workbench.unmasking.proteins import ProteinBench

    with pytest.raises(InputError, match="sapiens-heavy"):
        ProteinBench("sapiens-havy")
    with pytest.raises(InputError, match="chain must be heavy"):
        ProteinBench("sapiens-heavy:light")
    with pytest.raises(InputError, match="--masked must be in"):
        bench.decode(LeftToRight(), 0.0)
    with pytest.raises(InputError, match="--temperature"):
        bench.decode(LeftToRight(), 0.5, temperature=-1.0)
