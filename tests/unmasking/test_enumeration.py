"""The law of a sampler against its definition, written out by hand here, and against many simulated runs."""

import itertools

import numpy as np
import pytest

from controllers.unmasking.eb_sampler import EBSampler
from controllers.unmasking.entropy_sum import EntropySum
from controllers.unmasking.left_to_right import LeftToRight
from controllers.unmasking.uniform import Uniform
from sims.oracles.duplicates import Duplicates
from sims.oracles.markov import Markov
from sims.oracles.table import Table, all_sequences
from workbench.errors import InputError
from workbench.unmasking.enumeration import law_of_mixture, law_of_order
from workbench.unmasking.plant import UnmaskPlant, decode
from workbench.unmasking.predictor import OraclePredictor

TABLE = Table.random(np.random.default_rng(1), 4, 2, concentration=0.6)


def entropy_sum_by_hand(oracle, order, x, eta):
    """Probability and iterations of x under the entropy sum with this order, from the marginals alone."""
    tokens = np.full((1, oracle.length), -1)
    left = list(order)
    q, k = 1.0, 0
    while left:
        p = oracle.marginals(tokens)[0]
        h = [-(row[row > 0] * np.log(row[row > 0])).sum() for row in p]
        total, batch = 0.0, []
        while left and total <= eta:
            i = left.pop(0)
            total += h[i]
            batch.append(i)
        for i in batch:
            q *= p[i, x[i]]
        tokens[0, batch] = x[batch]
        k += 1
    return q, k


@pytest.mark.parametrize("eta", [0.3, 0.8, 1.5])
def test_an_order_agrees_with_the_definition(eta):
    sequences = all_sequences(4, 2)
    p = TABLE.probability
    for order in [(0, 1, 2, 3), (2, 0, 3, 1)]:
        rank = np.argsort(order)
        law = law_of_order(TABLE, EntropySum(eta_nats=eta), rank)
        hand = [entropy_sum_by_hand(TABLE, order, x, eta) for x in sequences]
        q = np.array([v for v, _ in hand])
        np.testing.assert_allclose(law.probability, q, atol=1e-12)
        np.testing.assert_allclose(law.probability.sum(), 1.0, atol=1e-12)
        assert law.kl_nats == pytest.approx((p * np.log(p / q)).sum(), abs=1e-12)
        assert law.iterations == pytest.approx(sum(w * k for w, (_, k) in zip(p, hand, strict=True)))


def test_a_permutation_kept_and_one_drawn_anew_give_the_same_mixture():
    """What the enumeration over kept orders rests on: 40,000 runs with fresh permutations have that law."""
    oracle = Markov.sticky(4, 2, entropy_nats=1.6)
    law = law_of_mixture(oracle, EntropySum(eta_nats=0.7))
    done = decode(UnmaskPlant(OraclePredictor(oracle), np.full((40_000, 4), -1)), EntropySum(eta_nats=0.7))
    seen = np.bincount(done.tokens @ np.array([8, 4, 2, 1]), minlength=16)
    expected = 40_000 * law.probability
    assert ((seen - expected) ** 2 / expected).sum() < 15 + 5 * np.sqrt(30)
    assert done.ledger.iterations.mean() == pytest.approx(law.iterations_sampled, abs=0.02)


@pytest.mark.parametrize(
    "policy", [EntropySum(eta_nats=0.5), EBSampler(gamma_nats=0.5), Uniform(num_iterations=2), LeftToRight(count=2)]
)
@pytest.mark.parametrize("oracle", [TABLE, Duplicates.pairs(4, 0.3), Markov.sticky(5, 2, entropy_nats=1.5)])
def test_mixtures_are_distributions_and_obey_convexity(policy, oracle):
    law = law_of_mixture(oracle, policy)
    np.testing.assert_allclose(law.probability.sum(), 1.0, atol=1e-10)
    assert 0.0 <= law.kl_nats <= law.kl_mean_nats + 1e-12
    assert law.entropy_mean_nats <= law.entropy_nats + 1e-12


@pytest.mark.parametrize("eta", [0.05, 0.4, 1.0, 2.5])
def test_the_bounds_hold_exactly(eta):
    for oracle in (TABLE, Duplicates.pairs(5, 0.4), Markov.sticky(5, 2, entropy_nats=2.0)):
        for rank in itertools.islice(itertools.permutations(range(oracle.length)), 0, None, 7):
            law = law_of_order(oracle, EntropySum(eta_nats=eta), np.array(rank))
            assert law.iterations <= (oracle.entropy_nats + law.kl_nats) / eta + 1.0 + 1e-9
            assert law.iterations_sampled <= law.entropy_nats / eta + 1.0 + 1e-9


def test_refuses_what_is_too_long():
    with pytest.raises(InputError, match="paths"):
        law_of_mixture(Markov.sticky(30, 2, entropy_nats=5.0), EntropySum())
    with pytest.raises(InputError, match="enumerated"):
        law_of_order(Markov.sticky(30, 2, entropy_nats=5.0), EntropySum(), np.arange(30))
