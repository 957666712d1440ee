"""The eight arms as heat maps: one per figure, arms down, cells across; change against the baseline with its interval.

Blue is better, orange worse, grey where the interval covers zero (or there is none, or the change is below 0.1 %), an
equals sign where every replicate is identical. A figure without a better side (a mechanism) is purple where it moved,
whichever way; so is NLL where it falls or the temperature loop runs (it follows the mean temperature). The baseline row
shows the value itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.metrics import ARM_CODES, BASELINE, CellFigures, Metric, RunFigures, arm_label
from workbench.metrics.table import BY_NAME
from workbench.report.numbers import MANY, change_text, digits, interval_text, percent, scaled, times, value_text

SHOWN = (
    "ttft_mean_s", "ttft_p99_s", "tpot_mean_s", "e2e_mean_s", "e2e_p99_s", "goodput_frac",
    "output_tokens_per_s", "energy_per_token_j", "kv_read_frac", "entropy_error_nats", "nll_nats", "tau_per_busy_s",
)  # fmt: skip
NEGLIGIBLE = 0.001  # shown as no change, whatever its interval
FULL_COLOUR = 0.3  # a change of thirty per cent has the full colour


@dataclass(frozen=True)
class HeatCell:
    text: str
    interval: str
    css: str  # better, worse, moved, grey, same, base, none
    strength: float  # 0 .. 1
    detail: str  # for the tooltip and for screen readers


@dataclass(frozen=True)
class HeatMap:
    metric: Metric
    caption: str
    groups: tuple[tuple[str, int], ...]  # (heading, columns it spans)
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[HeatCell, ...]], ...]


def heat_maps(found: RunFigures) -> list[HeatMap]:
    """One map per figure of SHOWN that any arm has, over all cells that hold a baseline."""
    cells = [cell for cell in found.cells if BASELINE in cell.arms and len(cell.arms) > 1]
    cells.sort(key=lambda cell: (cell.cell.plant != "sim", cell.cell.plant, cell.cell.memory or "", cell.cell.order))
    if not cells:
        return []
    shown = [BY_NAME[name] for name in SHOWN]
    return [
        _heat_map(metric, cells) for metric in shown if any(c.value(BASELINE, metric.name) is not None for c in cells)
    ]


def _heat_map(metric: Metric, cells: Sequence[CellFigures]) -> HeatMap:
    groups: list[tuple[str, int]] = []
    for cell in cells:
        memory = f", {cell.cell.memory} memory" if cell.cell.memory else ""
        heading = ("simulated" if cell.cell.plant == "sim" else cell.cell.plant) + memory
        if groups and groups[-1][0] == heading:
            groups[-1] = (heading, groups[-1][1] + 1)
        else:
            groups.append((heading, 1))
    columns = tuple("" if c.cell.load_frac is None else f"{c.cell.load_frac:g}" for c in cells)
    codes = [code for code in ARM_CODES if any(code in cell.arms for cell in cells)]
    rows = tuple((arm_label(code), tuple(_cell(metric, cell, code) for cell in cells)) for code in codes)
    sides = {"lower": "lower is better", "higher": "higher is better", "neither": "a mechanism, no better side"}
    unit = scaled(metric, 1.0)[1] if metric.unit != "s" else ""
    caption = f"{unit}; {sides[metric.better]}" if unit else sides[metric.better]
    return HeatMap(metric, caption, tuple(groups), columns, rows)


def _cell(metric: Metric, cell: CellFigures, code: str) -> HeatCell:
    arm = cell.arms.get(code)
    if arm is None:
        return HeatCell("", "", "none", 0.0, "this arm did not run here")
    figure = arm.figures[metric.name]
    if code == BASELINE:
        if figure.value is None:
            return HeatCell("–", "", "base", 0.0, figure.reason or "undefined")
        factor, unit = scaled(metric, figure.value)
        unit = unit if metric.unit == "s" else ""
        return HeatCell(digits(figure.value * factor), unit, "base", 0.0, f"baseline {value_text(metric, figure)}")
    change = cell.change(code, metric.name)
    if change is None or change.difference.value is None:
        return HeatCell("–", "", "none", 0.0, figure.reason or "undefined")
    if change.identical:
        return HeatCell("=", "", "same", 0.0, "identical to the baseline in every replicate")
    relative = change.relative
    if relative.value is None:
        detail = f"from zero to {value_text(metric, figure)} ({interval_text(metric, figure)})"
        return HeatCell("0 →", "", "grey", 0.0, detail)
    detail = f"{change_text(relative)}, {relative.method or relative.reason}; now {value_text(metric, figure)}"
    written = times if relative.value >= MANY else _bare
    text = written(relative.value)
    if relative.low is None or relative.high is None:
        return HeatCell(text, "?", "grey", 0.0, detail)
    interval = f"{written(relative.low)} {written(relative.high)}".replace(" ×", " ")
    if relative.covers_zero or abs(relative.value) < NEGLIGIBLE:
        return HeatCell(text, interval, "grey", 0.0, detail)
    good = (relative.value < 0.0) == (metric.better != "higher")
    strength = min(1.0, abs(relative.value) / FULL_COLOUR) ** 0.7
    mechanism = metric.better == "neither" or (metric.name == "nll_nats" and (good or "T" in code))
    css = "moved" if mechanism else "better" if good else "worse"
    return HeatCell(text, interval, css, round(strength, 3), detail)


def _bare(value: float) -> str:
    return percent(value).rstrip("%").strip()
