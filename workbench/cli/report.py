"""`workbench report`: figures and pictures of a run directory."""

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.console import JsonFlag, Output


def report(
    run: Annotated[Path, typer.Argument(help="A run directory, or one arm of it; or one that unmask wrote.")],
    traces: Annotated[bool, typer.Option(help="Also write Chrome traces that Perfetto opens.")] = True,
    as_json: JsonFlag = False,
) -> None:
    """Write report.html, figures.json and traces from the finished arms of a run; nothing is run again.

    Of a study of `workbench unmask` the page, its table and its pictures.
    """
    from rich.table import Table

    from workbench.metrics import run_figures
    from workbench.report import FIGURES, write_report
    from workbench.report.verdict import verdict_of
    from workbench.unmasking.study_file import is_study

    out = Output(as_json)
    if is_study(run):
        from workbench.cli.unmask_page import report_study

        report_study(out, run)
    with out.progress("report") as tell:
        found = run_figures(run, lambda done, total: tell(0.8 * done / total))
        page = write_report(run, traces=traces, found=found)
        tell(1.0)
    judged = verdict_of(found)
    table = Table("controller", "plant", "verdict", box=None, pad_edge=False)
    for verdict in judged.verdicts:
        for part in verdict.parts:
            table.add_row(verdict.name, part.name, part.summary)
    if judged.verdicts:
        out.say(table)
    for remark in judged.remarks:
        out.say(remark)
    for line in found.skipped:
        out.note(f"left out: {line}")
    out.say(f"report: {page}")
    counts = [arm.counts for cell in found.cells for arm in cell.arms.values()]
    figures = {
        "cells": len(found.cells),
        "arms": len(counts),
        "arms_left_out": len(found.skipped),
        "requests": sum(c["arrived"] for c in counts),
        "completed": sum(c["completed"] for c in counts),
        "refused": sum(c["refused"] for c in counts),
    }
    written = {path.stem: path for path in sorted(run.glob("trace-*.json"))} if traces else {}
    out.done(True, figures, {"run": run, "report": page, "figures": run / FIGURES, **written})
