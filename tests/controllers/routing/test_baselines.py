import numpy as np
import pytest
from scipy import stats

from controllers.routing.fixed import FixedRouter
from controllers.routing.random_mix import RandomMixRouter
from controllers.routing.token_signature import TokenSignatureRouter
from tests.controllers.routing.observe import observe
from workbench.errors import InputError
from workbench.protocols import RouteReason, Strategy


def test_fixed_never_looks():
    _, action = FixedRouter(strategy=Strategy.COT).step(
        None, observe(np.full((3, 8), np.nan), active=[True, False, True])
    )
    assert list(action.strategy) == [Strategy.COT, 0, Strategy.COT]


def test_random_mix_has_its_shares_and_depends_on_the_request_only():
    router = RandomMixRouter(share_direct=0.2, share_cot=0.5, seed=3)
    rows = 20_000
    probes = np.zeros((rows, 1))
    _, action = router.step(None, observe(probes))
    counts = np.bincount(action.strategy, minlength=3)
    expected = rows * np.array([0.3, 0.2, 0.5])
    assert stats.chisquare(counts, expected).pvalue > 1e-3
    order = np.random.default_rng(0).permutation(rows)
    _, permuted = router.step(None, observe(probes, request_id=order))
    assert np.array_equal(permuted.strategy, action.strategy[order])
    assert np.any(
        RandomMixRouter(share_direct=0.2, share_cot=0.5, seed=4).step(None, observe(probes))[1].strategy
        != action.strategy
    )


def test_random_mix_refuses_impossible_shares():
    with pytest.raises(InputError, match="at most 1"):
        RandomMixRouter(share_direct=0.7, share_cot=0.7)


def test_token_signature_follows_rising_probabilities():
    surprisal = np.stack([np.linspace(2.0, 0.1, 32), np.linspace(0.1, 2.0, 32)])
    entropy = np.ones((2, 32))
    _, action = TokenSignatureRouter().step(None, observe(entropy, surprisal=surprisal))
    assert list(action.strategy) == [Strategy.COT, Strategy.DIRECT]
    noisy = surprisal + np.random.default_rng(0).normal(0.0, 0.5, (2, 32))
    value = stats.spearmanr(np.arange(32), np.exp(-noisy[0])).statistic
    for shift, strategy in ((-1e-9, Strategy.COT), (1e-9, Strategy.DIRECT)):
        _, action = TokenSignatureRouter(threshold=value + shift).step(None, observe(entropy, surprisal=noisy))
        assert action.strategy[0] == strategy


def test_token_signature_without_surprisals_is_standard():
    _, action = TokenSignatureRouter().step(None, observe(np.ones((2, 32))))
    assert list(action.reason) == [RouteReason.TOO_SHORT] * 2
