"""From recorded generations to results: calibrate on the first questions, judge every router on the rest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from controllers.routing.descriptors import describe
from controllers.routing.early_stop import EATStop, SlopeStop
from workbench.errors import InputError
from workbench.routing.calibrate import Calibration, calibrate, routers
from workbench.routing.comparison import compare, descriptor_rows, oracle_row
from workbench.routing.early_stopping import early_stop_rows
from workbench.routing.generation_record import Settings
from workbench.routing.panel import SCORINGS, Panel, make_panel, split
from workbench.routing.precision import flip_rows
from workbench.routing.report import Results
from workbench.routing.simulate import simulate_load

STOP_RULES = {"EAT": EATStop(), "entropy slope": SlopeStop()}


@dataclass(frozen=True, kw_only=True)
class RuleNumbers:
    """The numbers of the rules a user may change."""

    k: float = 0.07
    overload_nats: float = 32.0
    false_route_rate: float = 0.05


@dataclass(frozen=True, kw_only=True)
class Load:
    """A simulated server for the recorded questions."""

    rates_per_s: tuple[float, ...]
    gpu: str = "H100"
    model: str = "Llama-3-8B"


def calibration_of(table: pl.DataFrame, tasks: Sequence[str], settings: Settings, rule: RuleNumbers) -> Calibration:
    """From the calibration questions, scored by extraction (what a served answer is read by)."""
    if settings.num_calibration < 1:
        raise InputError("no calibration questions: num_calibration is 0; use about 50")
    panels = [split(make_panel(table, task, settings), settings)[0] for task in tasks]
    return calibrate(panels, false_route_rate=rule.false_route_rate, seed=settings.seed)


def study(
    table: pl.DataFrame,
    tasks: Sequence[str],
    settings: Settings,
    rule: RuleNumbers,
    calibration: Calibration | None,
    reread: pl.DataFrame | None,
    manifest: Mapping[str, object],
    load: Load | None = None,
) -> Results:
    """Every router on every task, by both scorings; under load where asked for."""
    rows, oracle, numbers, stops, flips, chance, probes = [], {}, [], [], [], {}, {}
    panels, routers_by_task = [], {}
    for task in tasks:
        every = routers(
            task, calibration, k=rule.k, overload_nats=rule.overload_nats, false_route_rate=rule.false_route_rate
        )
        seen: set[str] = set()
        for scoring in SCORINGS:
            panel = _evaluation(table, task, settings, scoring)
            if panel.scoring in seen:
                continue  # numbers are scored by extraction only
            seen.add(panel.scoring)
            rows += compare(panel, every, settings.seed)
            oracle[task, panel.scoring] = oracle_row(panel, settings.seed)
            numbers += descriptor_rows(panel, settings.seed)
            chance[task] = panel.chance
        panels.append(_evaluation(table, task, settings, "extraction"))
        routers_by_task[task] = every
        probes[task] = describe(panel.probe_entropy_nats, panel.probe_tokens)
        stops += early_stop_rows(table, task, STOP_RULES, settings.num_calibration, settings.seed)
        if reread is not None:
            looking = {name: router for name, router in every.items() if not name.startswith("always-")}
            flips += flip_rows(panel, reread, {n: r for n, r in looking.items() if n != "token-signature"})
    under_load = (
        simulate_load(panels, routers_by_task, load.rates_per_s, gpu=load.gpu, model=load.model, seed=settings.seed)
        if load
        else []
    )
    return Results(
        load=under_load,
        routers=rows,
        oracle=oracle,
        descriptors=numbers,
        early_stops=stops,
        flips=flips,
        chance=chance,
        probes=probes,
        notes=_notes(calibration),
        manifest=manifest,
    )


def _evaluation(table: pl.DataFrame, task: str, settings: Settings, scoring: str) -> Panel:
    panel = split(make_panel(table, task, settings, scoring), settings)[1]
    if len(panel) == 0:
        raise InputError(f"task {task!r}: only calibration questions are recorded so far; run the evaluation further")
    return panel


def _notes(calibration: Calibration | None) -> list[str]:
    if calibration is None:
        return ["No calibration questions were set aside: the data-set and MLP routers are left out."]
    notes = []
    quality = calibration.notes.get("mlp")
    if isinstance(quality, dict):
        notes.append(
            f"MLP: on held-out calibration questions it predicts the best strategy {quality['held_out_accuracy']:.2f} "
            f"of the time (always guessing the commonest: {quality['majority_share']:.2f}), "
            f"expected calibration error {quality['calibration_error']:.3f}."
        )
    else:
        notes.append(f"MLP left out: {quality}")
    for task, router in calibration.dataset_level.items():
        p = "–" if router.p_value != router.p_value else f"{router.p_value:.2g}"
        notes.append(
            f"Data-set router on {task}: {router.strategy.name.lower()}, mean V_sp {router.mean_trend:+.3f} "
            f"over {router.num_samples} probes, p = {p}."
        )
    return notes


def default_tasks_dir() -> Path | None:
    """`../shared/data/tasks` beside the project, if it is there."""
    place = Path(__file__).resolve().parents[3] / "shared" / "data" / "tasks"
    return place if place.is_dir() else None
