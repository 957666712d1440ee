"""The authority map as small multiples: a panel an arm, settings of the server down, memory and load across.

Blue gains, orange loses, stronger with the size of the effect; where the 99 % interval holds zero the cell is grey and empty.
The letter names the mechanism, from what the simulator accounted in that cell under that arm:

    A  admission: time spent waiting for KV blocks      R  recomputing what preemption threw away
    Q  queueing: time spent waiting for a turn           M  memory-bound: KV bytes read in a step
    E  the entropies themselves (tau), not their cost    B  other time in steps (batches of another size)
"""

from collections.abc import Mapping
from dataclasses import dataclass

from markupsafe import Markup, escape

from workbench.claims.claim import Measured
from workbench.claims.experiments.authority import COLUMNS, ROWS, column_key
from workbench.claims.mechanism import HELD_BY, held_by
from workbench.metrics.arm import ARM_CODES, BASELINE, arm_label

TITLES = {
    "latency": "Latency saved",
    "throughput": "Throughput gained",
    "tau_per_busy_s": "dtau/dC gained, C in busy seconds",
}
FULL_COLOUR = 0.4  # an effect this large, in ln, has the full colour
CELL_W, CELL_H, LABEL_W, TOP, GAP, ACROSS, MIN_W = 30, 19, 148, 46, 20, 4, 120
HELD_COLOURS = {
    "admission: KV blocks": ("A", "var(--t)"),
    "admission: batch slots": ("S", "var(--all)"),
    "queueing": ("Q", "var(--all)"),
    "memory-bound: weights": ("W", "var(--p)"),
    "memory-bound: KV": ("M", "var(--s)"),
    "compute-bound: prefill": ("C", "var(--base)"),
}


@dataclass(frozen=True)
class Box:
    """One drawn cell. `colour` None: no effect."""

    colour: str | None
    strength: float
    letter: str
    detail: str


def effect(found: Measured) -> int:
    """+1 gains, -1 loses, 0 where the interval holds zero."""
    return 1 if found.low > 0.0 else -1 if found.high < 0.0 else 0


def mechanism(found: Mapping[str, Measured], cell: str, arm: str, metric: str) -> str:
    """The letter of the largest change behind an effect."""

    def of(name: str) -> float:
        return found[f"{cell}/{arm}_d_{name}"].value

    if metric == "latency" and abs(of("queue")) > abs(of("service")):
        return "A" if held_name(found, cell).endswith("KV blocks") else "Q"
    if metric == "tau_per_busy_s" and abs(of("tau")) > abs(of("busy")):
        return "E"
    if of("recomputed") > 0.01:
        return "R"
    if of("kv_read") < -0.02 and (of("service") if metric == "latency" else of("busy")) < 0.0:
        return "M"
    if metric == "throughput" and abs(of("queue")) > abs(of("busy")):
        return "A" if held_name(found, cell).endswith("KV blocks") else "Q"
    return "B"


def panel_name(arm: str) -> str:
    return arm_label(arm) if len(arm) != 2 else " + ".join(arm)


def held_name(found: Mapping[str, Measured], cell: str) -> str:
    return held_by({name: found[f"{cell}/held_{name}"].value for name in HELD_BY})


def keys(found: Mapping[str, Measured]) -> tuple[list[str], list[str]]:
    """(rows, columns) that were measured, in the order of the tables."""
    names = {tuple(name.split("/")[:2]) for name in found if name.count("/") == 2}
    rows, columns = ({name[i] for name in names} for i in (0, 1))
    return [row for row in ROWS if row in rows], [c for c in (column_key(*pair) for pair in COLUMNS) if c in columns]


def authority_map(found: Mapping[str, Measured]) -> Markup:
    """Four figures as HTML; empty where nothing was measured."""
    rows, columns = keys(found)
    if not rows:
        return Markup("")
    arms = [code for code in ARM_CODES if code != BASELINE]
    parts = []
    for metric, title in TITLES.items():
        panels = [
            (panel_name(arm), [[_box(found, f"{row}/{column}", arm, metric) for column in columns] for row in rows])
            for arm in arms
        ]
        parts.append(_figure(title, panels, rows, columns))
    held = [[_held_box(found, f"{row}/{column}") for column in columns] for row in rows]
    parts.append(_figure("What holds the baseline back", [("first come first served", held)], rows, columns))
    return Markup("").join(parts)


def _box(found: Mapping[str, Measured], cell: str, arm: str, metric: str) -> Box:
    one = found.get(f"{cell}/{arm}_{metric}")
    if one is None:
        return Box(None, 0.0, "?", "not measured")
    sign = effect(one)
    detail = f"{arm_label(arm)}, {cell}: {one.value:+.1%} ({one.low:+.1%} to {one.high:+.1%})"
    if sign == 0:
        return Box(None, 0.0, "", f"{detail}: no effect")
    colour = "var(--better)" if sign > 0 else "var(--worse)"
    return Box(colour, min(1.0, abs(one.value) / FULL_COLOUR) ** 0.6, mechanism(found, cell, arm, metric), detail)


def _held_box(found: Mapping[str, Measured], cell: str) -> Box:
    name = held_name(found, cell)
    letter, colour = HELD_COLOURS[name]
    share = {n: found[f"{cell}/held_{n}"].value for n in HELD_BY}
    told = ", ".join(f"{n.replace('_', ' ')} {share[n]:.2f}" for n in HELD_BY)
    return Box(colour, 0.55, letter, f"{cell}: {name} ({told})")


def _figure(title: str, panels: list[tuple[str, list[list[Box]]]], rows: list[str], columns: list[str]) -> Markup:
    width, height = max(CELL_W * len(columns), MIN_W), CELL_H * len(rows)
    across = min(ACROSS, len(panels))
    down = -(-len(panels) // across)
    total_w = LABEL_W + across * (width + GAP)
    total_h = down * (TOP + height + 8)
    body = []
    for k, (name, boxes) in enumerate(panels):
        x0, y0 = LABEL_W + (k % across) * (width + GAP), (k // across) * (TOP + height + 8) + TOP
        body.append(f'<text class="axis" x="{x0}" y="{y0 - 30}" font-weight="600">{escape(name)}</text>')
        for j, column in enumerate(columns):
            memory, load = column.split("_")
            middle = x0 + (j + 0.5) * CELL_W
            body.append(f'<text class="tick" x="{middle}" y="{y0 - 5}" text-anchor="middle">{escape(load)}</text>')
            if j == 0 or columns[j - 1].split("_")[0] != memory:
                body.append(f'<text class="tick" x="{x0 + j * CELL_W + 2}" y="{y0 - 17}">{escape(memory)}</text>')
        for i, row in enumerate(rows):
            if k % across == 0:
                y = y0 + (i + 0.5) * CELL_H + 4
                body.append(
                    f'<text class="row" x="{LABEL_W - 8}" y="{y}" text-anchor="end">{escape(ROWS[row].label)}</text>'
                )
            body += [_drawn(box, x0 + j * CELL_W, y0 + i * CELL_H) for j, box in enumerate(boxes[i])]
    svg = (
        f'<svg class="chart" viewBox="0 0 {total_w} {total_h}" style="max-width:{total_w * 1.15:.0f}px" role="img" '
        f'aria-label="{escape(title)}">{"".join(body)}</svg>'
    )
    return Markup(f'<figure class="authority"><h3>{escape(title)}</h3>{svg}</figure>')


def _drawn(box: Box, x: float, y: float) -> str:
    fill, opacity = ("var(--grey)", 1.0) if box.colour is None else (box.colour, 0.14 + 0.76 * box.strength)
    text = ""
    if box.letter:
        text = (
            f'<text x="{x + CELL_W / 2}" y="{y + CELL_H / 2 + 4}" text-anchor="middle" style="fill:var(--ink)">'
            f"{escape(box.letter)}</text>"
        )
    return (
        f'<g><title>{escape(box.detail)}</title><rect x="{x + 1}" y="{y + 1}" width="{CELL_W - 2}" '
        f'height="{CELL_H - 2}" rx="2" style="fill:{fill};fill-opacity:{opacity:.2f}"/>{text}</g>'
    )
