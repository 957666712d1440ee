"""Algorithm 2 (max entropy): how its iterations grow, and whether it must be told H(X0).

Sticky Markov chains of 8 states. For every length the fewest iterations with KL at most eps over its two knobs (some
thresholds, the batch cap searched), and the same for Algorithm 1 over its one knob; replicates are independent blocks of orders.

length_power       exponent of L in Algorithm 2's iterations at fixed H(X0): 1 as printed, 1/2 if sqrt(H L / eps)
entropy_power      exponent of H(X0) at fixed L
slower             Algorithm 2's iterations over Algorithm 1's at the longest L, minus 1
NAME_prior_kl      Algorithm 2 with the knobs that are best at a small H(X0), used at a large one: KL / eps - 1; NAME is chains, or
                   pairs: duplicated pairs whose entropies lie below the threshold, so that the cap does the work
NAME_prior_within  Algorithm 1 the same way, beside its own scale: 1 - KL / (eta (1 + log2 L))
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from controllers.unmasking.entropy_sum import EntropySum
from controllers.unmasking.max_entropy import MaxEntropy
from sims.oracles.duplicates import Duplicates
from sims.oracles.markov import Markov
from sims.oracles.oracle import Oracle
from workbench.claims.claim import Measured
from workbench.claims.interval import over_seeds
from workbench.claims.setting import Setting
from workbench.unmasking.accounts import Policy, account
from workbench.unmasking.study import fitted_power

EPS_NATS, STATES = 0.5, 8
ETAS = tuple(float(x) for x in np.geomspace(0.05, 5.0, 16))
THRESHOLDS = (0.05, 0.15, 0.5)
CAPS = (1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128, 181, 256)


@dataclass(frozen=True)
class Best:
    """The boldest policy within the budget, and the iterations that the budget itself would take."""

    policy: Policy
    iterations: float


def at_budget(oracle: Oracle, ladder: Sequence[Policy], repeats: int, seed: int) -> Best | None:
    """A ladder from careful to bold, KL rising along it: bisected for the last rung within the budget, then ln K is
    interpolated in ln KL between the rungs on both sides of it. None where the first rung is beyond."""

    def at(rung: int) -> tuple[float, float]:
        a = account(oracle, ladder[rung], repeats=repeats, seed=seed, sampled_path=False)
        return a.kl_nats.mean, a.iterations.mean

    low, high = 0, len(ladder) - 1
    kl_low, few_low = at(low)
    if kl_low > EPS_NATS:
        return None
    kl_high, few_high = at(high)
    if kl_high <= EPS_NATS:
        return Best(ladder[high], few_high)
    while high - low > 1:
        middle = (low + high) // 2
        kl, few = at(middle)
        if kl > EPS_NATS:
            high, kl_high, few_high = middle, kl, few
        else:
            low, kl_low, few_low = middle, kl, few
    share = math.log(EPS_NATS / max(kl_low, 1e-6)) / math.log(kl_high / max(kl_low, 1e-6))
    return Best(ladder[low], math.exp((1.0 - share) * math.log(few_low) + share * math.log(few_high)))


def best(oracle: Oracle, ladders: Sequence[Sequence[Policy]], repeats: int, seed: int) -> Best:
    """The least iterations over ladders; one position a pass where none fits the budget."""
    found = [b for ladder in ladders if (b := at_budget(oracle, ladder, repeats, seed)) is not None]
    careful = Best(MaxEntropy(threshold_nats=0.0, batch_cap=1), float(oracle.length))
    return min(found, key=lambda b: b.iterations, default=careful)


def max_entropy_ladders(length: int, thresholds: Sequence[float] = THRESHOLDS) -> list[list[Policy]]:
    return [[MaxEntropy(threshold_nats=t, batch_cap=cap) for cap in CAPS if cap <= length] for t in thresholds]


def entropy_sum_ladder() -> list[list[Policy]]:
    return [[EntropySum(eta_nats=eta) for eta in ETAS]]


def pairs_of_laws(length: int, entropies: Sequence[float]) -> dict[str, tuple[Oracle, Oracle, Sequence[float]]]:
    """(law of small entropy, law of large entropy, thresholds) of each family."""
    small, large = 2.5, 10.0  # of duplicated pairs: at most 0.16 nats a pair, below the largest threshold
    return {
        "chains": (*(Markov.sticky(length, STATES, h) for h in (entropies[0], entropies[-1])), THRESHOLDS),
        "pairs": (*(Duplicates.pairs(length, h / (length // 2)) for h in (small, large)), THRESHOLDS[-1:]),
    }  # type: ignore[return-value]


def measure(setting: Setting) -> Mapping[str, Measured]:
    lengths = setting.size((64, 128, 256), (64, 128, 256, 512))
    entropies = setting.size((5.0, 20.0), (5.0, 10.0, 20.0, 40.0))
    blocks, repeats = setting.size((5, 8), (8, 12))
    fixed_entropy, fixed_length = 10.0, 128
    columns: dict[str, list[float]] = {}
    for block in range(blocks):
        seed = setting.seed * 1000 + block

        def two(length: int, entropy: float, seed: int = seed) -> Best:
            return best(Markov.sticky(length, STATES, entropy), max_entropy_ladders(length), repeats, seed)

        by_length = {n: two(n, fixed_entropy) for n in lengths}
        by_entropy = {h: two(fixed_length, h) for h in entropies}
        longest = Markov.sticky(lengths[-1], STATES, fixed_entropy)
        one = best(longest, entropy_sum_ladder(), repeats, seed)
        row = {
            "length_power": fitted_power(lengths, [by_length[n].iterations for n in lengths]).mean,
            "entropy_power": fitted_power(entropies, [by_entropy[h].iterations for h in entropies]).mean,
            "slower": by_length[lengths[-1]].iterations / one.iterations - 1.0,
        }
        for family, (few, many, bold) in pairs_of_laws(fixed_length, entropies).items():
            two_few = best(few, max_entropy_ladders(fixed_length, bold), repeats, seed).policy
            one_few = best(few, entropy_sum_ladder(), repeats, seed).policy
            two_many, one_many = (
                account(many, policy, repeats=repeats, seed=seed, sampled_path=False).kl_nats.mean
                for policy in (two_few, one_few)
            )
            row[f"{family}_prior_kl"] = two_many / EPS_NATS - 1.0
            scale = one_few.eta_nats * (1.0 + math.log2(fixed_length))  # type: ignore[attr-defined]
            row[f"{family}_prior_within"] = 1.0 - one_many / scale
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
        setting.tell((block + 1) / blocks)
    return {
        name: replace(over_seeds(np.array(x)), method=f"t over {blocks} blocks of orders")
        for name, x in columns.items()
    }
