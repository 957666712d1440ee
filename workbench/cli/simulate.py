"""`workbench simulate`: one scenario through the simulated plant."""

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.console import JsonFlag, Output


def simulate(
    scenario: Annotated[Path, typer.Argument(help="A scenario file (TOML).")],
    out_dir: Annotated[Path | None, typer.Option("--out", help="Run directory; default runs/<name>.")] = None,
    seed: Annotated[int | None, typer.Option(help="One seed instead of the scenario's.", min=0)] = None,
    as_json: JsonFlag = False,
) -> None:
    """Simulate a scenario, a folder per seed, and write a report."""
    from workbench.arm import run_arm
    from workbench.metrics import summarise
    from workbench.record import find_arms, read_manifest
    from workbench.report import write_report
    from workbench.scenario import load_scenario

    out = Output(as_json)
    plan = load_scenario(scenario)
    if plan.plant != "sim":
        from workbench.errors import InputError

        raise InputError(f'scenario {scenario}: plant is {plan.plant!r}; simulate needs plant = "sim"')
    run = out_dir or Path("runs") / plan.name
    seeds = plan.seeds if seed is None else (seed,)
    arms = []
    with out.progress(f"simulate {plan.name}") as tell:
        for index, s in enumerate(seeds):
            arms.append(
                run_arm(plan, s, run / f"seed{s}", on_progress=lambda share, i=index: tell((i + share) / len(seeds)))
            )
    figures = summarise([read_manifest(arm) for arm in arms], arms)
    report = write_report(run)
    out.say(f"report: {report}")
    out.done(True, figures, {"run": run, "report": report, **{f"seed{s}": a for s, a in zip(seeds, arms, strict=True)}})
    find_arms(run)
