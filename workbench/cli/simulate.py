"""`workbench simulate`: one scenario through the simulated plant."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from workbench.cli.console import JsonFlag, Output
from workbench.errors import InputError

ENDS = ("completed", "refused", "timed_out", "cancelled")
SHOWN = (
    "ttft_p50_s", "ttft_p99_s", "tpot_p50_s", "e2e_p99_s", "output_tokens_per_s", "goodput_frac", "waiting_share",
    "preemptions_per_request", "recomputed_frac", "swaps_per_request", "prefix_hit_frac", "busy_frac",
)  # fmt: skip


def summary_table(figures: Mapping[str, Any]) -> Table:
    """What a run came to, for people: where its requests went, the main figures, how busy each replica was."""
    from workbench.metrics.table import BY_NAME

    table = Table(box=None, show_header=False, pad_edge=False)
    ends = [f"{figures[name]} {name.replace('_', ' ')}" for name in ENDS if figures.get(name)]
    table.add_row("requests", f"{figures['arrived']}: {', '.join(ends) or 'none ended'}")
    for name in SHOWN:
        metric, value = BY_NAME[name], figures.get(name)
        table.add_row(metric.label.lower(), "not defined" if value is None else f"{value:.4g} {metric.unit}")
    shares = [f"{value:.1%}" for name, value in figures.items() if name.startswith("busy_frac_replica")]
    if shares:
        table.add_row("busy, by replica", ", ".join(shares))
    if figures.get("waiting_share") == 0.0:
        table.add_row("note", "nothing ever queued: every order of requests would serve alike")
    return table


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
    out.say(summary_table(figures))
    out.say(f"report: {paths['report']}")
    out.done(True, figures, paths)
