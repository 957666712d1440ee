"""`workbench route --calibrate` and `--evaluate`: record every strategy once, then judge every router on the records."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from rich.table import Table

from workbench.cli.console import Output
from workbench.protocols import Strategy


def run_study(
    out: Output,
    load: Callable[[], Any],
    tasks: Mapping[str, Sequence[Any]],
    prompts: Any,
    settings: Any,
    rule: Any,
    known: Any,
    router_name: str,
    scoring: str,
    directory: Path,
    *,
    only_calibrate: bool,
    check_dtype: str | None,
    stop_after_s: float | None,
    under_load: Any,
    second: Callable[[], Any],
) -> NoReturn:
    import numpy as np

    from workbench.errors import unknown_name
    from workbench.routing.evaluate import evaluate
    from workbench.routing.generation_record import read_generations
    from workbench.routing.panel import SCORINGS
    from workbench.routing.precision import reread_probes
    from workbench.routing.report import write_results
    from workbench.routing.study import calibration_of, study

    if scoring not in SCORINGS:
        raise unknown_name("scoring", scoring, SCORINGS)
    model = load()
    with out.progress(f"generate {', '.join(tasks)}") as tell:
        record = evaluate(
            model, tasks, prompts, settings, directory / "generations", on_progress=tell, stop_after_s=stop_after_s
        )
    table = read_generations(record.directory)
    expected = settings.total_questions * len(tasks) * len(Strategy)
    if table.height < expected:
        out.note(f"{table.height} of {expected} replies recorded; the same command resumes")
        out.done(False, {"recorded": table.height, "expected": expected}, {"run": directory})
    names = list(tasks)
    calibration = known
    paths: dict[str, Path | str] = {"run": directory}
    if only_calibrate:  # every recorded question is for calibration
        settings = replace(settings, num_calibration=settings.num_questions)
    if calibration is None and settings.num_calibration > 0:
        calibration = calibration_of(table, names, settings, rule)
        paths["calibration"] = directory / "calibration.json"
        calibration.save(paths["calibration"])
    if only_calibrate:
        _say_calibration(out, calibration)
        learned = calibration.mlp is not None
        if not learned:
            out.note(f"no MLP router: {calibration.notes['mlp']}")
        figures = {f"mean_trend.{t}": _finite(r.mean_trend) for t, r in calibration.dataset_level.items()}
        quality = calibration.notes["mlp"] if learned else {}
        out.done(learned, {**figures, **quality}, paths)
    reread = None
    if check_dtype:
        with out.progress(f"reread probes in {check_dtype}") as tell:
            reread = reread_probes(
                second(), table, tasks, prompts, settings, directory / f"probes-{check_dtype}", on_progress=tell
            )
    results = study(table, names, settings, rule, calibration, reread, record.manifest, under_load)
    described = record.manifest["model"]
    lead = [
        f"Model {described.get('model')} ({described.get('dtype')}, {described.get('backend')}), "
        f"{'greedy' if settings.temperature == 0 else f'sampled at T = {settings.temperature:g}'}, "
        f"seed {settings.seed}; {settings.num_questions} questions a task"
        + (f" after {settings.num_calibration} for calibration" if settings.num_calibration else "")
        + f"; probe {settings.probe_tokens} tokens; caps Standard {settings.max_standard_tokens}, "
        f"Direct {settings.max_direct_tokens}, CoT {settings.max_cot_tokens} tokens."
    ]
    paths |= write_results(results, directory, "Reasoning routers", lead)
    shown = Table("task", "scoring", "router", "accuracy", "tokens", "direct", "standard", "CoT", "acc − mix")
    for row in results.routers:
        shown.add_row(
            row.task, row.scoring, row.router, _value(row.accuracy.value, 3), _value(row.tokens_mean.value, 1),
            *(f"{row.shares[name]:.0%}" for name in ("direct", "standard", "cot")),
            f"{_value(row.accuracy_vs_mix.value, 3)}{' *' if row.beats_mix else ''}",
        )  # fmt: skip
    out.say(shown)
    out.say("* better than a random mix of the same shares with 95 % confidence")
    for note in results.notes:
        out.say(note)
    figures: dict[str, float | None] = {}
    of_router = [r for r in results.routers if r.router == router_name and r.scoring == scoring]
    # Tasks of numbers are scored by extraction whatever was asked for.
    scored = {r.task for r in of_router}
    of_router += [r for r in results.routers if r.router == router_name and r.task not in scored]
    if not of_router:
        raise unknown_name("router", router_name, {r.router for r in results.routers})
    figures["accuracy"] = float(np.mean([r.accuracy.value for r in of_router]))
    figures["tokens_mean"] = float(np.mean([r.tokens_mean.value for r in of_router]))
    for name in ("direct", "standard", "cot"):
        figures[f"share_{name}"] = float(np.mean([r.shares[name] for r in of_router]))
    for row in results.routers:
        figures[f"{row.task}.{row.scoring}.{row.router}.accuracy"] = row.accuracy.value
        figures[f"{row.task}.{row.scoring}.{row.router}.tokens_mean"] = row.tokens_mean.value
    out.done(True, figures, paths)


def _say_calibration(out: Output, calibration: Any) -> None:
    for task, router in calibration.dataset_level.items():
        out.say(
            f"{task}: {router.strategy.name.lower()} ({router.reason.name.lower()}), mean V_sp {router.mean_trend:+.3f}"
        )
    if calibration.mlp is not None:
        out.say(f"MLP: {calibration.notes['mlp']}")


def _value(value: float | None, places: int) -> str:
    return "–" if value is None else f"{value:.{places}f}"


def _finite(value: float) -> float | None:
    return value if value == value else None
