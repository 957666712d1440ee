"""Simulated against live: the same requests, batching rule and controllers, once recorded and once simulated.

A live arm is simulated again from its record: its arrivals, prompt lengths, drawn output lengths, engine settings and
KV blocks, with entropies, masses and step times from a `Calibration` fitted to *other* arms. Then, arm by arm,

    step_mape        mean |predicted / measured - 1| of step time on the recorded batches themselves
    throughput_err, tpot_p50_err, ttft_mean_err, e2e_mean_err    signed relative errors of the simulated run
    kendall_tau      tau-b between simulated and live order of the settings, over the pairs of settings whose live
                     difference excludes 0 at 95 %
    top1_regret      how much worse, live, the setting is that the simulator likes best than the one that is best

Settings are compared at one load, by a figure of which less is better. Undefined figures are None with a reason.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.stats import kendalltau

from sims.calibrate import kv_width, recorded_shape
from sims.calibration import Calibration
from sims.clock import SimClock
from sims.error_parts import ArmSteps, FigureParts, figure_parts, scaled_cost, speed_of
from sims.executor import SimExecutor
from sims.recorded import manifest_of, recorded_steps, table_of
from sims.step_cost import StepCost, totals_of
from workbench.catalog import build_controllers
from workbench.engine.plant import EnginePlant
from workbench.engine.requests import RequestSpec
from workbench.errors import InputError
from workbench.loop import close_loop
from workbench.metrics import METRICS, Records, Undefined, records_of
from workbench.protocols import DecisionPoint
from workbench.record import request_table
from workbench.scenario import Scenario, parse_scenario
from workbench.signals import FloatArray

COMPARED = {
    "throughput": "output_tokens_per_s",
    "tpot_p50": "tpot_p50_s",
    "ttft_mean": "ttft_mean_s",
    "e2e_mean": "e2e_mean_s",
}
OTHER_DRAW = 1_000_003  # added to a seed, once a draw
MIN_RESOLVED = 20  # pairs of settings told apart live, below which a rank agreement says little


@dataclass(frozen=True)
class ArmPair:
    """One live arm and its simulation."""

    path: Path
    setting: str
    load: str
    seed: int
    live: Records
    simulated: Records
    steps: ArmSteps  # as measured, and as predicted batch by batch
    outside: float  # share of recorded steps with more tokens than the step-cost table was fitted to
    side_by_side: Mapping[str, tuple[Any, Any]]  # what usually explains an error: (live, simulated)

    @property
    def step_error(self) -> FloatArray:
        """Predicted over measured step time minus 1, on the batches that were recorded."""
        return self.steps.predicted_s / self.steps.steps.elapsed_s - 1.0

    def value(self, which: str, metric: str) -> float:
        records = self.live if which == "live" else self.simulated
        found = next(m for m in METRICS if m.name == metric).compute(records)
        return np.nan if isinstance(found, Undefined) else float(found)


def simulate_again(arm: Path, calibration: Calibration, draw: int = 0) -> ArmPair:
    """Simulate a recorded live arm. Raises `InputError` where the record or the calibration does not suffice.

    `draw` above 0 draws noise, entropies and masses anew; arrivals, prompts and lengths are always those of the record.
    """
    if calibration.step_cost is None:
        raise InputError("the calibration has no step cost; fit one to live arms with workbench calibrate")
    manifest = manifest_of(arm)
    scenario = parse_scenario(_without_files(manifest["scenario"]))
    requests, steps = table_of(arm, "requests").sort("request_id"), table_of(arm, "steps")
    names = tuple(manifest["kind_names"])
    spec = RequestSpec(
        arrival_s=requests["arrival_s"].to_numpy(),
        prompt_tokens=requests["prompt_tokens"].to_numpy(),
        # What was really drawn; a request that drew nothing keeps what it asked for.
        output_tokens=np.where(requests["output_tokens"] > 0, requests["output_tokens"], requests["asked_tokens"]),
        kind=np.array([names.index(k) for k in requests["kind"].cast(pl.String)], np.int64),
        priority=requests["priority"].to_numpy(),
        kind_names=names,
    )
    controlled = frozenset(scenario.controllers)
    config = scenario.engine_config(int(manifest["num_blocks"]))
    executor = SimExecutor(
        calibration.step_cost, calibration.process, names, seed=int(manifest["seed"]) + OTHER_DRAW * draw,
        temperature=config.temperature,
        mass=calibration.mass if DecisionPoint.KEEP in controlled else None,
    )  # fmt: skip
    plant = EnginePlant(spec, executor, SimClock(), config, controlled, 0)
    context = {"vocab_size": executor.vocab_size, "delay_steps": config.delay_steps}
    close_loop(plant, build_controllers(scenario.controllers, context), _NoRecord())
    made = pl.from_arrow(request_table(plant, {}))
    assert isinstance(made, pl.DataFrame)
    made_steps = pl.DataFrame(plant.telemetry.step_table())
    return ArmPair(
        path=arm,
        setting=manifest.get("setting") or setting_of(scenario),
        load=manifest.get("load") or f"{scenario.workload.rate_per_s or 0:g}/s x {scenario.workload.num_requests}",
        seed=int(manifest["seed"]),
        live=records_of(requests, steps),
        simulated=records_of(made, made_steps),
        steps=arm_steps(arm, calibration.step_cost),
        outside=calibration.step_cost.outside(steps["num_tokens"].to_numpy()),
        side_by_side={
            "KV blocks": (manifest["num_blocks"], plant.config.num_blocks),
            "block size": (manifest["block_size"], plant.config.block_size),
            "mean rows a step": (_mean(steps, "num_running"), _mean(made_steps, "num_running")),
            "mean tokens a step": (_mean(steps, "num_tokens"), _mean(made_steps, "num_tokens")),
            "steps": (len(steps), len(made_steps)),
            "host overhead a step (ms)": ("in the record", round(calibration.step_cost.host_s * 1e3, 3)),
            "KV read share": (_kv_share(steps), _kv_share(made_steps)),
        },
    )


def _without_files(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """The recorded scenario without paths that may be gone: requests come from the record."""
    data = {**scenario, "workload": {**scenario["workload"], "trace": None, "prompts": None}}
    return {**data, "hardware": {**scenario["hardware"], "calibration": None}}


def _mean(frame: pl.DataFrame, name: str) -> float:
    return round(float(frame[name].to_numpy().mean()), 3)


def _kv_share(frame: pl.DataFrame) -> float:
    return round(float(frame["kv_bytes_read"].sum() / max(frame["kv_bytes_dense"].sum(), 1.0)), 4)


class _NoRecord:
    def decision(self, observation: object, action: object, applied: object) -> None:
        pass


def setting_of(scenario: Scenario) -> str:
    """A name of the controllers of a scenario with all that was set on them."""
    parts = []
    for point, table in scenario.controllers.items():
        knobs = ", ".join(f"{k} {v}" for k, v in sorted(table.items()) if k != "kind")
        parts.append(f"{point.value} {table.get('kind')}" + (f" ({knobs})" if knobs else ""))
    return "; ".join(parts) or "none"


def arm_steps(arm: Path, cost: StepCost) -> ArmSteps:
    """The batches that were recorded, with what the step cost says of each."""
    manifest = manifest_of(arm)
    shape = recorded_shape(manifest)
    flops = (2.0 * shape.num_layers * shape.layer_weights, shape.output_flop_per_sample, shape.attention_flop_per_pair)
    steps = recorded_steps([arm], shape.kv_bytes_per_token * kv_width(manifest), flops)
    chunks_s = np.maximum(steps.pairs - steps.kv_read_tokens, 0.0) * cost.pair_s + steps.chunks * cost.chunk_s
    predicted = [
        totals_of(cost.rates, int(n), int(s), float(kv), float(chunk_s), 0.0, 0.0, 0.0)[0]
        for n, s, kv, chunk_s in zip(steps.tokens, steps.sampled, steps.kv_read_tokens, chunks_s, strict=True)
    ] + steps.measures * cost.mass_s
    return ArmSteps(str(arm), steps, np.array(predicted))


@dataclass(frozen=True)
class Agreement:
    """`kendall_tau` None where fewer than two settings differ live; then `reason` says so."""

    kendall_tau: float | None
    top1_regret: float | None
    resolved_pairs: int
    pairs: int
    reason: str | None


def rank_agreement(live: Mapping[str, FloatArray], simulated: Mapping[str, FloatArray]) -> Agreement:
    """`live` and `simulated`: setting -> values by seed (less is better), paired by seed in both."""
    names = sorted(set(live) & set(simulated))
    mean_live = {n: float(np.mean(live[n])) for n in names}
    mean_sim = {n: float(np.mean(simulated[n])) for n in names}
    resolved = [(a, b) for a, b in itertools.combinations(names, 2) if _differ(live[a], live[b])]
    pairs = len(names) * (len(names) - 1) // 2
    if not names:
        return Agreement(None, None, 0, 0, "no setting was run both live and simulated")
    chosen, best = min(names, key=mean_sim.__getitem__), min(names, key=mean_live.__getitem__)
    regret = mean_live[chosen] / mean_live[best] - 1.0
    if not resolved:
        return Agreement(None, regret, 0, pairs, "no two settings differ live beyond their 95 % interval")
    x = [np.sign(mean_live[a] - mean_live[b]) for a, b in resolved]
    y = [np.sign(mean_sim[a] - mean_sim[b]) for a, b in resolved]
    # Over resolved pairs none is tied live: tau-b is (agreeing - opposed) / sqrt(pairs (pairs - tied simulated)).
    untied = np.count_nonzero(y)
    if untied == 0:
        return Agreement(None, regret, len(resolved), pairs, "all settings tie in the simulator")
    return Agreement(float(np.dot(x, y) / np.sqrt(len(x) * untied)), regret, len(resolved), pairs, None)


def _differ(a: FloatArray, b: FloatArray) -> bool:
    """The mean paired difference excludes 0 at 95 %."""
    from scipy.stats import t as student

    difference = a - b
    if difference.size < 2:
        return False
    spread = difference.std(ddof=1) / np.sqrt(difference.size)
    return bool(abs(difference.mean()) > student.ppf(0.975, difference.size - 1) * spread)


def tau_b(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Kendall's tau-b, None where a side holds only ties."""
    value = kendalltau(x, y).statistic
    return None if np.isnan(value) else float(value)


def validation_table(pairs: Sequence[ArmPair]) -> pl.DataFrame:
    """A row per arm: what was measured, what was simulated, the signed relative errors."""
    rows = []
    for pair in pairs:
        row: dict[str, Any] = {"load": pair.load, "setting": pair.setting, "seed": pair.seed}
        row["step_err"] = float(pair.step_error.mean())
        row["step_mape"] = float(np.abs(pair.step_error).mean())
        for name, metric in COMPARED.items():
            live, simulated = pair.value("live", metric), pair.value("simulated", metric)
            row |= {f"{name}_live": live, f"{name}_simulated": simulated, f"{name}_err": simulated / live - 1.0}
        rows.append(row)
    return pl.DataFrame(rows, infer_schema_length=None)


def validation_figures(pairs: Sequence[ArmPair], ranked_by: str = "e2e_mean_s") -> dict[str, float | int | str | None]:
    """All figures over the arms given; None where undefined."""
    errors = np.concatenate([pair.step_error for pair in pairs])
    figures: dict[str, float | int | str | None] = {
        "arms": len(pairs),
        "step_mape": float(np.mean(np.abs(errors))),
        "step_bias": float(np.mean(errors)),
    }
    for name, metric in COMPARED.items():
        each = np.array([p.value("simulated", metric) / p.value("live", metric) - 1.0 for p in pairs])
        each = each[np.isfinite(each)]
        figures[f"{name}_err"] = float(np.mean(np.abs(each))) if each.size else None
        figures[f"{name}_bias"] = float(np.mean(each)) if each.size else None
    by_load: dict[str, list[ArmPair]] = {}
    for pair in pairs:
        by_load.setdefault(pair.load, []).append(pair)
    for load, group in by_load.items():
        figures[f"outside_frac_{load}"] = float(np.mean([p.outside for p in group]))
    busiest = max(by_load.values(), key=len)
    live, simulated = ({
        setting: np.array([p.value(which, ranked_by) for p in sorted(busiest, key=lambda p: p.seed) if p.setting == setting])
        for setting in {p.setting for p in busiest}
    } for which in ("live", "simulated"))  # fmt: skip
    agreement = rank_agreement(live, simulated)
    return {
        **figures,
        "settings": len(live),
        "kendall_tau": agreement.kendall_tau,
        "top1_regret": agreement.top1_regret,
        "resolved_pairs": agreement.resolved_pairs,
        "pairs": agreement.pairs,
    }


def error_parts(
    pairs: Sequence[ArmPair],
    calibration: Calibration,
    *,
    draws: int = 2,
    on_progress: Callable[[float], None] = lambda share: None,
) -> dict[str, FigureParts]:
    """For each compared figure, what the speed of the machine and what chance explain (`sims.error_parts`)."""
    assert calibration.step_cost is not None
    own: list[ArmPair] = []
    others: list[list[ArmPair]] = []
    for index, pair in enumerate(pairs):
        at_own_speed = replace(calibration, step_cost=scaled_cost(calibration.step_cost, speed_of(pair.steps)))
        own.append(simulate_again(pair.path, at_own_speed))
        others.append([simulate_again(pair.path, calibration, draw) for draw in range(1, draws + 1)])
        on_progress((index + 1) / len(pairs))
    return {
        name: figure_parts(
            [p.value("live", metric) for p in pairs],
            [p.value("simulated", metric) for p in pairs],
            [p.value("simulated", metric) for p in own],
            [
                [pair.value("simulated", metric), *(p.value("simulated", metric) for p in more)]
                for pair, more in zip(pairs, others, strict=True)
            ],
        )
        for name, metric in COMPARED.items()
    }
