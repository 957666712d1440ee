"""Iterations against length: flat at fixed H(X0), proportional where the entropy is.

Beside the entropy sum, at each length, the uniform schedule that reaches the same divergence (its number of iterations is
searched for) and autoregressive decoding, one pass a position.
"""

from collections.abc import Callable

from controllers.unmasking.entropy_sum import EntropySum
from controllers.unmasking.uniform import Uniform
from sims.oracles.markov import Markov
from sims.oracles.mixture import Mixture
from sims.oracles.oracle import Oracle
from workbench.unmasking.accounts import account
from workbench.unmasking.studies import Tell, command_of
from workbench.unmasking.study import Chart, Series, Study, fitted_power

LENGTHS = (128, 256, 512, 1024, 2048, 4096)
ETA_NATS = 1.0
ENTROPY_NATS = 20.0
RATE_NATS = 0.15  # a position, where H(X0) grows with the length: equal to the fixed entropy at about 128 positions
LIMIT_POWER = 0.1
LONGEST_COSTLY = (
    1024  # where iterations grow with the length (proportional entropy, uniform schedule) longer runs add nothing
)

Family = Callable[[int, float], Oracle]
FAMILIES: dict[str, Family] = {
    "markov": lambda length, entropy: Markov.sticky(length, 8, entropy),
    "mixture": lambda length, entropy: Mixture.codewords(length, entropy),
}


def study(*, repeats: int | None, seed: int, tell: Tell) -> Study:
    number = repeats or 64
    policy = EntropySum(eta_nats=ETA_NATS)
    found = Study(
        name="growth",
        title="Iterations against length",
        intro=(
            f"Entropy sum at eta = {ETA_NATS:g}. At fixed H(X0) = {ENTROPY_NATS:g} nats iterations may grow with log L only; with "
            f"H(X0) = {RATE_NATS:g} L the theorem promises nothing and the gain per position stays what it is."
        ),
        command=command_of("growth", repeats, seed),
        columns=(
            "oracle", "H(X0)", "length", "E_p[K]", "bound", "KL", "uniform, same KL", "autoregressive", "positions a pass",
            "vacuous",
        ),
    )  # fmt: skip
    jobs = [
        (name, fixed, length)
        for name in FAMILIES
        for fixed in (True, False)
        for length in LENGTHS
        if fixed or length <= LONGEST_COSTLY
    ]
    work = sum(length for _, _, length in jobs)
    done = 0.0
    lines: dict[tuple[str, bool], list[tuple[int, float, float, float]]] = {}
    for name, fixed, length in jobs:
        oracle = FAMILIES[name](length, ENTROPY_NATS if fixed else RATE_NATS * length)
        # Runs grow long where the entropy does, and vary less: fewer of them give the same interval.
        a = account(oracle, policy, repeats=number if fixed else max(2, number // 4), seed=seed, sampled_path=False)
        uniform = None
        if fixed and length <= LONGEST_COSTLY:
            uniform = matched_uniform(oracle, a.kl_nats.mean, round(a.iterations.mean), seed)
        found.rows.append(
            (
                name, round(oracle.entropy_nats, 6), length, a.iterations, a.bound_iterations, a.kl_nats, uniform, length,
                a.saving, a.vacuous,
            )
        )  # fmt: skip
        lines.setdefault((name, fixed), []).append(
            (length, a.iterations.mean, a.iterations.half_width, float(uniform or 0))
        )
        done += length
        tell(done / work)
    series = []
    for (name, fixed), points in lines.items():
        x, y = [p[0] for p in points], [p[1] for p in points]
        power = fitted_power(x, y, [p[2] for p in points])
        found.figures[f"power_{name}_{'fixed' if fixed else 'proportional'}"] = power.mean
        if fixed:
            found.state(
                f"{name}, H(X0) = {ENTROPY_NATS:g} nats: iterations grow as L to the {power}, at most {LIMIT_POWER} within its interval",
                power.low <= LIMIT_POWER,
            )
            matched = [p for p in points if p[3] > 0]
            other = fitted_power([p[0] for p in matched], [p[3] for p in matched]).mean
            found.figures[f"power_{name}_uniform"] = other
            found.notes.append(
                f"{name}: the uniform schedule of equal divergence grows as L^{other:.2f}, from {matched[0][3]:g} to "
                f"{matched[-1][3]:g} iterations at L = {matched[-1][0]}."
            )
            series.append(Series(f"{name}, uniform of equal KL", [p[0] for p in matched], [p[3] for p in matched]))
        else:
            found.state(
                f"{name}, H(X0) = {RATE_NATS:g} L: the gain is gone, iterations grow as L to the {power}, at least 0.9 within its interval",
                power.high >= 0.9,
            )
        label = f"{name}, H = {ENTROPY_NATS:g}" if fixed else f"{name}, H = {RATE_NATS:g} L"
        series.append(Series(label, x, y, [p[2] for p in points]))
    series.append(Series("autoregressive", LENGTHS, LENGTHS, guide=True))
    found.charts.append(
        Chart("iterations-against-length", "Iterations against length", "length L", "iterations", series)
    )
    return found


def matched_uniform(oracle: Oracle, kl_nats: float, start: int, seed: int, repeats: int = 6) -> int:
    """About the fewest iterations (within a tenth) with which the uniform schedule's divergence is at most `kl_nats`.

    Divergence falls with the number of iterations: doubled from `start` until it fits, then halved on the logarithm.
    """

    def fits(iterations: int) -> bool:
        rule = Uniform(num_iterations=iterations)
        return account(oracle, rule, repeats=repeats, seed=seed, sampled_path=False).kl_nats.mean <= kl_nats

    low, high = 1, max(1, start)
    while high < oracle.length and not fits(high):
        low, high = high, 2 * high
    high = min(high, oracle.length)
    while high > 1.1 * low + 1:
        middle = round((low * high) ** 0.5)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
