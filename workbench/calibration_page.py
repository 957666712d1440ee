"""The page of `workbench calibrate`: what was fitted, and how the entropy process compares with texts it has not seen."""

from importlib.resources import files
from pathlib import Path

import jinja2
import numpy as np
from markupsafe import Markup

from sims.calibration import Calibration
from sims.entropy_process import REGIMES
from sims.goodness_of_fit import LAGS, QUANTILES, GoodnessOfFit
from workbench.record import write_atomically
from workbench.report.svg import Line, Point, line_chart
from workbench.signals import FloatArray

TEMPLATE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Calibration</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{{ css|safe }}
td,th{padding:.2em .8em;text-align:right;font:13px/1.5 var(--sans);border-bottom:1px solid var(--hair)}
td:first-child,th:first-child{text-align:left}.charts{display:flex;flex-wrap:wrap;gap:1em}.charts svg{width:380px}</style>
</head><body><header><p class="kicker">Calibration</p><h1>{{ verdict }}</h1><p class="facts"><span>{{ source }}</span>
{% if mass %}<span>{{ mass }}</span>{% endif %}{% if cost %}<span>{{ cost }}</span>{% endif %}</p></header><main>
{% if fit %}<h2>Entropies of texts not fitted</h2><p class="lead">{{ fit.num_texts }} recorded texts of {{ fit.num_prompts }}
prompts ({{ "{:,}".format(fit.num_tokens) }} tokens) were left out of a fit; each has a simulated twin of its kind, length and
temperatures. Bars are 95 % intervals over prompts. p is the share of random swaps of whole prompts that differ as much.</p>
<table><tr><th>what</th><th>difference</th><th>p</th></tr>{% for c in fit.comparisons %}<tr><td>{{ c.name }}</td>
<td>{{ "%.3g"|format(c.value) }}</td><td>{{ "%.3f"|format(c.p_value) }}</td></tr>{% endfor %}</table>
<div class="charts">{% for chart in charts %}{{ chart }}{% endfor %}</div>{% else %}<p>{{ reason }}</p>{% endif %}
<h2>Laws by kind</h2><div class="scroll"><table><tr><th>kind</th><th>autocorrelation</th><th>own level, share of variance</th>
{% for r in regimes %}<th>{{ r }}</th>{% endfor %}<th>temperature</th><th>pruning</th><th>end: intercept, slope</th></tr>
{% for law in laws %}<tr><td>{{ law.name }}</td><td>{{ "%.2f"|format(law.autocorrelation) }}</td>
<td>{{ "%.2f"|format(law.request_share) }}</td>{% for w in law.regime_weights %}<td>{{ "%.2f"|format(w) }}</td>{% endfor %}
<td>{{ "%.2f"|format(law.temperature_feedback) }}</td><td>{{ "%.2f"|format(law.pruning_feedback) }}</td>
<td>{{ "%.2f, %.2f"|format(law.end_intercept, law.end_slope) }}</td></tr>{% endfor %}</table></div>
<h2>Figures</h2><table>{% for name, value in figures %}<tr><td>{{ name }}</td><td>{{ "%.4g"|format(value) }}</td></tr>
{% endfor %}</table></main></body></html>
"""


def write_page(path: Path, calibration: Calibration, fit: GoodnessOfFit | None, reason: str = "") -> None:
    """`reason`: why there is no goodness of fit."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    html = environment.from_string(TEMPLATE).render(
        css=(files("workbench.report") / "page.css").read_text(encoding="utf-8"),
        verdict=verdict(fit) if fit else "Fitted; not judged on held-out texts",
        source=calibration.process.source,
        mass=f"attention masses {calibration.mass.source}",
        cost=calibration.step_cost.source if calibration.step_cost else "",
        fit=fit,
        reason=reason,
        charts=fit_charts(fit) if fit else [],
        regimes=REGIMES,
        laws=calibration.process.laws,
        figures=sorted(calibration.figures.items()),
    )
    write_atomically(path, html.encode("utf-8", errors="replace"))


def verdict(fit: GoodnessOfFit) -> str:
    """One sentence: whether held-out texts tell recorded from simulated."""
    worst = min(fit.comparisons, key=lambda c: c.p_value)
    if fit.smallest_p >= 0.05:
        return f"Held-out texts do not tell the process from the model (smallest p of four, corrected: {fit.smallest_p:.2f})"
    return f"Held-out texts tell the process from the model by their {worst.name} (p {fit.smallest_p:.3f}, corrected)"


def fit_charts(fit: GoodnessOfFit) -> list[Markup]:
    """Quantiles, autocorrelation and dwell times, recorded and simulated."""

    def pair(x: FloatArray, both: tuple[FloatArray, FloatArray], band: FloatArray | None) -> list[Line]:
        recorded = [
            Point(float(a), float(b), *(map(float, band[:, i]) if band is not None else ()))
            for i, (a, b) in enumerate(zip(x, both[0], strict=True))
        ]
        simulated = [Point(float(a), float(b)) for a, b in zip(x, both[1], strict=True)]
        return [Line("recorded", "base", recorded), Line("simulated", "all", simulated)]

    def described(both: tuple[FloatArray, FloatArray]) -> str:
        return f"largest difference of recorded and simulated {np.nanmax(np.abs(both[0] - both[1])):.3g}"

    stays = np.arange(1.0, 21.0)
    longer = tuple(np.array([np.mean(d >= t) for t in stays]) for d in fit.dwell)
    lags = np.arange(1.0, LAGS + 1.0)
    return [
        line_chart(
            "Quantiles", described(fit.quantiles), pair(100 * QUANTILES, fit.quantiles, fit.quantile_band), "quantile, %",
            "raw entropy, nats", may_log=False,
        ),
        line_chart(
            "Autocorrelation", described(fit.autocorrelation), pair(lags, fit.autocorrelation, fit.autocorrelation_band),
            "lag, tokens", "rank autocorrelation in texts", may_log=False,
        ),
        line_chart(
            "Stays", described((longer[0], longer[1])), pair(stays, (longer[0], longer[1]), None), "tokens",
            "share of stays that last as long", may_log=True, y_floor=None,
        ),
    ]  # fmt: skip
