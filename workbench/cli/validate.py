"""`workbench validate`: the simulator against the live model, on arms the calibration has not seen."""

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.console import JsonFlag, Output

LIMITS = {"step_mape": 0.05, "throughput_err": 0.03, "tpot_p50_err": 0.05, "ttft_mean_err": 0.10, "top1_regret": 0.02}
LEAST_TAU = 0.9


def validate(
    run: Annotated[Path, typer.Argument(help="A run directory with live arms.")],
    calibration: Annotated[
        Path | None, typer.Option(help="Use this calibration; else every third live arm is fitted and left out.")
    ] = None,
    ranked_by: Annotated[str, typer.Option(help="Figure settings are ranked by, less is better.")] = "e2e_mean_s",
    fit_seed: Annotated[
        int | None, typer.Option(help="Judged arms of this seed are fitted for step times too, and not judged.")
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(help="First run the live arms of this study into RUN, e.g. workbench/scenarios/validation.toml."),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="Whose arms are judged: workbench (our own), vllm or transformers.")
    ] = "workbench",
    vllm: Annotated[
        Path | None,
        typer.Option(help="Python of an environment with vLLM: --record runs the arms that serve there."),
    ] = None,
    parts: Annotated[
        bool, typer.Option(help="Also say where the errors come from (each arm is simulated three times more).")
    ] = True,
    as_json: JsonFlag = False,
) -> None:
    """Simulate recorded live arms again and compare. Exit 1 where an error is above its limit or ranks disagree.

    `--record STUDY` runs the arms first, alone on the machine; finished ones are kept, so Ctrl-C and the same command go on.
    With `--engine vllm --vllm PYTHON` it is vLLM that serves them (workbench/scenarios/validation_vllm.toml).
    Arms the study calls `record` and `calibrate` are fitted; all others are judged. Limits: step time 5 %, throughput 3 %,
    TPOT p50 5 %, TTFT mean 10 %, Kendall tau 0.9 over at least 20 pairs of settings that differ live, regret of the best
    setting 2 %.
    """
    import polars as pl
    from rich.table import Table

    from sims.calibrate import calibrate
    from sims.calibration import read_calibration
    from sims.recorded import find_recorded_arms, manifest_of
    from sims.validate import COMPARED, MIN_RESOLVED, simulate_again, validation_figures, validation_table
    from workbench.errors import InputError
    from workbench.record import write_atomically
    from workbench.validation_parts import told_parts

    out = Output(as_json)
    if record is not None:
        from workbench.arm_task import run_here
        from workbench.validation_study import (
            RECORD,
            capacity_requests_per_s,
            capacity_task,
            read_study,
            study_tasks,
            warm_up,
        )

        study = read_study(record)
        with out.progress("record live arms") as tell:
            if vllm is None:
                first = capacity_task(study, run)
                warm_up([first])
                first.run()
                tasks = study_tasks(study, run, capacity_requests_per_s(first))
            else:
                from workbench.live.engines.vllm_study import served_in_vllm

                [first] = served_in_vllm([capacity_task(study, run)], vllm)
                first.run()
                tasks = served_in_vllm(study_tasks(study, run, capacity_requests_per_s(first)), vllm)
            warm_up([task for task in tasks if vllm is None or task.extra.get("role") == RECORD])
            run_here(tasks, tell)
    arms = [arm for arm in find_recorded_arms(run) if manifest_of(arm).get("plant") == "live"]
    roles = {arm: manifest_of(arm).get("role") for arm in arms}
    recordings = [arm for arm in arms if roles[arm] == "record"]  # the model's entropies, whichever engine ran it
    mine = [arm for arm in arms if (manifest_of(arm).get("notes") or {}).get("engine", "workbench") == engine]
    if not mine:
        raise InputError(f"{run} holds no live arm of engine {engine!r}; workbench deploy --run records one")
    seen = [arm for arm in mine if roles[arm] == "calibrate"]
    judged = [arm for arm in mine if not roles[arm]]
    if fit_seed is not None:  # a machine drifts within the hour: steps recorded among those judged tell its speed then
        seen += [arm for arm in judged if manifest_of(arm)["seed"] == fit_seed]
        judged = [arm for arm in judged if arm not in seen]
    if calibration is not None:
        fitted = read_calibration(calibration)
    else:
        if not seen and len(judged) >= 3:
            seen = judged[::3]
        judged = [arm for arm in judged if arm not in seen]
        if not (recordings or seen):
            raise InputError(
                f"{run}: too few live arms to fit some and judge others; record more or pass --calibration"
            )
        fitted = calibrate(run, arms=[*recordings, *seen], step_arms=seen or recordings)
    if not judged:
        raise InputError(f"{run} holds no live arm to judge; run some with workbench run")
    pairs = []
    with out.progress(f"validate {run}") as tell:
        for index, arm in enumerate(judged):
            pairs.append(simulate_again(arm, fitted))
            tell((index + 1) / len(judged))
    figures = validation_figures(pairs, ranked_by)
    arms_table = validation_table(pairs)
    write_atomically(run / "validation.csv", arms_table.write_csv(float_precision=6).encode())
    table = Table(
        "load", "setting", "arms", "step", *COMPARED, title="mean signed error of the simulator, held-out live arms"
    )
    for row in arms_table.group_by("load", "setting", maintain_order=True).agg(
        pl.len().alias("arms"), *(pl.col(f"{name}_err").mean() for name in ("step", *COMPARED))
    ).sort("load").iter_rows(named=True):  # fmt: skip
        errors = ("-" if (e := row[f"{name}_err"]) is None else f"{e:+.1%}" for name in ("step", *COMPARED))
        table.add_row(row["load"], row["setting"], str(row["arms"]), *errors)
    out.say(table)
    for load, group in arms_table.group_by("load", maintain_order=True):
        told = ", ".join(f"{name} {group[f'{name}_err'].mean():+.1%}" for name in ("step", *COMPARED))
        out.say(f"{load[0]}: {told}; {figures[f'outside_frac_{load[0]}']:.1%} of steps outside the step-cost table")
    worst = max(pairs, key=lambda p: abs(p.value("simulated", "e2e_mean_s") / p.value("live", "e2e_mean_s") - 1.0))
    out.say(f"side by side, live and simulated, for the arm that is furthest off ({worst.setting}, {worst.load}):")
    for name, (live, simulated) in worst.side_by_side.items():
        out.say(f"  {name:28} {live} | {simulated}")
    if parts:
        with out.progress("where errors come from") as tell:
            said, more = told_parts(pairs, fitted, tell)
        figures |= more
        for item in said:
            out.say(item)
    missed = [
        f"{name} {value:.3f} > {limit}"
        for name, limit in LIMITS.items()
        if isinstance(value := figures[name], float) and value > limit
    ]
    tau, resolved = figures["kendall_tau"], figures["resolved_pairs"]
    if not isinstance(tau, float) or tau < LEAST_TAU:
        missed.append(f"kendall_tau {'undefined' if tau is None else f'{tau:.3f}'} < {LEAST_TAU}")
    if not isinstance(resolved, int) or resolved < MIN_RESOLVED:
        missed.append(
            f"{resolved} of {figures['pairs']} pairs of settings differ live, at least {MIN_RESOLVED} are needed"
        )
    for line in missed:
        out.say(f"missed: {line}")
    out.done(not missed, figures, {"table": run / "validation.csv"})
