"""One oracle under one policy: the account, the exact law where it can be enumerated, and pictures of it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from sims.oracles.names import BUILDERS, OracleRequest, build_oracle
from sims.oracles.oracle import Oracle
from workbench.errors import InputError
from workbench.signals import FloatArray, IntArray
from workbench.unmasking.accounts import Account, account
from workbench.unmasking.charts import order_heat_map, reveal_animation
from workbench.unmasking.enumeration import MixedLaw, OrderLaw, law_of_mixture, law_of_order
from workbench.unmasking.ledger import Batch
from workbench.unmasking.plant import UnmaskPlant, decode
from workbench.unmasking.policies import NamedPolicy
from workbench.unmasking.predictor import OraclePredictor
from workbench.unmasking.study import Chart, Series, Study

Tell = Callable[[float], None]
HEAT_MAP_RUNS = 24
SWEEP_REPEATS = 12


@dataclass(frozen=True)
class Setting:
    oracle: str
    request: OracleRequest
    policy: NamedPolicy
    repeats: int
    seed: int
    rank: IntArray | None = None  # [length] one order for every run, in place of random ones


def single_study(setting: Setting, command: str, tell: Tell) -> tuple[Study, Account]:
    """The account as a table with statements. Raises InputError for settings that cannot be."""
    oracle = build_oracle(setting.oracle, setting.request)
    a = account(
        oracle,
        setting.policy.policy,
        repeats=setting.repeats,
        seed=setting.seed,
        rank=setting.rank,
        on_progress=lambda done, total: tell(done / total),
    )
    law = _law(oracle, setting)
    mean = "mean over orders" if setting.rank is None else "of the order given"
    study = Study(
        name=f"{setting.oracle}-{setting.policy.label}",
        title=f"{setting.policy.label} on {setting.oracle}, {oracle.length} positions",
        intro=f"{BUILDERS[setting.oracle][0].capitalize()}; {oracle.num_symbols} symbols. Account by {a.kl_method}, {a.repeats} runs.",
        command=command,
        columns=("quantity", "measured", "bound", "note"),
    )
    entropy = f"{oracle.entropy_nats:.6g}"
    if oracle.entropy_error_nats > 0.0:
        entropy += f" +- {oracle.entropy_error_nats:.2g} (bracket)"
    study.rows = [
        ("H(X0), nats", entropy, None, "exact" if oracle.entropy_error_nats == 0.0 else "certified bracket"),
        (f"KL, {mean}, nats", a.kl_nats, a.bound_kl_nats.mean, "bound: E_p sum over batches of sum H - max H"),
        ("iterations, true path", a.iterations, a.bound_iterations, "bound: (H + KL)/eta + 1"),
        ("iterations, sampled path", a.iterations_sampled, a.bound_iterations_sampled, "bound: H(q)/eta + 1"),
        (f"H(q), {mean}, nats", a.entropy_sampled_nats, None, "entropies spent on the sampled path"),
        ("KL / (eta (1 + log2 L))", a.kl_over_scale, None, "the theorem's O(eta log L); its constant is not stated"),
        ("positions an iteration", a.saving, None, "vacuous: the bound promises no gain" if a.vacuous else ""),
    ]
    if setting.rank is not None:
        study.notes.append(
            "One order for every run: KL = O(eta log L) is a statement about random orders, not about this one."
        )
        if (own := _law_of_order(oracle, setting)) is not None:
            study.rows.append(("KL of the order given, exact", own.kl_nats, None, "all sequences"))
            study.rows += _iteration_rows(own, oracle.entropy_nats + own.kl_nats, own.entropy_nats, a.eta_nats)
    if law is not None:
        study.rows += [
            (
                "KL of the mixed sampler, nats",
                law.kl_nats,
                law.kl_mean_nats,
                "exact, all orders; bound: mean over orders",
            ),
            *_iteration_rows(law, oracle.entropy_nats + law.kl_mean_nats, law.entropy_mean_nats, a.eta_nats),
        ]
    _state(study, a, law)
    study.figures = figures_of(a, law)
    return study, a


def figures_of(a: Account, law: MixedLaw | None) -> dict[str, float | int | None]:
    return {
        "kl_nats": a.kl_nats.mean,
        "kl_half_width_nats": a.kl_nats.half_width,
        "iterations": a.iterations.mean,
        "iterations_half_width": a.iterations.half_width,
        "iterations_sampled": a.iterations_sampled.mean,
        "entropy_nats": a.entropy_nats,
        "entropy_error_nats": a.entropy_error_nats,
        "entropy_sampled_nats": a.entropy_sampled_nats.mean,
        "entropy_spent_nats": a.entropy_spent_nats.mean,
        "bound_kl_nats": a.bound_kl_nats.mean,
        "bound_iterations": a.bound_iterations,
        "bound_iterations_sampled": a.bound_iterations_sampled,
        "scale_kl_nats": a.scale_kl_nats,
        "kl_over_scale": a.kl_over_scale,
        "vacuous": int(a.vacuous),
        "length": a.length,
        "repeats": a.repeats,
        "kl_mixed_nats": None if law is None else law.kl_nats,
        "kl_mean_nats": None if law is None else law.kl_mean_nats,
    }


def _law_of_order(oracle: Oracle, setting: Setting) -> OrderLaw | None:
    assert setting.rank is not None
    try:
        return law_of_order(oracle, setting.policy.policy, setting.rank, setting.seed)
    except InputError:
        return None


def _law(oracle: Oracle, setting: Setting) -> MixedLaw | None:
    if setting.rank is not None:
        return None
    try:
        return law_of_mixture(oracle, setting.policy.policy, setting.seed)
    except InputError:
        return None


def _bound(entropy_nats: float, eta_nats: float | None) -> float:
    if eta_nats is None:
        return float("nan")
    return float("inf") if eta_nats == 0.0 else entropy_nats / eta_nats + 1.0


def _iteration_rows(
    law: OrderLaw | MixedLaw, spent_nats: float, sampled_entropy_nats: float, eta_nats: float | None
) -> list[tuple[str, float, float | None, str]]:
    """E[K] beside its bound, on the true path (H(X0) + KL is spent) and on the sampled one (H(q) is)."""
    return [
        ("iterations, exact", law.iterations, _bound(spent_nats, eta_nats), "true path"),
        ("iterations sampled, exact", law.iterations_sampled, _bound(sampled_entropy_nats, eta_nats), "sampled path"),
    ]


def _state(study: Study, a: Account, law: MixedLaw | None) -> None:
    tiny = 1e-9

    def wide(half_width: float) -> float:
        return half_width if np.isfinite(half_width) else 0.0

    study.state(
        "KL <= E_p[sum over batches of sum H - max H]",
        a.kl_nats.mean <= a.bound_kl_nats.mean + wide(a.kl_nats.half_width) + tiny,
    )
    if not np.isnan(a.paths_within_bound):
        study.state("(K - 1) eta <= entropies spent on every path", a.paths_within_bound == 1.0)
    if a.eta_nats is not None and np.isfinite(a.bound_iterations):
        slack = wide(a.iterations.half_width)
        if 0.0 < a.eta_nats < np.inf:
            slack += (wide(a.kl_nats.half_width) + a.entropy_error_nats) / a.eta_nats
        study.state("E_p[K] <= (H(X0) + KL)/eta + 1", a.iterations.mean <= a.bound_iterations + slack + tiny)
        study.state("E_q[K] <= H(q)/eta + 1", a.iterations_sampled.mean <= a.bound_iterations_sampled + tiny)
    if law is not None:
        study.state("KL of the mixed sampler <= mean over orders, exactly", law.kl_nats <= law.kl_mean_nats + tiny)


def single_pictures(setting: Setting, study: Study, tell: Tell) -> dict[str, tuple[str, bytes]]:
    """Adds sweeps around the setting to `study.charts`; returns the order as a heat map and one run as an animation."""
    policy, request = setting.policy, setting.request
    lengths = sorted({max(1, request.length // 2**j) for j in range(4)})
    fewer = min(setting.repeats, SWEEP_REPEATS)
    sweeps: list[tuple[str, str, list[float], list[Setting]]] = []
    eta = getattr(policy.policy, _budget_field(policy), None) if policy.uses_eta else None
    if eta is not None and 0.0 < eta < np.inf:
        etas = [float(eta * 2.0**j) for j in range(-3, 4)]
        sweeps.append(("eta", "eta, nats", etas, [replace(setting, policy=_with_eta(policy, e)) for e in etas]))
    if setting.rank is None:  # an order is of one length
        sweeps.append(
            ("length", "length L", [float(n) for n in lengths],
             [replace(setting, request=replace(request, length=n, entropy_nats=None)) for n in lengths])
        )  # fmt: skip
    if "entropy_nats" in BUILDERS[setting.oracle][1]:
        whole = build_oracle(setting.oracle, request).entropy_nats
        wanted = [whole * share for share in (0.25, 0.5, 0.75, 1.0)]
        sweeps.append(
            ("entropy", "wanted H(X0), nats", wanted,
             [replace(setting, request=replace(request, entropy_nats=h)) for h in wanted])
        )  # fmt: skip
    total = sum(len(settings) for *_, settings in sweeps)
    done = 0
    for name, label, values, settings in sweeps:
        found: list[tuple[float, Account]] = []
        for value, one in zip(values, settings, strict=True):
            try:
                oracle = build_oracle(one.oracle, one.request)
            except InputError:
                continue  # an entropy out of the oracle's reach
            a = account(
                oracle, one.policy.policy, repeats=fewer, seed=setting.seed, sampled_path=False, rank=setting.rank
            )
            found.append((oracle.entropy_nats if name == "entropy" else value, a))
            done += 1
            tell(min(done / total, 1.0))
        if len(found) > 1:
            study.charts += _sweep_charts(name, label, found)
    return _run_pictures(setting)


def _budget_field(policy: NamedPolicy) -> str:
    from workbench.unmasking.policies import MAIN_KNOB

    return MAIN_KNOB[policy.name][0]


def _with_eta(policy: NamedPolicy, eta: float) -> NamedPolicy:
    return replace(policy, policy=replace(policy.policy, **{_budget_field(policy): eta}))  # type: ignore[type-var]


def _sweep_charts(name: str, label: str, found: list[tuple[float, Account]]) -> list[Chart]:
    x = [value for value, _ in found]
    accounts = [a for _, a in found]
    lines = [Series("E_p[K]", x, [a.iterations.mean for a in accounts], [a.iterations.half_width for a in accounts])]
    if all(np.isfinite(a.bound_iterations) for a in accounts):
        lines.append(Series("(H + KL)/eta + 1", x, [a.bound_iterations for a in accounts], guide=True))
    charts = [Chart(f"iterations-{name}", f"Iterations against {label.split(',')[0]}", label, "iterations", lines)]
    kl = [max(a.kl_nats.mean, 0.0) for a in accounts]
    if max(kl) > 1e-9:
        lines = [Series("KL", x, kl, [a.kl_nats.half_width for a in accounts])]
        if all(np.isfinite(a.scale_kl_nats) for a in accounts):
            lines.append(Series("eta (1 + log2 L)", x, [a.scale_kl_nats for a in accounts], guide=True))
        charts.append(
            Chart(f"kl-{name}", f"KL against {label.split(',')[0]}", label, "KL, nats", lines, log_y=min(kl) > 0.0)
        )
    return charts


def _run_pictures(setting: Setting) -> dict[str, tuple[str, bytes]]:
    oracle = build_oracle(setting.oracle, setting.request)
    rows = min(max(setting.repeats, 1), HEAT_MAP_RUNS)
    frames: list[tuple[FloatArray, IntArray]] = []

    def keep(batch: Batch) -> None:
        if batch.rows[0] == 0:
            frames.append((batch.entropy_nats[0].copy(), batch.revealed[0].astype(np.int64)))

    plant = UnmaskPlant(
        OraclePredictor(oracle),
        np.full((rows, oracle.length), -1),
        seed=setting.seed,
        orders=None if setting.rank is None else np.tile(setting.rank, (rows, 1)),
        measure_divergence=getattr(setting.policy.policy, "needs_divergence", False),
        on_batch=keep,
    )
    ledger = decode(plant, setting.policy.policy).ledger
    heading = "Order of revealing"
    return {
        "order.png": (heading, order_heat_map(ledger.revealed_at, f"{setting.policy.label} on {setting.oracle}")),
        "run.gif": (
            "One run: blue masked (darker: more uncertain), orange revealed now, white known",
            reveal_animation(frames),
        ),
    }
