"""The ledger as one HTML page that loads nothing from outside: a table of verdicts, each row opening to its picture."""

from importlib.resources import files
from pathlib import Path

import jinja2
from markupsafe import Markup

from workbench.claims.authority import authority_map
from workbench.claims.claim import Verdict
from workbench.claims.ledger import Ledger
from workbench.claims.picture import interval_picture
from workbench.record import write_atomically

TEMPLATE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Claims ledger</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{{ css|safe }}
details.claim{border-bottom:1px solid var(--rule);padding:.45em 0}
details.claim>summary{display:grid;grid-template-columns:15em 1fr 9.5em;gap:1em;cursor:pointer;align-items:baseline}
details.claim>summary b{font:600 13px/1.4 var(--sans)} .v{font:600 13px/1.4 var(--sans);text-align:right}
.v.reproduced{color:#17723b}.v.partly{color:#8a6100}.v.not-reproduced,.v.false-in-general{color:#a92222}
.v.inconclusive,.v.not-testable-here{color:#666} code{overflow-wrap:anywhere}
.authority table{border-collapse:collapse}.authority td,.authority th{font:13px/1.4 var(--sans);padding:.35em .8em;text-align:left;
border:1px solid var(--hair)}.authority small{display:block;color:#555}.authority td.up{background:#d7eedd}
.authority td.down{background:#f5d9d9}.authority td.none{background:#eee}
</style></head><body><header><p class="kicker">Entropic workbench</p><h1>Claims ledger</h1>
<p class="facts"><span>{{ rows|length }} claims</span>{% for name, n in counts %}<span>{{ n }} {{ name }}</span>{% endfor %}</p>
</header><main><p class="lead">A verdict stands where the whole 99 % interval lies on one side of its thresholds;
otherwise it is inconclusive. Intervals hold for the setting named in each row and for no other.</p>
{% for row in rows %}<details class="claim" id="{{ row.claim.id }}"><summary><b>{{ row.claim.id }}</b>
<span>{{ row.claim.says }}</span><span class="v {{ row.verdict.value|replace(' ', '-') }}">{{ row.verdict.value }}</span></summary>
<p><b>Source.</b> {{ row.claim.source }}</p><p><b>Measured as.</b> {{ row.claim.definition }}</p>
{% if row.claim.needs %}<p><b>It would take.</b> {{ row.claim.needs }}</p>{% endif %}
{% if row.claim.caution %}<p><b>Caution.</b> {{ row.claim.caution }}</p>{% endif %}
{% if row.trouble %}<p><b>No figure.</b> {{ row.trouble }}</p>{% endif %}
{% for q in row.claim.quantities if q.name in row.found %}{{ picture(q, row.found[q.name]) }}{% endfor %}
{% if row.claim.experiment %}<p><b>Command.</b> <code>{{ command }} {{ row.claim.id }}</code>; code:
<code>workbench/claims/experiments/{{ row.claim.experiment }}.py</code></p>{% endif %}</details>
{% endfor %}{% if authority %}<h2>Authority map</h2><p>Where each controller moves the figure by more than its 99 % interval,
and by more than 1 %: green gains, red loses, grey has no such effect. Simulated H100, Llama-3-8B. Command:
<code>{{ command }} et-latency</code></p>{{ authority }}{% endif %}<p class="lead">Command: <code>{{ command }}</code></p></main></body></html>
"""


def write_page(ledger: Ledger, path: Path, command: str) -> Path:
    rows = ledger.rows
    counts = [(v.value, n) for v in Verdict if (n := sum(row.verdict is v for row in rows))]
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    css = Markup(files("workbench.report").joinpath("page.css").read_text(encoding="utf-8"))
    page = environment.from_string(TEMPLATE).render(
        rows=rows,
        counts=counts,
        css=css,
        command=command,
        picture=interval_picture,
        authority=authority_map(ledger.found.get("factorial", {})),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, page.encode())
    return path
