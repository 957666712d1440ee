import numpy as np
import pytest

from controllers.unmasking.adaptive_entropy_sum import AdaptiveEntropySum
from controllers.unmasking.entropy_sum import EntropySum
from sims.oracles.names import OracleRequest, build_oracle
from tests.controllers.unmasking.observed import observe
from workbench.errors import InputError
from workbench.unmasking.accounts import account


def test_the_first_eta_is_the_budget_over_the_logarithm():
    policy = AdaptiveEntropySum(total_nats=0.6)
    _, action = policy.step(policy.init(1), observe(np.full(32, 0.1)))
    assert action.budget[0] == pytest.approx(0.6 / 6.0)


def test_spending_is_estimated_from_the_fall_of_the_mean_entropy():
    policy = AdaptiveEntropySum(total_nats=1.0)
    state, _ = policy.step(policy.init(1), observe(np.full(16, 0.5)))
    masked = np.ones(16, bool)
    masked[:4] = False
    state, action = policy.step(state, observe(np.full(16, 0.4), masked=masked, iteration=1))
    # Four revealed, the mean fell by 0.1: (4 - 1) x 0.1.
    assert state.spent_nats[0] == pytest.approx(0.3)
    assert action.budget[0] == pytest.approx(0.7 / (1.0 + np.log2(12)))


@pytest.mark.parametrize("name", ["pairs", "markov", "mixture", "replace", "k-of-n", "shuffle"])
@pytest.mark.parametrize("total", [0.2, 1.0])
def test_measured_divergence_stays_within_the_budget(name, total):
    oracle = build_oracle(name, OracleRequest(length=64))
    a = account(oracle, AdaptiveEntropySum(total_nats=total), repeats=40, sampled_path=False)
    assert a.kl_nats.low <= total


def test_a_cheap_run_is_given_a_larger_eta_than_the_fixed_rule():
    oracle = build_oracle("independent", OracleRequest(length=64))
    fixed = account(oracle, EntropySum(eta_nats=1.0 / 7.0), repeats=4, sampled_path=False)
    adaptive = account(oracle, AdaptiveEntropySum(total_nats=1.0), repeats=4, sampled_path=False)
    assert adaptive.iterations.mean <= fixed.iterations.mean


def test_refuses_a_budget_that_is_none():
    for total in (-1.0, float("inf"), float("nan")):
        with pytest.raises(InputError, match="total_nats"):
            AdaptiveEntropySum(total_nats=total)
