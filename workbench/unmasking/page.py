"""A study as one self-contained page, a CSV table and its pictures as files. Texts are escaped, nothing is loaded."""

import base64
import csv
import io
from collections.abc import Mapping
from html import escape
from pathlib import Path

import numpy as np

from workbench.errors import InputError
from workbench.record import git_revision, versions, write_atomically
from workbench.strict_json import strict_json
from workbench.unmasking.charts import line_chart, panel_chart
from workbench.unmasking.estimate import Estimate
from workbench.unmasking.study import Cell, Study
from workbench.unmasking.study_file import save_study

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:1120px;margin:2em auto;padding:0 1em;color:#1a1a1a;background:#fff}
table{border-collapse:collapse;font-size:13px;margin:1em 0}
td,th{padding:.25em .7em;border-bottom:1px solid #ddd;text-align:right;white-space:nowrap}
td:first-child,th:first-child{text-align:left}
.scroll{overflow-x:auto}img{max-width:100%}code{background:#f3f3f3;padding:.1em .3em}
.yes:before{content:"holds";color:#fff;background:#00704a}.no:before{content:"fails";color:#fff;background:#b3261e}
.yes:before,.no:before{padding:.05em .45em;border-radius:3px;margin-right:.6em;font-size:12px}li{margin:.3em 0;list-style:none}
@media (prefers-color-scheme:dark){body{background:#161616;color:#e6e6e6}td,th{border-color:#333}code{background:#2a2a2a}
img{background:#fff}}
"""


def cell_text(value: Cell) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float | np.floating):
        return "-" if np.isnan(value) else f"{value:.4g}"
    return str(value)


def write_study(study: Study, directory: Path, extra: Mapping[str, tuple[str, bytes]] | None = None) -> dict[str, Path]:
    """Write the page and all that belongs to it, figures.json, and study.json to make the page from again.

    `extra` holds further pictures: file name to (heading, bytes). Returns what was written, by name. Raises `InputError` where
    nothing can be written.
    """
    paths = write_page(study, directory, extra)
    try:
        manifest = {"study": study.name, "command": study.command, "figures": study.figures}
        manifest |= {"git_revision": git_revision(), "versions": versions()}
        write_atomically(directory / "figures.json", strict_json(manifest).encode())
        save_study(study, directory, {name: heading for name, (heading, _) in (extra or {}).items()})
    except OSError as error:
        raise _unwritable(directory, error) from None
    return paths


def write_page(study: Study, directory: Path, extra: Mapping[str, tuple[str, bytes]] | None = None) -> dict[str, Path]:
    """Write report.html, table.csv and the pictures; returns what was written, by name. Raises `InputError`."""
    pictures: dict[str, tuple[str, bytes]] = {
        f"{chart.name}.png": (chart.title, line_chart(chart)) for chart in study.charts
    }
    for index, panel in enumerate(study.panels):
        pictures[f"panels-{index}.png" if index else "panels.png"] = ("", panel_chart(panel))
    pictures |= dict(extra or {})
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, (_, content) in pictures.items():
            write_atomically(directory / name, content)
        write_atomically(directory / "table.csv", _csv(study).encode())
        write_atomically(directory / "report.html", _page(study, pictures).encode("utf-8", errors="replace"))
    except OSError as error:
        raise _unwritable(directory, error) from None
    return {"report": directory / "report.html", "table": directory / "table.csv"} | {
        Path(name).stem: directory / name for name in pictures if name != "run.gif"
    }


def _unwritable(directory: Path, error: OSError) -> InputError:
    return InputError(f"cannot write {directory}: {error.strerror or error}; choose another --out")


def _csv(study: Study) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    wide = [any(isinstance(row[j], Estimate) for row in study.rows) for j in range(len(study.columns))]
    header: list[str] = []
    for name, is_wide in zip(study.columns, wide, strict=True):
        header += [name, f"{name} half width"] if is_wide else [name]
    writer.writerow(header)
    for row in study.rows:
        line: list[object] = []
        for value, is_wide in zip(row, wide, strict=True):
            if isinstance(value, Estimate):
                line += [repr(value.mean), repr(value.half_width)]
            else:
                line += [value, ""] if is_wide else [value]
        writer.writerow(line)
    return buffer.getvalue()


def _page(study: Study, pictures: Mapping[str, tuple[str, bytes]]) -> str:
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        '<meta name=viewport content="width=device-width,initial-scale=1">',
        f"<title>{escape(study.title)}</title><style>{STYLE}</style>",
        f"<h1>{escape(study.title)}</h1><p>{escape(study.intro)}</p>",
        f"<p>Made by <code>{escape(study.command)}</code></p>",
    ]
    if study.statements:
        items = "".join(
            f"<li class={'yes' if statement.holds else 'no'}>{escape(statement.text)}</li>"
            for statement in study.statements
        )
        parts.append(f"<h2>What is stated</h2><ul>{items}</ul>")
    parts += [f"<p>{escape(note)}</p>" for note in study.notes]
    for name, (heading, content) in pictures.items():
        kind = "gif" if name.endswith(".gif") else "png"
        encoded = base64.b64encode(content).decode()
        title = f"<h2>{escape(heading)}</h2>" if heading else ""
        parts.append(f'{title}<img alt="{escape(heading or study.title)}" src="data:image/{kind};base64,{encoded}">')
    head = "".join(f"<th>{escape(column)}</th>" for column in study.columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell_text(value))}</td>" for value in row) + "</tr>" for row in study.rows
    )
    parts.append(f"<h2>Table</h2><div class=scroll><table><tr>{head}</tr>{body}</table></div>")
    parts.append("<p>Intervals are 95 %, over independent orders and samples. Nats throughout.</p></html>")
    return "\n".join(parts)
