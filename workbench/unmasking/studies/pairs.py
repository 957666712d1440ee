"""Duplicated pairs: the guarantee belongs to the random order.

Each position's mate carries all of its information. Taken together they cost h nats; taken apart, nothing. A random order
puts mates into one batch about as often as log length allows; lowest-entropy-first, ties by position, always does.
"""

import math

from controllers.unmasking.entropy_sum import EntropySum
from controllers.unmasking.ordered_entropy_sum import OrderedEntropySum
from sims.oracles.duplicates import Duplicates
from workbench.unmasking.accounts import account
from workbench.unmasking.estimate import exact
from workbench.unmasking.studies import Tell, command_of
from workbench.unmasking.study import Chart, Series, Study

PAIR_ENTROPY_NATS = 0.01
ETA_NATS = 0.105
LENGTHS = {256: 1600, 1024: 400, 4096: 100}  # length: repeats
EXPECTED = {256: (0.113, 0.001), 1024: (0.148, 0.002), 4096: (0.185, 0.004)}  # found by an independent simulation
EXPECTED_ORDERED = {256: 1.07, 1024: 4.27, 4096: 17.1}


def study(*, repeats: int | None, seed: int, tell: Tell) -> Study:
    found = Study(
        name="pairs",
        title="Why the order matters: duplicated pairs",
        intro=(
            f"Adjacent twins of entropy h = {PAIR_ENTROPY_NATS} nats a pair, eta = {ETA_NATS} nats. Entropies look alike in "
            "both orders; only the random one keeps mates apart. KL is exact per order: h times the pairs split by no batch."
        ),
        command=command_of("pairs", repeats, seed),
        columns=(
            "length",
            "order",
            "KL",
            "expected",
            "iterations",
            "bound on iterations",
            "eta (1 + log2 L)",
            "repeats",
        ),
    )
    lines: dict[str, list[tuple[int, float, float]]] = {}
    done, work = 0.0, sum(length**2 for length in LENGTHS)
    for length, own_repeats in LENGTHS.items():
        oracle = Duplicates.pairs(length, PAIR_ENTROPY_NATS)
        number = repeats or own_repeats
        random = account(oracle, EntropySum(eta_nats=ETA_NATS), repeats=number, seed=seed, sampled_path=False)
        ordered = account(
            oracle, OrderedEntropySum(eta_nats=ETA_NATS, order="entropy"), repeats=1, seed=seed, sampled_path=False
        )
        mean, error = EXPECTED[length]
        for name, result, expected in (
            ("random", random, f"{mean} +- {error}"),
            ("lowest entropy first", ordered, f"{EXPECTED_ORDERED[length]:.3g}"),
        ):
            # No randomness is left in the ordered rule here: entropies do not depend on the tokens.
            kl = result.kl_nats if name == "random" else exact(result.kl_nats.mean)
            iterations = result.iterations if name == "random" else exact(result.iterations.mean)
            bound = result.bound_iterations if name == "random" else None
            found.rows.append(
                (length, name, kl, expected, iterations, bound, ETA_NATS * (1.0 + math.log2(length)), result.repeats)
            )
            lines.setdefault(name, []).append((length, kl.mean, kl.half_width))
        # The expected value has an interval of its own (one standard error given): both must meet.
        gap = abs(random.kl_nats.mean - mean)
        found.state(
            f"L = {length}, random order: KL {random.kl_nats} nats agrees with {mean} +- {error}",
            gap <= random.kl_nats.half_width + 2.0 * error,
        )
        ordered_gap = abs(ordered.kl_nats.mean / EXPECTED_ORDERED[length] - 1.0)
        found.state(
            f"L = {length}, lowest entropy first: KL {ordered.kl_nats.mean:.4g} nats agrees with {EXPECTED_ORDERED[length]}",
            ordered_gap < 0.005,
        )
        found.figures |= {
            f"kl_random_{length}_nats": random.kl_nats.mean,
            f"kl_random_{length}_half_width_nats": random.kl_nats.half_width,
            f"kl_ordered_{length}_nats": ordered.kl_nats.mean,
        }
        done += length**2
        tell(done / work)
    found.charts.append(
        Chart(
            "kl-against-length", "KL against length, duplicated pairs", "length L", "KL(p || q_order), nats",
            [Series(n, [p[0] for p in ps], [p[1] for p in ps], [p[2] for p in ps]) for n, ps in lines.items()]
            + [Series("eta (1 + log2 L)", list(LENGTHS), [ETA_NATS * (1.0 + math.log2(n)) for n in LENGTHS], guide=True)],
        )
    )  # fmt: skip
    return found
