"""Authority map: in which cells each controller moves latency, throughput and dtau/dC by more than its interval.

Small multiples, one a metric: arms down, cells (KV memory and load) across. "none" is an interval that covers zero or lies
within 1 % of it. What holds the baseline back in a cell is read from the simulator's own accounting.
"""

import re
from collections.abc import Mapping

from markupsafe import Markup, escape

from workbench.claims.claim import Measured

METRICS = {"latency": "latency saved", "throughput": "throughput gained", "tau_per_busy_s": "dtau/dC gained, busy s"}
ARMS = {"S": "scheduler", "T": "temperature", "P": "pruning", "STP": "all three"}
NEGLIGIBLE = 0.01
QUEUED, FULL = 0.5, 0.95
CELL = re.compile(r"(ample|tight)_([0-9.]+)_")


def cells_of(found: Mapping[str, Measured]) -> list[str]:
    """Cells in the order measured, such as "tight_1.2"."""
    return list(dict.fromkeys(match.group(0)[:-1] for name in found if (match := CELL.match(name))))


def effect(found: Measured) -> str:
    """ "up", "down" or "none"."""
    if found.low > NEGLIGIBLE:
        return "up"
    if found.high < -NEGLIGIBLE:
        return "down"
    return "none"


def held_by(found: Mapping[str, Measured], cell: str) -> str:
    """What the baseline waits for in that cell, in words."""
    queue, peak = found[f"{cell}_held_queue_share"].value, found[f"{cell}_held_kv_peak_frac"].value
    if queue > QUEUED:
        return "admission: waiting for KV blocks" if peak > FULL else "queueing"
    return "KV memory nearly full" if peak > FULL else "decode steps (weights and KV read)"


def authority_map(found: Mapping[str, Measured]) -> Markup:
    """HTML tables, one a metric; empty without a factorial."""
    cells = cells_of(found)
    if not cells:
        return Markup("")
    heads = "".join(f"<th>{escape(c.replace('_', ', load '))}</th>" for c in cells)
    held = "".join(f"<td>{escape(held_by(found, c))}</td>" for c in cells)
    parts = []
    for metric, label in METRICS.items():
        rows = []
        for code, arm in ARMS.items():
            boxes = []
            for cell in cells:
                one = found[f"{cell}_{code}_{metric}"]
                text = f"{one.value:+.1%}<small>{one.low:+.1%} to {one.high:+.1%}</small>"
                boxes.append(f'<td class="{effect(one)}">{text}</td>')
            rows.append(f"<tr><th>{escape(arm)}</th>{''.join(boxes)}</tr>")
        parts.append(
            f'<figure class="authority"><figcaption>{escape(label)}</figcaption><table><tr><th></th>{heads}</tr>'
            f"{''.join(rows)}<tr><th>baseline held by</th>{held}</tr></table></figure>"
        )
    return Markup("".join(parts))
