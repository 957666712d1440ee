"""`workbench run`: the main job."""

from pathlib import Path
from typing import Annotated, NoReturn

import typer

from workbench.cli.console import JsonFlag, Output


def run(
    scenario: Annotated[
        Path | None, typer.Argument(help="A scenario file to run instead of the main job; its plant decides where.")
    ] = None,
    quick: Annotated[bool, typer.Option(help="The same path at small size.")] = False,
    out_dir: Annotated[Path | None, typer.Option("--out", help="Run directory; the same one resumes.")] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Request trace; default: Azure 2023 conversation if found.")
    ] = None,
    model: Annotated[str, typer.Option(help="smollm2, a Hugging Face directory, or a .gguf file.")] = "smollm2",
    backend: Annotated[str, typer.Option(help="cpu, torch or triton.")] = "cpu",
    jobs: Annotated[int, typer.Option(help="Processes for simulated arms.", min=1)] = 2,
    as_json: JsonFlag = False,
) -> None:
    """Record on the real model, calibrate, simulate the 2x2x2 factorial on a real trace, run it live, and report."""
    out = Output(as_json)
    if scenario is not None:
        _run_scenario(out, scenario, out_dir)
    from workbench.main_job import FULL, QUICK, find_trace, job_figures, main_job
    from workbench.metrics import run_figures
    from workbench.report import write_report

    directory = (out_dir or Path("runs") / ("quick" if quick else "main")).resolve()
    size = QUICK if quick else FULL
    for line in main_job(
        directory, size, model=model, backend=backend, trace=find_trace(trace), jobs=jobs, stage=out.progress
    ):
        out.say(line)
    with out.progress("report") as tell:
        found = run_figures(directory)
        report = write_report(directory, tell, found=found)
    out.say(f"report: {report}")
    out.done(True, job_figures(found), {"run": directory, "report": report})


def _run_scenario(out: Output, path: Path, out_dir: Path | None) -> NoReturn:
    from workbench.scenario import load_scenario
    from workbench.scenario_run import run_scenario

    plan = load_scenario(path)
    with out.progress(plan.name) as tell:
        figures, paths = run_scenario(plan, plan.seeds, out_dir or Path("runs") / plan.name, tell)
    out.say(f"report: {paths['report']}")
    out.done(True, figures, paths)
