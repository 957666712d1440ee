"""The ledger as one HTML page that loads nothing from outside: a table of verdicts, each row opening to its picture."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import jinja2
from markupsafe import Markup

from workbench.claims.authority_map import authority_map
from workbench.claims.claim import Verdict
from workbench.claims.factorial_chart import effect_cells, factorial_charts
from workbench.claims.ledger import Ledger, Row
from workbench.claims.picture import interval_picture, text_of
from workbench.record import write_atomically

PAPERS = (
    ("et", "Entropic time", "Scheduler, temperature loop, pruning, and the three together."),
    ("edrm", "When to reason", "The entropies of a probe decide how a question is answered."),
    ("unmask", "Masked diffusion", "Entropies decide how many tokens a step reveals."),
)
# (experiment, heading, a claim whose command draws it)
FACTORIALS = (
    ("factorial_azure", "Simulated: H100, Llama-3-8B, Azure conversation trace", "et-latency"),
    ("factorial_mooncake", "Simulated: H100, Llama-3-8B, Mooncake conversation trace", "et-system-mooncake"),
    ("factorial_live", "Live: SmolLM2-135M on this machine", "et-system-live"),
)

TEMPLATE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Claims ledger</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{{ css }}</style></head><body>
<header><p class="kicker">Entropic workbench</p><h1>Claims ledger</h1>
<p class="lead">What three papers say, measured. A verdict stands where the whole 99 % interval lies on one side of its thresholds, which
are written down beside each claim and never moved to fit; otherwise it is inconclusive. Intervals hold for the setting named in
a row and for no other.</p>
<div class="tally" role="img" aria-label="verdicts">{% for v, n in counts %}<i class="v-{{ slug(v) }}" style="flex:{{ n }}"></i>{% endfor %}</div>
<p class="counts">{% for v, n in counts %}<span><i class="v-{{ slug(v) }}"></i>{{ n }} {{ v }}</span>{% endfor %}</p>
<p class="facts"><span>{{ rows|length }} claims</span><span>{{ minutes }} of measuring</span><span><code>{{ command }}</code></span></p>
</header><main>
{% for title, intro, mine in papers %}<section class="paper"><h2>{{ title }}</h2><p class="lead">{{ intro }}</p>
{% for row in mine %}<details class="claim" id="{{ row.claim.id }}"><summary><span>{{ row.claim.says }}<span class="id">{{ row.claim.id }}</span></span>
<span class="told">{% for line in told(row) %}{{ line }}{% if not loop.last %}<br>{% endif %}{% endfor %}</span>
<span class="verdict-word"><i class="v-{{ slug(row.verdict.value) }}"></i>{{ row.verdict.value }}</span></summary>
<div class="opened"><p><b>Source.</b> {{ row.claim.source }}</p>
{% if row.claim.definition != "none" %}<p><b>Measured as.</b> {{ row.claim.definition }}.</p>{% endif %}
{% if row.claim.join == "settings" and row.found|length > 1 %}<p>The figures are settings of one claim: decided ones that differ make it partly.</p>{% endif %}
{% if row.claim.needs %}<p><b>It would take.</b> {{ row.claim.needs }}.</p>{% endif %}
{% if row.trouble %}<p><b>No figure.</b> {{ row.trouble }}</p>{% endif %}
{% for q in row.claim.quantities if q.name in row.found %}{{ picture(q, row.found[q.name]) }}{% endfor %}
{% if row.claim.caution %}<p><b>Caution.</b> {{ row.claim.caution }}.</p>{% endif %}
{% if row.claim.experiment %}<p><b>Drawn by.</b> <code>{{ command }} {{ row.claim.id }}</code>; experiment
<code>workbench/claims/experiments/{{ row.claim.experiment }}.py</code>{% if row.claim.experiment in seconds %} (its rows together took
{{ "%.0f"|format(seconds[row.claim.experiment]) }} s){% endif %}; resolved scenarios in the manifests under <code>runs/</code> beside this page</p>{% endif %}</div></details>
{% endfor %}</section>{% endfor %}
{% if factorials %}<h2>Factorial</h2><p class="lead">Every combination of the three controllers under the same requests and draws: main effects
and interactions in ln units, 99 % intervals over paired seeds. Right is better; blue gains, orange loses, grey holds zero. Where
gains multiply, interactions are zero.</p>
{% for title, id, charts in factorials %}<h3>{{ title }}</h3><p class="small">Drawn by <code>{{ command }} {{ id }}</code></p>{{ charts }}{% endfor %}{% endif %}
{% if authority %}<h2>Authority map</h2><p class="lead">Where each controller, each pair and all three change a figure by more than its 99 %
interval: one setting of the server varied at a time, against KV memory and arrival rate (as a share of the cell's own capacity).
Blue gains, orange loses, stronger with the effect; grey and empty: no effect. The letter is the mechanism, read from what the
simulator accounted: A admission (waiting for KV blocks), Q queueing, M memory-bound (KV bytes read), R recomputing after
preemption, E the entropies themselves, B other time in steps. One cell in a hundred is coloured by chance.</p>
<p class="small">Drawn by <code>{{ command }} et-everywhere</code>. Columns: all KV memory (ample) or room for 12 average requests (tight), each at
shares of capacity. S scheduler, T temperature, P pruning. In the last figure: A admission (KV blocks), S admission (batch slots), Q queueing,
W memory-bound (weights), M memory-bound (KV), C compute-bound (prefill).</p>{{ authority }}{% endif %}
</main><footer><p>Command: <code>{{ command }}</code></p></footer></body></html>
"""


def slug(verdict: str) -> str:
    return verdict.replace(" ", "-")


def told(row: Row) -> list[str]:
    """Up to two figures of a row, and how many more there are."""
    lines = [f"{q.label} {text_of(row.found[q.name])}" for q in row.claim.quantities if q.name in row.found]
    return lines if len(lines) <= 3 else [*lines[:2], f"{len(lines) - 2} more"]


def papers(rows: Sequence[Row]) -> list[tuple[str, str, list[Row]]]:
    parted = [(title, intro, [r for r in rows if r.claim.id.startswith(f"{key}-")]) for key, title, intro in PAPERS]
    return [part for part in parted if part[2]]


def write_page(ledger: Ledger, path: Path, command: str) -> Path:
    rows = ledger.rows
    counts = [(v.value, n) for v in Verdict if (n := sum(row.verdict is v for row in rows))]
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    sheets = [files(package).joinpath("page.css") for package in ("workbench.report", "workbench.claims")]
    found = ledger.found
    factorials = [
        (title, id, factorial_charts(found[name], cells))
        for name, title, id in FACTORIALS
        if name in found and (cells := effect_cells(found[name]))
    ]
    page = environment.from_string(TEMPLATE).render(
        rows=rows,
        papers=papers(rows),
        counts=counts,
        css=Markup("\n".join(sheet.read_text(encoding="utf-8") for sheet in sheets)),
        command=command,
        slug=slug,
        told=told,
        picture=interval_picture,
        seconds=ledger.seconds,
        minutes=f"{sum(ledger.seconds.values()) / 60.0:.1f} minutes",
        factorials=factorials,
        authority=authority_map(found.get("authority", {})),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, page.encode())
    return path
