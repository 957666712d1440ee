"""Main effects and interactions of a 2x2x2 factorial as dots with 99 % intervals: a line a cell, a chart a figure of merit."""

from collections.abc import Mapping, Sequence

from markupsafe import Markup, escape

from workbench.claims.claim import Measured
from workbench.claims.paired import EFFECTS, TOLD
from workbench.metrics.arm import CONTROLLERS
from workbench.report.svg import Point, dot_chart

LABELS = {
    "latency": "ln latency saved",
    "throughput": "ln throughput gained",
    "tau_per_busy_s": "ln dtau/dC gained, busy s",
}


def effect_cells(found: Mapping[str, Measured]) -> list[str]:
    """Cells whose eight arms ran, in the order measured: "tight_1.2"."""
    return list(dict.fromkeys(name.split("_effect_")[0] for name in found if "_effect_" in name))


def cell_title(cell: str) -> str:
    where, load = cell.split("_")
    memory = {"ample": "all KV memory", "tight": "KV memory cut to 8 %", "live": "this machine"}[where]
    return f"{memory}, load {load} of capacity"


def effect_name(effect: str) -> str:
    letters = effect.split("x")
    return CONTROLLERS[letters[0]] if len(letters) == 1 else " × ".join(letters)


def factorial_charts(found: Mapping[str, Measured], cells: Sequence[str]) -> Markup:
    """HTML: for each cell a heading and three charts."""
    parts = []
    for cell in cells:
        charts = []
        for name in TOLD:
            rows = []
            for effect in EFFECTS:
                one = found[f"{cell}_effect_{effect}_{name}"]
                sign = "better" if one.low > 0.0 else "worse" if one.high < 0.0 else "off"
                rows.append((effect_name(effect), Point(one.value, None, one.low, one.high), sign))
            charts.append(dot_chart(f"{cell}: {LABELS[name]}", "effects and interactions", rows, LABELS[name]))
        parts.append(
            f'<h3>{escape(cell_title(cell))}</h3><div class="charts">{"".join(f"<figure>{c}</figure>" for c in charts)}</div>'
        )
    return Markup("".join(parts))
