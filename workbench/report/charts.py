"""Which pictures the page shows: figures against load, signals over time, factorial effects."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from workbench.metrics import BASELINE, CellFigures, RunFigures, arm_label
from workbench.metrics.factorial import EFFECTS
from workbench.metrics.table import BY_NAME
from workbench.report.numbers import change_text, digits, scaled
from workbench.report.svg import Line, Point, dot_chart, line_chart

SERIES: dict[str, str] = {BASELINE: "base", "S": "s", "T": "t", "P": "p", "STP": "all"}
SHORT = {"S": "sched", "T": "temp", "P": "prune"}
BY_LOAD = ("ttft_mean_s", "tpot_mean_s", "e2e_p99_s", "goodput_frac", "output_tokens_per_s", "energy_per_token_j")
EFFECTS_OF = ("ttft_mean_s", "tpot_mean_s", "e2e_mean_s")
OVER_TIME = (
    ("entropy_nats", "Entropy H, nats"),
    ("temperature", "Temperature T"),
    ("waiting", "Requests waiting"),
    ("kv_used_frac", "KV blocks in use, %"),
)


@dataclass(frozen=True)
class ChartRow:
    """Charts shown beside each other under one heading."""

    heading: str
    charts: tuple[Markup, ...]


def load_charts(found: RunFigures) -> list[ChartRow]:
    """Figures against load, a row per memory setting; empty where only one load was run."""
    rows = []
    for memory in dict.fromkeys(cell.cell.memory for cell in found.of_plant("sim")):
        cells = [c for c in found.of_plant("sim") if c.cell.memory == memory and c.cell.load_frac is not None]
        if len(cells) < 2:
            continue
        shown = [m for m in BY_LOAD if any(c.value(code, m) is not None for c in cells for code in c.arms)]
        heading = f"{memory[:1].upper()}{memory[1:]} KV memory" if memory else "Simulated"
        rows.append(ChartRow(heading, tuple(_load_chart(cells, metric, memory) for metric in shown)))
    return rows


def _load_chart(cells: Sequence[CellFigures], name: str, memory: str | None) -> Markup:
    metric = BY_NAME[name]
    values = [abs(v) for c in cells for code in SERIES if (v := c.value(code, name)) is not None]
    factor, unit = scaled(metric, max(values, default=1.0))
    lines, told = [], []
    for code, css in SERIES.items():
        points = []
        for cell in cells:
            figure = cell.arms[code].figures[name] if code in cell.arms else None
            if figure is not None and figure.value is not None and cell.cell.load_frac is not None:
                low, high = (None if end is None else end * factor for end in (figure.low, figure.high))
                points.append(Point(cell.cell.load_frac, figure.value * factor, low, high))
        if points:
            lines.append(Line(arm_label(code), css, points))
            ends = (digits(p.y) for p in (points[0], points[-1]) if p.y is not None)
            told.append(f"{arm_label(code)} {' to '.join(ends)} {unit}")
    title = f"{metric.label}{f', {memory} memory' if memory else ''}"
    loads = [cell.cell.load_frac for cell in cells if cell.cell.load_frac is not None]
    description = f"From load {loads[0]:g} to {loads[-1]:g}: {'; '.join(told)}."
    return line_chart(
        title, description, lines, "load (share of FCFS capacity)", f"{metric.label}, {unit}", x_ticks=loads
    )


def shown_arms(cell: CellFigures) -> list[str]:
    """Arms drawn over time: the baseline and all three, or the first and last of what there is."""
    codes = [code for code in (BASELINE, "STP") if code in cell.arms]
    return codes if len(codes) == 2 else list(dict.fromkeys([*list(cell.arms)[:1], *list(cell.arms)[-1:]]))


def time_charts(cells: Sequence[CellFigures], titles: Sequence[str]) -> list[ChartRow]:
    """Entropy, temperature, queue and KV occupancy over time, a row per cell."""
    rows = []
    for cell, heading in zip(cells, titles, strict=True):
        codes = shown_arms(cell)
        charts = []
        for name, label in OVER_TIME:
            factor = 100.0 if name == "kv_used_frac" else 1.0
            lines = []
            for code in codes:
                series = cell.arms[code].timeline
                values = [None if v is None else v * factor for v in series.get(name, [])]
                if any(v is not None for v in values):
                    points = [Point(t or 0.0, v) for t, v in zip(series["time_s"], values, strict=True)]
                    lines.append(Line(arm_label(code), SERIES.get(code, "all"), points))
            target = cell.target_entropy_nats if name == "entropy_nats" else None
            charts.append(
                line_chart(
                    f"{label} over time",
                    _told(lines, label),
                    lines,
                    "time since the first arrival, s",
                    label,
                    target=target,
                    step_marks=False,
                    may_log=False,
                )
            )
        rows.append(ChartRow(heading, tuple(charts)))
    return rows


def _told(lines: Sequence[Line], label: str) -> str:
    parts = []
    for line in lines:
        ys = [p.y for p in line.points if p.y is not None]
        parts.append(f"{line.label} between {digits(min(ys))} and {digits(max(ys))}")
    return f"{label} over time: {'; '.join(parts)}." if parts else f"{label} over time."


def effect_charts(cells: Sequence[CellFigures], titles: Sequence[str]) -> list[ChartRow]:
    """Main effects and interactions as a share of the baseline, for cells where all eight arms ran."""
    rows = []
    for cell, heading in zip(cells, titles, strict=True):
        if not cell.effects:
            continue
        charts = []
        for name in EFFECTS_OF:
            points, told = [], []
            for code in EFFECTS:
                relative = cell.effects[code][name].relative
                if relative.value is None:
                    continue
                low, high = (None if end is None else 100.0 * end for end in (relative.low, relative.high))
                clear = relative.covers_zero is False
                css = "off" if not clear else "better" if relative.value < 0 else "worse"
                label = arm_label(code) if len(code) == 1 else " × ".join(SHORT[letter] for letter in code)
                points.append((label, Point(100.0 * relative.value, None, low, high), css))
                told.append(f"{arm_label(code)} {change_text(relative)}")
            label = BY_NAME[name].label
            charts.append(
                dot_chart(f"Effects on {label}", "; ".join(told) + ".", points, f"{label}, % of the baseline")
            )
        rows.append(ChartRow(heading, tuple(charts)))
    return rows
