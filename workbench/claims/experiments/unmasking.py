"""Entropy-sum unmasking on oracles with exact conditionals: KL and iterations beside what the theorem promises.

NAME_L_kl          KL / (eta (1 + log2 L)) - 1
NAME_L_iterations  E[K] / ((H(X0) + KL)/eta + 1) - 1
NAME_100_tokens_per_iteration   100 / E[K] at L = 100, eta chosen so that eta (1 + log2 L) = 0.8 nats
"""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from controllers.unmasking.entropy_sum import EntropySum
from sims.oracles.duplicates import Duplicates
from sims.oracles.names import OracleRequest, build_oracle
from workbench.claims.claim import Measured
from workbench.claims.interval import over_seeds
from workbench.claims.setting import Setting
from workbench.unmasking.accounts import account

ETA_NATS, PAIR_NATS = 0.105, 0.01


def measure(setting: Setting) -> Mapping[str, Measured]:
    lengths = (64, 256) if setting.quick else (64, 256, 1024)
    blocks, repeats = (6, 24) if setting.quick else (10, 48)
    cases = [("pairs", length) for length in lengths] + [("markov", length) for length in lengths]
    found: dict[str, Measured] = {}
    for k, (name, length) in enumerate([*cases, ("pairs", 100), ("markov", 100)]):
        oracle = (
            Duplicates.pairs(length, PAIR_NATS)
            if name == "pairs"
            else build_oracle(name, OracleRequest(length=length, seed=0))
        )
        # Independent blocks of repeats are the replicates.
        seeds = [setting.seed * 1000 + b for b in range(blocks)]
        rule = EntropySum(eta_nats=ETA_NATS)
        parts = [account(oracle, rule, repeats=repeats, seed=s, sampled_path=False) for s in seeds]
        iterations = np.array([p.iterations.mean for p in parts])
        if length == 100:
            found[f"{name}_100_tokens_per_iteration"] = over_seeds(100.0 / iterations)
        else:
            kl = np.array([p.kl_nats.mean for p in parts])
            found[f"{name}_{length}_kl"] = over_seeds(kl / (ETA_NATS * (1.0 + math.log2(length))) - 1.0)
            bound = (oracle.entropy_nats + kl) / ETA_NATS + 1.0
            found[f"{name}_{length}_iterations"] = over_seeds(iterations / bound - 1.0)
        setting.tell((k + 1) / (len(cases) + 2))
    return {
        name: replace(one, method=one.method.replace("paired seeds", "blocks of orders")) for name, one in found.items()
    }
