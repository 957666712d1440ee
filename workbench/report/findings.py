"""What a change is called: better, worse, same, open or unknown, from its paired 95 % interval.

    better / worse   the interval leaves out zero and the change is at least 1 % (smaller ones are not called a change)
    same             every replicate is identical: the arms tie by construction
    open             the interval covers zero, or the change is below 1 %
    unknown          no interval (too few requests or seeds), or undefined

Outcomes decide whether a controller helps. Mechanisms (KV bytes read, |H - H*|, tau per second) say what it does, and
count for nothing by themselves. NLL follows the mean temperature whatever moves it, so for an arm with the temperature
loop it is a mechanism; elsewhere a higher one is a price, and a lower one is not counted as help.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.metrics import CellFigures, Figure
from workbench.metrics.table import BY_NAME

SMALLEST_CHANGE = 0.01

OUTCOMES: dict[str, str] = {
    "ttft_mean_s": "mean TTFT",
    "ttft_p99_s": "p99 TTFT",
    "tpot_mean_s": "mean TPOT",
    "e2e_mean_s": "mean end-to-end time",
    "e2e_p99_s": "p99 end-to-end time",
    "output_tokens_per_s": "output per second",
    "goodput_frac": "the share of requests inside the SLO",
    "energy_per_token_j": "energy per token",
    "nll_nats": "NLL of the text",
}
MECHANISMS: dict[str, dict[str, str]] = {
    "S": {"tau_per_busy_s": "entropic time per busy second", "preemptions_per_request": "preemptions"},
    "T": {
        "entropy_error_nats": "the tracking error |H − H*|",
        "temperature_mean": "the mean temperature",
        "nll_nats": "NLL of the text",
    },
    "P": {"kv_read_frac": "KV bytes read"},
}
MECHANISMS["STP"] = {"kv_read_frac": "KV bytes read", "entropy_error_nats": "the tracking error |H − H*|"}


@dataclass(frozen=True)
class Finding:
    """One metric of one arm in one cell against the baseline."""

    metric: str
    cell: CellFigures
    state: str  # better, worse, same, open, unknown
    relative: Figure

    @property
    def size(self) -> float:
        return 0.0 if self.relative.value is None else abs(self.relative.value)


def outcomes_of(code: str) -> list[str]:
    """The outcomes an arm is judged by: without NLL where the temperature loop runs."""
    return [metric for metric in OUTCOMES if metric != "nll_nats" or "T" not in code]


def findings(cells: Sequence[CellFigures], code: str, metrics: Sequence[str]) -> list[Finding]:
    return [_finding(cell, code, metric) for metric in metrics for cell in cells if code in cell.changes]


def _finding(cell: CellFigures, code: str, metric: str) -> Finding:
    change = cell.change(code, metric)
    relative = Figure(None) if change is None else change.relative
    if change is None or change.difference.value is None:
        state = "unknown"
    elif change.identical:
        state = "same"
    elif relative.covers_zero is None:
        state = "unknown"
    elif relative.covers_zero or abs(relative.value or 0.0) < SMALLEST_CHANGE:
        state = "open"
    else:
        falls = (relative.value or 0.0) < 0.0
        state = "better" if falls == (BY_NAME[metric].better != "higher") else "worse"
    return Finding(metric, cell, state, relative)
