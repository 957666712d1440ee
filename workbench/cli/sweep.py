"""`workbench sweep`: one scenario at many settings, resumable, on this machine or a Dask cluster."""

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.console import JsonFlag, Output


def sweep(
    scenario: Annotated[Path, typer.Argument(help="A scenario file (TOML).")],
    grid: Annotated[list[str] | None, typer.Option(help="key=a,b,c or key=low..high; may be repeated.")] = None,
    random: Annotated[int | None, typer.Option(help="So many random points of the axes.", min=1)] = None,
    optuna: Annotated[int | None, typer.Option(help="So many points chosen by Optuna.", min=1)] = None,
    objective: Annotated[str, typer.Option(help="Figure that Optuna improves.")] = "goodput_per_s",
    until: Annotated[
        str | None, typer.Option(help="FIGURE=SHARE: add seeds until its 95 % interval is this narrow everywhere.")
    ] = None,
    pareto: Annotated[str | None, typer.Option(help="Two figures, comma separated: mark the front.")] = None,
    capacity: Annotated[
        float | None, typer.Option(help="Instead: the largest rate with this share of requests inside the SLO.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Processes on this machine.", min=1)] = 1,
    cluster: Annotated[str | None, typer.Option(help="Address of a Dask scheduler.")] = None,
    out_dir: Annotated[Path | None, typer.Option("--out", help="Default runs/NAME-sweep.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Simulate a scenario at every setting of the axes; what is there already is not computed again."""
    from workbench.errors import InputError
    from workbench.metrics import Slo
    from workbench.scenario import load_scenario
    from workbench.search import (
        LOWEST_RATE_PER_S,
        add_seeds,
        best_rows,
        capacity_search,
        mark_front,
        optuna_tasks,
        parse_until,
        sensitivity,
    )
    from workbench.sweep import (
        DaskWorkers,
        LocalWorkers,
        Store,
        grid_points,
        parse_axis,
        random_points,
        results_table,
        run_tasks,
        tasks_of,
    )

    out = Output(as_json)
    plan = load_scenario(scenario)
    if plan.plant != "sim":
        raise InputError(f'scenario {scenario}: plant is {plan.plant!r}; sweep needs plant = "sim"')
    folder = out_dir or Path("runs") / f"{plan.name}-sweep"
    axes = [parse_axis(text) for text in grid or []]
    store = Store(folder / "points")
    workers = DaskWorkers(cluster) if cluster else LocalWorkers(jobs)
    if capacity is not None:
        found = capacity_search(plan, store, workers, capacity, out.say)
        if not found.met:
            slo = Slo()
            out.say(
                f"no rate meets it: at {LOWEST_RATE_PER_S:g} requests/s, hardly ever two at once, only "
                f"{found.goodput_frac:.3f} of requests are inside the SLO (TTFT {slo.ttft_s:g} s, TPOT {slo.tpot_s:g} s); "
                "take faster hardware, a smaller model or shorter requests"
            )
        out.say(f"capacity: {found.rate_per_s:.4g} requests/s with {found.goodput_frac:.3f} of requests inside the SLO")
        out.done(found.met, {"capacity_per_s": found.rate_per_s, "goodput_frac": found.goodput_frac}, {"run": folder})
    if not axes:
        raise InputError("sweep needs at least one axis: --grid key=a,b,c")
    with out.progress(f"sweep {plan.name}") as tell:
        if optuna is not None:
            tasks, done = optuna_tasks(plan, axes, optuna, objective, store, workers, tell)
        else:
            points = random_points(axes, random, plan.seeds[0]) if random else grid_points(axes)
            tasks = tasks_of(plan, points, plan.seeds)
            done = run_tasks(tasks, store, workers, tell)
        if until is not None:
            tasks, done = add_seeds(plan, tasks, *parse_until(until), store, workers, done)
    table = results_table(tasks, store)
    if pareto is not None:
        table = mark_front(table, pareto)
    path = folder / "sweep.parquet"
    temporary = folder / ".sweep.parquet.tmp"
    table.write_parquet(temporary)
    temporary.replace(path)
    for line in best_rows(table, [key for key, _ in axes], objective):
        out.say(line)
    for line in sensitivity(table, [key for key, _ in axes], objective):
        out.say(line)
    out.say(f"{done.done} results, {done.computed} computed now, {done.reused} from before: {path}")
    out.done(
        True, {"done": done.done, "computed": done.computed, "reused": done.reused}, {"run": folder, "table": path}
    )
