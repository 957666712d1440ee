"""Reports: figures of a run directory to report.html, figures.json and traces for Perfetto. They compute nothing.

write_report(run) -> RUN/report.html        beside it figures.json, and trace-*.json of the arms shown over time
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workbench.chrome_trace import write_chrome_trace
from workbench.errors import InputError
from workbench.metrics import BASELINE, RunFigures, arm_label, figures_object, run_figures
from workbench.record import MANIFEST, write_atomically
from workbench.report.charts import shown_arms
from workbench.report.page import render
from workbench.report.tables import cell_title, headline_cell
from workbench.strict_json import strict_json

__all__ = ["REPORT", "render", "write_report"]

REPORT = "report.html"
FIGURES = "figures.json"


def write_report(
    run: Path,
    on_progress: Callable[[float], None] = lambda share: None,
    traces: bool = True,
    found: RunFigures | None = None,
) -> Path:
    """Write RUN/report.html (and figures.json, trace-*.json) from the finished arms below `run`; returns its path.

    `found` are the run's figures where the caller has them already. `on_progress` is told the share done, in [0, 1]. Raises `InputError` where there is no finished arm, or nothing can
    be written; a report that was there before stays whole.
    """
    found = found or run_figures(run, lambda done, total: on_progress(0.8 * done / total))
    try:
        links = {"all figures (JSON)": FIGURES}
        write_atomically(run / FIGURES, strict_json(figures_object(found)).encode())
        if traces:
            links |= _write_traces(found)
        on_progress(0.95)
        page = render(found, _manifest(found.run), links)
        write_atomically(run / REPORT, page.encode("utf-8", errors="replace"))
    except OSError as error:
        raise InputError(
            f"cannot write into {run}: {error.strerror or error}; make it writable or copy the run"
        ) from None
    on_progress(1.0)
    return run / REPORT


def _write_traces(found: RunFigures) -> dict[str, str]:
    """Chrome traces of the first seed of the baseline and of all three, in the cells shown in detail."""
    links: dict[str, str] = {}
    for plant in ("sim", "live"):
        cell = headline_cell(found, plant)
        if cell is None:
            continue
        for code in shown_arms(cell):
            name = f"trace-{plant}-{'baseline' if code == BASELINE else code}.json"
            write_chrome_trace(cell.arms[code].paths[0], found.run / name)
            links[f"Perfetto trace: {cell_title(cell)}, {'baseline' if code == BASELINE else arm_label(code)}"] = name
    return links


def _manifest(run: Path) -> Mapping[str, Any]:
    """The run's own manifest; empty where it has none."""
    try:
        content = json.loads((run / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
