"""The study as one HTML page that loads nothing from outside, a CSV table, pictures and a manifest."""

import base64
import csv
import io
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2

from controllers.temperature.flags import law_flags
from workbench.errors import InputError
from workbench.record import git_revision, versions, write_atomically
from workbench.strict_json import strict_json
from workbench.temper import pictures
from workbench.temper.laws import NOTHING
from workbench.temper.loop_gain import GainCheck, OuterSlope
from workbench.temper.measures import Estimate
from workbench.temper.study import LawFigures, Study
from workbench.temper.verdict import sentences, text, with_interval

COLUMNS: tuple[tuple[str, str, bool], ...] = (
    ("mean_entropy_nats", "mean H", False),
    ("tracking_nats", "mean |H-H*|", False),
    ("tracking_gain", "vs constant", True),
    ("spread_nats", "spread of texts", False),
    ("spread_gain", "vs constant", True),
    ("drift_nats", "drift /100 tok", True),
    ("variation_nats", "TV of H /tok", False),
    ("temperature_variation", "|du| /tok", False),
    ("nll_nats", "NLL", False),
    ("nll_gain", "vs constant", True),
    ("distinct_3", "distinct-3", False),
    ("distinct_gain", "vs constant", True),
    ("settle_tokens", "settle, tok", False),
    ("overshoot_nats", "overshoot", False),
    ("final_error_nats", "last 64 - H*", True),
)

TEMPLATE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Temperature laws on {{ model }}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{{ css|safe }}
img{max-width:100%;background:#fff;border:1px solid var(--rule);border-radius:6px}
td,th{white-space:nowrap;padding:.2em .7em;text-align:right;font:13px/1.5 var(--sans);border-bottom:1px solid var(--hair)}
td:first-child,th:first-child{text-align:left}td small{color:var(--soft)}</style></head><body>
<header><p class="kicker">Temperature laws compared live</p><h1>{{ verdict[0] }}</h1>
<p class="facts">{% for fact in facts %}<span>{{ fact }}</span>{% endfor %}</p></header><main>
<h2>What to use</h2>{% for line in verdict %}<p>{{ line }}</p>{% endfor %}
<h2>Figures</h2><p class="lead">Entropies in nats, tempered and before truncation; brackets are 95 % bootstrap intervals over
prompts. "vs constant" is the law minus the constant temperature with the same mean H. Settling: tokens after the step until the
ensemble's 16-token trailing mean stays within 0.25 nats of its last-64 mean (the window alone can add up to 16).</p>
<div class="scroll"><table><tr><th>law</th>{% for c in columns %}<th>{{ c }}</th>{% endfor %}<th>at a clamp</th><th>matched T</th></tr>
{% for row in rows %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>{% endfor %}</table></div>
{% if flags %}<p>{% for flag in flags %}{{ flag }} {% endfor %}</p>{% endif %}
<h2>Loop gain</h2>{% for line in loop %}<p>{{ line }}</p>{% endfor %}
{% if estimators %}<h2>Top-k estimates</h2><div class="scroll"><table><tr><th>the law sees</th><th>mean |H-H*|</th><th>mean H-H*</th></tr>
{% for row in estimators %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>{% endfor %}</table></div>{% endif %}
<h2>Pictures</h2>{% for title, data in images %}<figure><img alt="{{ title }}" src="data:image/png;base64,{{ data }}"></figure>
{% endfor %}<p class="lead">Command: {{ command }}</p></main></body></html>
"""


def law_row(row: LawFigures) -> list[str]:
    cells = [with_interval(getattr(row, name), signed) for name, _, signed in COLUMNS]
    return [row.law.name, *cells, f"{row.clamped_frac:.1%}", text(row.matched_temperature)]


def loop_lines(check: GainCheck, slope: OuterSlope) -> list[str]:
    covers = slope.total.low <= 0.0 <= slope.total.high
    return [
        f"Inside a token: (H(u + 0.01) - H(u - 0.01)) / 0.02 is {check.ratio:.5f} of V summed over {check.num_rows} recorded "
        f"rows; {check.within_frac:.1%} of the rows agree within 1 %, the worst differs by {check.worst:.2%}.",
        f"With a dither of u, tempered H of the same token moves by {with_interval(slope.inner)} nats per neper "
        f"(mean V {slope.mean_varentropy:.3g}).",
        f"Between tokens: raw H of the next token moves by {with_interval(slope.lags[0], True)} nats per neper, of the next "
        f"{len(slope.lags)} together by {with_interval(slope.total, True)}"
        + (
            ": not told apart from zero by this run." if covers else ", so the outer loop adds to the gain inside a token."
        ),
    ]  # fmt: skip


def write_page(
    study: Study,
    check: GainCheck,
    slope: OuterSlope,
    estimators: Sequence[tuple[str, float, float]],
    directory: Path,
    *,
    model: str,
    command: str,
    facts: Sequence[str],
    figures: Mapping[str, Any],
) -> dict[str, Path]:
    """Write report.html, table.csv, figures.json and the pictures. Raises `InputError` where nothing can be written."""
    images = {
        "step.png": ("Step of H*", pictures.step_picture(study)),
        "gains.png": ("Law minus matched constant", pictures.gain_picture(study)),
        "texts.png": ("Spread between texts", pictures.texts_picture(study)),
        "temperature.png": ("Temperature along one text", pictures.temperature_picture(study)),
        "dither.png": ("Dither", pictures.dither_picture(slope)),
    }
    if estimators:
        images["estimators.png"] = ("Top-k estimates", pictures.estimator_picture(estimators))
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    html = environment.from_string(TEMPLATE).render(
        css=(files("workbench.report") / "page.css").read_text(encoding="utf-8"),
        model=model,
        verdict=sentences(study),
        facts=facts,
        columns=[label for _, label, _ in COLUMNS],
        rows=[law_row(row) for row in study.rows],
        flags=flags(study),
        loop=loop_lines(check, slope),
        estimators=[[name, text(error), text(bias, signed=True)] for name, error, bias in estimators],
        images=[(title, base64.b64encode(data).decode()) for title, data in images.values()],
        command=command,
    )
    manifest = {"command": command, "figures": dict(figures), "git_revision": git_revision(), "versions": versions()}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, (_, data) in images.items():
            write_atomically(directory / name, data)
        write_atomically(directory / "table.csv", table_csv(study).encode())
        write_atomically(directory / "figures.json", strict_json(manifest).encode())
        write_atomically(directory / "report.html", html.encode("utf-8", errors="replace"))
    except OSError as error:
        raise InputError(f"cannot write {directory}: {error.strerror or error}; choose another --out") from None
    return {"report": directory / "report.html", "table": directory / "table.csv"}


def flags(study: Study) -> list[str]:
    """What a reader must know about single laws before using their row."""
    out = []
    for row in study.rows:
        controller = row.law.build(study.target_nats, (), study.vocab_size)
        out += [f"{row.law.name}: {flag.split(': ', 1)[1]}." for flag in law_flags(controller, row.law.delay_steps)]
        if row.law is not NOTHING and row.clamped_frac > 0.5:
            out.append(f"{row.law.name} spent {row.clamped_frac:.0%} of its tokens at the ends of its range.")
    return out


def table_csv(study: Study) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    names = [name for name, _, _ in COLUMNS]
    writer.writerow(
        ["law", *(f"{name}{part}" for name in names for part in ("", "_low", "_high")), "matched_temperature"]
    )
    for row in study.rows:
        cells: list[object] = []
        for name in names:
            e: Estimate | None = getattr(row, name)
            cells += [None] * 3 if e is None else [repr(e.value), repr(e.low), repr(e.high)]
        writer.writerow([row.law.name, *cells, repr(row.matched_temperature)])
    return buffer.getvalue()
