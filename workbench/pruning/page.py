"""A pruning study as one HTML page that loads nothing from outside, beside its tables and pictures."""

import base64
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2

from workbench.errors import InputError
from workbench.pruning.figures import ArmFigures
from workbench.record import git_revision, versions, write_atomically
from workbench.strict_json import strict_json

TEMPLATE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>KV pruning on {{ model }}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{{ css|safe }}
img{max-width:100%;background:#fff;border:1px solid var(--rule);border-radius:6px}
td,th{white-space:nowrap;padding:.2em .7em;text-align:right;font:13px/1.5 var(--sans);border-bottom:1px solid var(--hair)}
td:first-child,th:first-child,td:nth-child(2),th:nth-child(2){text-align:left}</style></head><body>
<header><p class="kicker">Pruning policies compared on the model</p><h1>{{ lines[0] }}</h1>
<p class="facts">{% for fact in facts %}<span>{{ fact }}</span>{% endfor %}</p></header><main>
{% for section in sections %}<h2>{{ section.title }}</h2>{% for line in section.lines %}<p>{{ line }}</p>{% endfor %}
{% if section.header %}<div class="scroll"><table><tr>{% for cell in section.header %}<th>{{ cell }}</th>{% endfor %}</tr>
{% for row in section.rows %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>{% endfor %}</table></div>{% endif %}
{% for name, data in section.images %}<figure><img alt="{{ name }}" src="data:image/png;base64,{{ data }}"></figure>{% endfor %}
{% endfor %}<p class="lead">Command: {{ command }}</p></main></body></html>
"""
HEADER = (
    "policy",
    "context",
    "bytes",
    "blocks",
    "KL, nats",
    "NLL loss, nats",
    "answers right",
    "H shift, nats",
    "dropped mass",
)


def figure_rows(figures: Sequence[ArmFigures]) -> list[list[str]]:
    rows = []
    for f in figures:
        m = f.metrics
        rows.append(
            [
                f.label, f"{f.context:,}", m["bytes_frac"].text(3), f"{m['blocks_frac'].value:.3f}", m["kl_nats"].text(),
                m["nll_loss_nats"].text(signed=True), m["accuracy"].text(2), m["entropy_shift_nats"].text(3, signed=True),
                m["dropped_mass"].text(3),
            ]
        )  # fmt: skip
    return rows


def section(
    title: str,
    lines: Sequence[str] = (),
    header: Sequence[str] = (),
    rows: Sequence[Sequence[str]] = (),
    images: Mapping[str, bytes] | None = None,
) -> dict[str, Any]:
    coded = [(name, base64.b64encode(data).decode()) for name, data in (images or {}).items()]
    return {"title": title, "lines": lines, "header": header, "rows": rows, "images": coded}


def write_page(
    directory: Path, *, model: str, command: str, facts: Sequence[str], lines: Sequence[str],
    sections: Sequence[Mapping[str, Any]], images: Mapping[str, bytes], figures: Mapping[str, Any],
) -> dict[str, Path]:  # fmt: skip
    """report.html, figures.json and the pictures. Raises `InputError` where nothing can be written."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    html = environment.from_string(TEMPLATE).render(
        css=(files("workbench.report") / "page.css").read_text(encoding="utf-8"),
        model=model, facts=facts, lines=lines, sections=sections, command=command,
    )  # fmt: skip
    manifest = {"command": command, "figures": dict(figures), "git_revision": git_revision(), "versions": versions()}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, data in images.items():
            write_atomically(directory / name, data)
        write_atomically(directory / "figures.json", strict_json(manifest).encode())
        write_atomically(directory / "report.html", html.encode("utf-8", errors="replace"))
    except OSError as error:
        raise InputError(f"cannot write {directory}: {error.strerror or error}; choose another --out") from None
    return {"report": directory / "report.html", "figures": directory / "figures.json"}
