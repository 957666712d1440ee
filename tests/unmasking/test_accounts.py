import numpy as np
import pytest

from controllers.unmasking.eb_sampler import EBSampler
from controllers.unmasking.entropy_sum import EntropySum
from controllers.unmasking.low_confidence import LowConfidence
from controllers.unmasking.ordered_entropy_sum import OrderedEntropySum
from controllers.unmasking.remasking import Remasking
from controllers.unmasking.semi_autoregressive import SemiAutoregressive
from sims.oracles.duplicates import Duplicates
from sims.oracles.hidden_markov import HiddenMarkov
from sims.oracles.markov import Markov
from sims.oracles.names import BUILDERS, OracleRequest, build_oracle
from workbench.errors import InputError
from workbench.unmasking.accounts import account
from workbench.unmasking.enumeration import law_of_mixture


def test_duplicated_pairs_random_order_against_lowest_entropy_first():
    oracle = Duplicates.pairs(256, 0.01)
    random = account(oracle, EntropySum(eta_nats=0.105), repeats=1200, sampled_path=False)
    assert abs(random.kl_nats.mean - 0.113) < random.kl_nats.half_width + 0.002
    assert random.kl_nats.half_width < 0.002
    for length, expected in ((256, 1.07), (1024, 4.27)):
        ordered = account(
            Duplicates.pairs(length, 0.01), OrderedEntropySum(eta_nats=0.105), repeats=1, sampled_path=False
        )
        assert ordered.kl_nats.mean == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("eta", [0.3, 1.0])
def test_monte_carlo_agrees_with_enumeration(eta):
    oracle = Markov.sticky(5, 2, entropy_nats=2.0)
    exact = law_of_mixture(oracle, EntropySum(eta_nats=eta))
    a = account(oracle, EntropySum(eta_nats=eta), repeats=6000)
    assert abs(a.kl_nats.mean - exact.kl_mean_nats) <= 2.0 * a.kl_nats.half_width
    assert abs(a.iterations.mean - exact.iterations) <= 2.0 * a.iterations.half_width + 1e-12
    assert abs(a.iterations_sampled.mean - exact.iterations_sampled) <= 2.0 * a.iterations_sampled.half_width + 1e-12
    assert abs(a.entropy_sampled_nats.mean - exact.entropy_mean_nats) <= 2.0 * a.entropy_sampled_nats.half_width


@pytest.mark.parametrize("name", sorted(set(BUILDERS) - {"table"}))
@pytest.mark.parametrize("eta", [0.1, 1.0])
def test_both_accounts_of_divergence_and_every_bound_hold_on_every_oracle(name, eta):
    oracle = build_oracle(name, OracleRequest(length=32))
    a = account(oracle, EntropySum(eta_nats=eta), repeats=24)
    assert a.paths_within_bound == 1.0
    assert a.kl_nats.low <= a.bound_kl_nats.mean + 1e-9
    slack = (a.kl_nats.half_width + a.entropy_error_nats) / eta + a.iterations.half_width
    assert a.iterations.mean <= a.bound_iterations + slack
    assert a.iterations_sampled.mean <= a.bound_iterations_sampled + 1e-9
    assert a.kl_over_scale <= 1.0
    # H(X0) + KL is spent on the true path: the third, independent way to the same divergence.
    gap = a.entropy_spent_nats.mean - a.entropy_nats - a.kl_nats.mean
    spread = a.entropy_spent_nats.half_width + a.kl_nats.half_width + a.entropy_error_nats
    assert abs(gap) <= 2.0 * spread + 1e-9


def test_log_ratios_take_over_where_batches_cannot_be_enumerated():
    oracle = HiddenMarkov.noisy_switch(64)
    a = account(oracle, EntropySum(eta_nats=30.0), repeats=30, sampled_path=False)
    assert a.kl_method == "log-ratios"
    b = account(oracle, EntropySum(eta_nats=2.0), repeats=30, sampled_path=False)
    assert b.kl_method == "joint entropies"


def test_an_independent_joint_costs_nothing_whatever_the_policy():
    oracle = build_oracle("independent", OracleRequest(length=50))
    for policy in (EntropySum(eta_nats=np.inf), EBSampler(gamma_nats=3.0), LowConfidence(count=9)):
        assert account(oracle, policy, repeats=4).kl_nats.mean == pytest.approx(0.0, abs=1e-9)


def test_vacuous_is_said_where_the_bound_promises_nothing():
    assert account(build_oracle("parity", OracleRequest(length=64)), EntropySum(eta_nats=0.1), repeats=2).vacuous
    assert not account(Duplicates.pairs(256), EntropySum(eta_nats=0.105), repeats=2).vacuous
    eb = account(Duplicates.pairs(64), EBSampler(), repeats=2)
    assert not eb.vacuous
    assert np.isnan(eb.bound_iterations)


def test_chunks_do_not_change_the_result(monkeypatch):
    oracle = Markov.sticky(64, 4, entropy_nats=6.0)
    whole = account(oracle, EntropySum(eta_nats=0.5), repeats=10)
    monkeypatch.setattr("workbench.unmasking.accounts.MAX_CELLS", 64 * 4 * 3)
    assert account(oracle, EntropySum(eta_nats=0.5), repeats=10) == whole


def test_refuses_no_repeats_and_remasking():
    oracle = Duplicates.pairs(8)
    with pytest.raises(InputError, match="--repeats"):
        account(oracle, EntropySum(), repeats=0)
    with pytest.raises(InputError, match="masks positions again"):
        account(oracle, SemiAutoregressive(Remasking(EntropySum())), repeats=1)
