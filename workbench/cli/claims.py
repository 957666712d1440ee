"""`workbench claims`: what the three papers say, measured here, each with a verdict computed from its interval."""

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.console import JsonFlag, Output
from workbench.errors import InputError


def claims(
    id: Annotated[str | None, typer.Argument(help="One claim, or all that begin with et, edrm or unmask.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: under four minutes on two cores.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of everything drawn.")] = 0,
    jobs: Annotated[int, typer.Option(help="Processes that simulate.")] = 2,
    out: Annotated[Path, typer.Option(help="Evidence, runs and page; a rerun resumes there.")] = Path("runs/claims"),
    vllm: Annotated[
        Path | None, typer.Option(help="A run directory with arms served by vLLM: its rows are then decided.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Write the short table between the claims markers of this file.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """The papers' claims with verdicts: reproduced, partly, not reproduced, false in general, inconclusive, not testable."""
    output = Output(as_json)
    if seed < 0:
        raise InputError(f"--seed must be at least 0, got {seed}")
    if jobs < 1:
        raise InputError(f"--jobs must be at least 1, got {jobs}")
    if vllm is not None and not vllm.is_dir():
        raise InputError(f"--vllm: no run directory at {vllm}")
    from workbench.claims.claim import Verdict
    from workbench.claims.ledger import run_claims
    from workbench.claims.page import write_page
    from workbench.claims.registry import chosen
    from workbench.claims.setting import Setting

    wanted = chosen(id)
    with output.progress("claims") as tell:
        ledger = run_claims(wanted, Setting(quick, seed, out, jobs, tell, vllm), output.say)
    rows = ledger.rows
    command = f"workbench claims{' --quick' if quick else ''} --seed {seed}{f' --vllm {vllm}' if vllm else ''}"
    page = write_page(ledger, out / ("claims.html" if id is None else f"{id}.html"), command)
    if markdown is not None:
        from workbench.claims.short_table import write_short_table

        write_short_table(rows, command + (f" {id}" if id else ""), markdown)
    output.say(_table(rows))
    undecided = (Verdict.INCONCLUSIVE, Verdict.NOT_TESTABLE)
    figures = {
        "claims": len(rows),
        "decided": sum(row.verdict not in undecided for row in rows),
        "failed": sum(bool(row.trouble) and row.at_hand for row in rows),
    }
    output.say(f"page: {page}")
    verdicts = {row.claim.id: row.verdict.value for row in rows}
    output.done(figures["failed"] == 0, figures, {"page": page, "run": out}, verdicts=verdicts)


def _table(rows):
    from rich.table import Table

    from workbench.claims.picture import text_of

    table = Table(title="Claims; 99 % intervals", title_justify="left")
    for name in ("claim", "says", "measured", "verdict"):
        table.add_column(name)
    for row in rows:
        shown = [f"{q.label} {text_of(row.found[q.name])}" for q in row.claim.quantities if q.name in row.found]
        table.add_row(row.claim.id, row.claim.says, "\n".join(shown), row.verdict.value)
    return table
