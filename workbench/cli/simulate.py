"""`workbench simulate`: one scenario through the simulated plant."""

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.console import JsonFlag, Output
from workbench.errors import InputError


def simulate(
    scenario: Annotated[Path, typer.Argument(help="A scenario file (TOML).")],
    out_dir: Annotated[Path | None, typer.Option("--out", help="Run directory; default runs/<name>.")] = None,
    seed: Annotated[int | None, typer.Option(help="One seed instead of the scenario's.", min=0)] = None,
    as_json: JsonFlag = False,
) -> None:
    """Simulate a scenario, a folder per seed, and write a report."""
    from workbench.scenario import load_scenario
    from workbench.scenario_run import run_scenario

    out = Output(as_json)
    plan = load_scenario(scenario)
    if plan.plant != "sim":
        raise InputError(f'scenario {scenario}: plant is "{plan.plant}"; `simulate` needs "sim", `run` takes both')
    with out.progress(f"simulate {plan.name}") as tell:
        seeds = plan.seeds if seed is None else (seed,)
        figures, paths = run_scenario(plan, seeds, out_dir or Path("runs") / plan.name, tell)
    out.say(f"report: {paths['report']}")
    out.done(True, figures, paths)
