"""Popular readings that fail, each with one exact case: how far the case is beyond what the reading allows.

tau_per_net_drop_nats        tau of an alternating entropy trace without net progress, nats (reading: 0)
entropy_share_inversion      share score -a ln a of mass 0.05 over that of mass 0.9, minus 1 (reading: at most 0)
expansion                    |e+|/|e| - 1 of the integral law at k_i V = 3 on two-level logits (reading: at most 0)
own_NAME                     the paper's own range for the whole over the product of its own parts, ln of the gain; its ends
                             are the ends of that range, no confidence interval
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

# The paper's table: (low and high factor of the whole, factors of the parts, +1 where more is better)
OWN_NUMBERS = {
    "latency": ((0.65, 0.75), (0.98, 0.88, 0.85), -1),
    "throughput": ((1.30, 1.45), (1.02, 1.15, 1.20), +1),
    "tau_rate": ((1.40, 1.60), (1.08, 1.12, 1.25), +1),
}
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
    return own_numbers() | {
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


def own_numbers() -> dict[str, Measured]:
    """ln(whole / product of parts), oriented so that above 0 the whole is more than its parts."""
    found = {}
    for name, (ends, parts, sign) in OWN_NUMBERS.items():
        low, high = sorted(sign * math.log(end / math.prod(parts)) for end in ends)
        found[f"own_{name}"] = Measured(
            0.5 * (low + high), low, high, f"the paper's range; its parts multiply to {math.prod(parts):.3f}"
        )
    return found


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
