"""Algorithm 2 (max entropy) against Algorithm 1 (entropy sum), and against the two rates it could have.

For each length and entropy the fewest iterations with which each rule keeps KL at most eps, over a grid of its knobs. The
rate printed for Algorithm 2 is H L/eps; sqrt(H L/eps) is likelier: the fitted power of L (1 or 1/2 at fixed H) decides.
"""

from dataclasses import dataclass

import numpy as np

from controllers.unmasking.entropy_sum import EntropySum
from controllers.unmasking.max_entropy import MaxEntropy
from sims.oracles.markov import Markov
from sims.oracles.oracle import Oracle
from workbench.unmasking.accounts import Account, Policy, account
from workbench.unmasking.studies import Tell, command_of
from workbench.unmasking.study import Chart, Series, Study, fitted_power

LENGTHS = (64, 128, 256, 512, 1024)
ENTROPIES_NATS = (10.0, 40.0)
EPS_NATS = 0.5
ETAS = tuple(float(x) for x in np.geomspace(0.1, 3.0, 8))
THRESHOLDS = (0.1, 0.2, 0.4, 0.8)
CAPS = (4, 8, 16, 32, 64, 128)


@dataclass(frozen=True)
class Best:
    iterations: float
    half_width: float
    kl_nats: float
    knobs: str


def study(*, repeats: int | None, seed: int, tell: Tell) -> Study:
    number = repeats or 8
    found = Study(
        name="algorithms",
        title="Algorithm 2 against Algorithm 1",
        intro=(
            f"Markov chain of 8 states. Fewest iterations with KL <= {EPS_NATS:g} nats over a grid of knobs: eta for Algorithm 1; "
            "threshold and batch cap for Algorithm 2. The guides sqrt(H L/eps) and H L/eps carry no constant."
        ),
        command=command_of("algorithms", repeats, seed),
        columns=(
            "H(X0)", "length", "Alg. 1 K", "KL", "eta", "Alg. 2 K", "its KL", "threshold, cap", "sqrt(H L/eps)", "H L/eps",
        ),
    )  # fmt: skip
    jobs = [(entropy, length) for entropy in ENTROPIES_NATS for length in LENGTHS]
    work, done = sum(length for _, length in jobs), 0.0
    lines: dict[float, list[tuple[int, float, float]]] = {}
    for entropy, length in jobs:
        oracle = Markov.sticky(length, 8, entropy)
        sums = best(oracle, [(f"{eta:.3g}", EntropySum(eta_nats=eta)) for eta in ETAS], number, seed)
        # Larger caps cost more and save more: for each threshold stop at the first cap that breaks the budget.
        grids = [
            [(f"{t:g}, {cap}", MaxEntropy(threshold_nats=t, batch_cap=cap)) for cap in CAPS if cap <= length]
            for t in THRESHOLDS
        ]
        bests = [b for grid in grids if (b := best(oracle, grid, number, seed)) is not None]
        maxes = min(bests, key=lambda b: b.iterations, default=None)
        root, product = float(np.sqrt(entropy * length / EPS_NATS)), entropy * length / EPS_NATS
        found.rows.append(
            (
                entropy, length, sums and sums.iterations, sums and sums.kl_nats, sums and sums.knobs,
                maxes and maxes.iterations, maxes and maxes.kl_nats, maxes and maxes.knobs, root, product,
            )
        )  # fmt: skip
        if sums and maxes:
            lines.setdefault(entropy, []).append((length, sums.iterations, maxes.iterations))
        done += length
        tell(done / work)
    series, roots = [], []
    for entropy, points in lines.items():
        x = [p[0] for p in points]
        one, two = (fitted_power(x, [p[j] for p in points]).mean for j in (1, 2))
        found.figures |= {f"power_algorithm_1_h{entropy:g}": one, f"power_algorithm_2_h{entropy:g}": two}
        roots.append(two)
        series.append(Series(f"Algorithm 1, H = {entropy:g}", x, [p[1] for p in points]))
        series.append(Series(f"Algorithm 2, H = {entropy:g}", x, [p[2] for p in points]))
        found.state(
            f"H(X0) = {entropy:g}: Algorithm 2 grows as L^{two:.2f}, nearer to sqrt(H L/eps) (1/2) than to H L/eps (1); "
            f"Algorithm 1 as L^{one:.2f}",
            abs(two - 0.5) < abs(two - 1.0),
        )
    middle = ENTROPIES_NATS[len(ENTROPIES_NATS) // 2]
    guide = [float(np.sqrt(middle * n / EPS_NATS)) for n in LENGTHS]
    series.append(Series(f"sqrt(H L/eps), H = {middle:g}", LENGTHS, guide, guide=True))
    series.append(
        Series(f"H L/eps, H = {middle:g}", LENGTHS[:3], [middle * n / EPS_NATS for n in LENGTHS[:3]], guide=True)
    )
    found.charts.append(
        Chart("algorithm-2", f"Iterations with KL <= {EPS_NATS:g} nats", "length L", "iterations", series)
    )
    found.figures["power_algorithm_2"] = float(np.mean(roots)) if roots else None
    return found


def best(oracle: Oracle, grid: list[tuple[str, Policy]], repeats: int, seed: int) -> Best | None:
    """The setting of fewest iterations among those within the budget; the grid goes from careful to bold."""
    chosen: Best | None = None
    for knobs, policy in grid:
        a: Account = account(oracle, policy, repeats=repeats, seed=seed, sampled_path=False)
        if a.kl_nats.mean > EPS_NATS:
            break
        if chosen is None or a.iterations.mean < chosen.iterations:
            chosen = Best(a.iterations.mean, a.iterations.half_width, a.kl_nats.mean, knobs)
    return chosen
