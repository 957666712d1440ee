"""Entropy-sum unmasking on oracles with exact conditionals: KL and iterations beside what the theorem promises.

NAME_L_kl          KL / (eta (1 + log2 L)) - 1
NAME_L_iterations  E[K] / ((H(X0) + KL)/eta + 1) - 1
NAME_100_tokens_per_iteration   100 / E[K] at L = 100
NAME_untuned_kl, NAME_untuned_iterations   the same two at L = 64 with one eta for every law, nothing told or tuned; H(X0) + KL
                   by the entropies spent on the same paths
NAME_growth        E[K] of a long sequence over that of a short one, over the ratio of 1 + log2 L, minus 1; H(X0) and eta fixed

Replicates are independent blocks of orders.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from controllers.unmasking.entropy_sum import EntropySum
from sims.oracles.duplicates import Duplicates
from sims.oracles.markov import Markov
from sims.oracles.mixture import Mixture
from sims.oracles.names import OracleRequest, build_oracle
from sims.oracles.oracle import Oracle
from workbench.claims.claim import Measured
from workbench.claims.interval import over_seeds
from workbench.claims.setting import Setting
from workbench.unmasking.accounts import Account, account

ETA_NATS, PAIR_NATS = 0.105, 0.01
UNTUNED_ETA_NATS, UNTUNED_LENGTH = 1.0, 64
UNTUNED = ("markov", "hmm", "mixture", "pairs", "parity", "k-of-n", "replace", "shuffle")
GROWTH_ETA_NATS, GROWTH_ENTROPY_NATS = 0.5, 20.0


def measure(setting: Setting) -> Mapping[str, Measured]:
    lengths = setting.size((64, 256), (64, 256, 1024))
    blocks, repeats = setting.size((6, 24), (10, 48))
    seeds = [setting.seed * 1000 + b for b in range(blocks)]
    found: dict[str, Measured] = {}

    def accounts(oracle: Oracle, eta_nats: float, repeats: int = repeats) -> list[Account]:
        rule = EntropySum(eta_nats=eta_nats)
        return [account(oracle, rule, repeats=repeats, seed=s, sampled_path=False) for s in seeds]

    for name in ("pairs", "markov"):
        for length in lengths:
            both = beyond(_oracle(name, length), accounts(_oracle(name, length), ETA_NATS), ETA_NATS)
            found |= {f"{name}_{length}_{key}": one for key, one in both.items()}
        iterations = np.array([a.iterations.mean for a in accounts(_oracle(name, 100), ETA_NATS)])
        found[f"{name}_100_tokens_per_iteration"] = over_seeds(100.0 / iterations)
    setting.tell(0.4)
    for name in UNTUNED:
        oracle = _oracle(name, UNTUNED_LENGTH)
        told = accounts(oracle, UNTUNED_ETA_NATS, max(6, repeats // 2))
        found[f"{name}_untuned_kl"] = beyond(oracle, told, UNTUNED_ETA_NATS)["kl"]
        # Entropies spent have the expectation H(X0) + KL, and vary with the iterations of the same paths.
        ratio = [a.iterations.mean / (a.entropy_spent_nats.mean / UNTUNED_ETA_NATS + 1.0) for a in told]
        found[f"{name}_untuned_iterations"] = over_seeds(np.array(ratio) - 1.0)
    setting.tell(0.7)
    short, long = 256, setting.size(1024, 2048)
    families = {"markov": lambda n: Markov.sticky(n, 8, GROWTH_ENTROPY_NATS),
                "mixture": lambda n: Mixture.codewords(n, GROWTH_ENTROPY_NATS)}  # fmt: skip
    for name, family in families.items():
        few, many = (np.array([a.iterations.mean for a in accounts(family(n), GROWTH_ETA_NATS)]) for n in (short, long))
        scale = (1.0 + math.log2(long)) / (1.0 + math.log2(short))
        found[f"{name}_growth"] = over_seeds(many / few / scale - 1.0)
    setting.tell(1.0)
    return {
        name: replace(one, method=one.method.replace("paired seeds", "blocks of orders")) for name, one in found.items()
    }


def _oracle(name: str, length: int) -> Oracle:
    if name == "pairs":
        return Duplicates.pairs(length, PAIR_NATS)
    return build_oracle(name, OracleRequest(length=length, seed=0))


def beyond(oracle: Oracle, accounts: list[Account], eta_nats: float) -> dict[str, Measured]:
    """`kl` and `iterations` beyond what the theorem promises, as shares of it."""
    kl = np.array([a.kl_nats.mean for a in accounts])
    iterations = np.array([a.iterations.mean for a in accounts])
    bound = (oracle.entropy_nats + kl) / eta_nats + 1.0
    return {
        "kl": over_seeds(kl / (eta_nats * (1.0 + math.log2(oracle.length))) - 1.0),
        "iterations": over_seeds(iterations / bound - 1.0),
    }
