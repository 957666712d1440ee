"""Popular readings that fail, each with one exact case: how far the case is beyond what the reading allows.

tau_per_net_drop_nats        tau of an alternating entropy trace without net progress, nats (reading: 0)
entropy_share_inversion      share score -a ln a of mass 0.05 over that of mass 0.9, minus 1 (reading: at most 0)
expansion                    |e+|/|e| - 1 of the integral law at k_i V = 3 on two-level logits (reading: at most 0)
ordered_kl_ratio             KL of lowest-entropy-first over the random order's scale eta (1 + log2 L), minus 1
"""

import math
from collections.abc import Mapping

import numpy as np

from controllers.unmasking.ordered_entropy_sum import OrderedEntropySum
from sims.oracles.duplicates import Duplicates
from workbench.claims.claim import Measured
from workbench.claims.interval import exact
from workbench.claims.setting import Setting
from workbench.unmasking.accounts import account

ETA_NATS, PAIR_NATS, LENGTH = 0.105, 0.01, 1024


def measure(setting: Setting) -> Mapping[str, Measured]:
    trace = np.tile([1.0, 2.0], 50)
    tau = float(np.maximum(0.0, -np.diff(trace)).sum())
    drop = float(trace[0] - trace[-1])
    small, large = (-a * math.log(a) for a in (0.05, 0.9))
    setting.tell(0.1)
    ordered = account(
        Duplicates.pairs(LENGTH, PAIR_NATS),
        OrderedEntropySum(eta_nats=ETA_NATS, order="entropy"),
        repeats=1,
        seed=setting.seed,
        sampled_path=False,
    )
    return {
        "tau_per_net_drop_nats": exact(
            tau if drop <= 0.0 else 0.0, f"H alternates 1, 2 nats, 100 tokens: net drop {drop:g}"
        ),
        "entropy_share_inversion": exact(
            small / large - 1.0, f"shares: mass 0.05 scores {small:.3f}, mass 0.9 scores {large:.3f}"
        ),
        "expansion": exact(expansion(), "two-level logits, k_i V = 3, error 1e-4"),
        "ordered_kl_ratio": exact(
            ordered.kl_nats.mean / (ETA_NATS * (1.0 + math.log2(LENGTH))) - 1.0,
            f"duplicated pairs, L = {LENGTH}: KL {ordered.kl_nats.mean:.3g} nats",
        ),
    }


def expansion(loop_gain: float = 3.0, error: float = 1e-4, num_outcomes: int = 1000, spike: float = 9.0) -> float:
    """|u+ - u*| / |u - u*| - 1 of u+ = u + k_i (H* - H(u)) near u* = 0 with k_i V(u*) = `loop_gain`."""

    def statistics(u: float) -> tuple[float, float]:
        logits = np.zeros(num_outcomes)
        logits[0] = spike
        z = logits / math.exp(u)
        log_p = z - np.log(np.exp(z - z.max()).sum()) - z.max()
        p = np.exp(log_p)
        entropy = float(-(p * log_p).sum())
        return entropy, float((p * (log_p + entropy) ** 2).sum())

    target, varentropy = statistics(0.0)
    after = error + loop_gain / varentropy * (target - statistics(error)[0])
    return abs(after) / error - 1.0
