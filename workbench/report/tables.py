"""Tables of figures with intervals: simulated and live side by side by theme, and every cell in full."""

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.metrics import CellFigures, Metric, RunFigures, arm_label
from workbench.metrics.table import BY_NAME
from workbench.report.numbers import DASH, digits, interval_text, percent, scaled

THEMES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "Time to first token",
        "Arrival to first token: queueing and prefill.",
        ("ttft_p50_s", "ttft_p90_s", "ttft_p99_s"),
    ),
    (
        "Time per output token",
        "First to last token over the gaps between; one-token answers have none and are left out.",
        ("tpot_p50_s", "tpot_p90_s", "tpot_p99_s"),
    ),
    (
        "Inter-token latency",
        "Single gaps, where token times are in the record.",
        ("itl_p50_s", "itl_p90_s", "itl_p99_s"),
    ),
    ("End to end", "Arrival to last token.", ("e2e_p50_s", "e2e_p90_s", "e2e_p99_s")),
    (
        "Throughput and goodput",
        "Offered: arrivals a second. The rest is of completed requests, over first arrival to end; a refusal misses the SLO.",
        ("offered_per_s", "requests_per_s", "output_tokens_per_s", "goodput_per_s", "goodput_frac", "completed_frac"),
    ),
    (
        "Queue and memory",
        "What holds requests up: no queue, no use for an order.",
        ("waiting_share", "waiting_mean", "preemptions_per_request", "kv_used_peak_frac"),
    ),
    (
        "Shared, swapped and lost memory",
        "Hits: prompt tokens found in memory at first admission. Recomputed: KV lost to preemption or failure, computed again.",
        ("prefix_hit_frac", "recomputed_frac", "swaps_per_request"),
    ),
    (
        "Replicas and deadlines",
        "Busy: time in steps over the run. Timeouts, cancellations and refusals miss the SLO.",
        (
            "busy_frac",
            "busy_least_frac",
            "busy_most_frac",
            "retries_per_request",
            "timed_out_frac",
            "cancelled_frac",
            "refused_frac",
            "wasted_tokens_frac",
        ),
    ),
    (
        "Entropic time",
        "tau = (net drop + TV) / 2, so tau rewards oscillation: read it beside the other two.",
        ("tau_nats", "net_drop_nats", "total_variation_nats"),
    ),
    (
        "Entropic time per cost",
        "dtau/dC with the cost C in four currencies.",
        ("tau_per_tflop", "tau_per_kv_gb", "tau_per_busy_s", "tau_per_j"),
    ),
    (
        "KV bytes and energy",
        "Bytes read over the bytes of reading every block.",
        ("kv_read_frac", "kv_gb_per_request", "energy_per_token_j", "dropped_mass", "outside_table_frac"),
    ),
    (
        "Entropy and quality",
        "Mean |H − H*| is of tempered entropy; NLL is of the text at T = 1 without truncation.",
        ("entropy_mean_nats", "entropy_error_nats", "temperature_mean", "nll_nats"),
    ),
    (
        "Masked diffusion",
        "Forward passes of completed masked-diffusion requests, each over all positions, and what a pass revealed.",
        ("passes_per_request", "positions_per_pass"),
    ),
    ("Answers", "Right answers of all that arrived; what was refused or not finished is wrong.", ("accuracy_frac",)),
)
# Most runs have no masked diffusion and no answers to score, and say nothing about either.
ONLY_WHERE_KNOWN = (("passes_per_request", "positions_per_pass"), ("accuracy_frac",))
LATENCY_GROUPS = ("ttft", "tpot", "itl", "e2e")
IN_FULL = (
    "offered_per_s", "completed_frac", "waiting_share",
    "ttft_p50_s", "ttft_p99_s", "tpot_p50_s", "tpot_p99_s", "e2e_p50_s", "e2e_p99_s", "output_tokens_per_s",
    "goodput_frac", "preemptions_per_request", "tau_nats", "tau_per_busy_s", "kv_read_frac", "energy_per_token_j",
    "entropy_error_nats", "nll_nats",
)  # fmt: skip


@dataclass(frozen=True)
class TableCell:
    text: str
    interval: str
    detail: str


@dataclass(frozen=True)
class Table:
    title: str
    note: str
    groups: tuple[tuple[str, int], ...]
    heads: tuple[tuple[str, str], ...]  # (label, unit)
    rows: tuple[tuple[str, tuple[TableCell, ...]], ...]
    first_of_group: tuple[bool, ...]  # where a rule is drawn between the plants


def headline_cell(found: RunFigures, plant: str) -> CellFigures | None:
    """The cell shown in detail: tight memory, the heaviest load below capacity."""
    cells = found.of_plant(plant)
    if not cells:
        return None
    return max(cells, key=lambda c: (len(c.arms), c.cell.memory == "tight", (c.cell.load_frac or 0) < 1, c.cell.order))


def cell_title(cell: CellFigures) -> str:
    parts = ["simulated" if cell.cell.plant == "sim" else cell.cell.plant]
    if cell.cell.load_frac is not None:
        parts.append(f"load {cell.cell.load_frac:g}")
    if cell.cell.memory is not None:
        parts.append(f"{cell.cell.memory} memory")
    return ", ".join(parts)


def side_by_side(cells: Sequence[CellFigures]) -> list[Table]:
    """One table a theme, the cells' figures beside each other. What no arm has is left out, and the reason said."""
    tables = []
    for title, note, names in THEMES:
        metrics = [BY_NAME[name] for name in names]
        kept = [m for m in metrics if any(cell.value(code, m.name) is not None for cell in cells for code in cell.arms)]
        if not kept and names in ONLY_WHERE_KNOWN:
            continue
        about = f"{note} {completed_text(cells)}" if metrics[0].group in LATENCY_GROUPS else note
        if why := _reasons(cells, metrics):
            about = f"{about} {DASH} {'; '.join(why)}."
        tables.append(_table(title, about, cells, kept))
    return tables


def completed_text(cells: Sequence[CellFigures]) -> str:
    """The completed share of each cell's arms: latencies are those of completed requests."""
    parts = []
    for cell in cells:
        shares = [arm.counts["completed"] / max(arm.counts["arrived"], 1) for arm in cell.arms.values()]
        low, high = percent(min(shares), signed=False), percent(max(shares), signed=False)
        parts.append(
            f"{low if low == high else f'{low} to {high}'} {'live' if cell.cell.plant == 'live' else 'simulated'}"
        )
    return f"Completed: {', '.join(parts)}."


def counts_text(cell: CellFigures) -> str:
    """Requests behind a cell's figures: arrived, completed, refused, and those that TPOT leaves out."""
    arms = list(cell.arms.values())

    def spread(name: str) -> str:
        low, high = min(arm.counts[name] for arm in arms), max(arm.counts[name] for arm in arms)
        return str(low) if low == high else f"{low} to {high}"

    seeds = len(arms[0].seeds)
    given_up = "".join(
        f", {name.replace('_', ' ')} {spread(name)}"
        for name in ("timed_out", "cancelled")
        if any(arm.counts[name] for arm in arms)
    )
    return (
        f"{spread('arrived')} requests an arm over {seeds} seed{'s' if seeds != 1 else ''}: completed "
        f"{spread('completed')}, refused {spread('refused')}{given_up}, one-token answers (no TPOT) {spread('one_token')}."
    )


def replica_tables(cell: CellFigures) -> list[tuple[str, list[tuple[str, tuple[str, ...]]]]]:
    """(title, rows of (replica, busy, requests, output tokens, prefix hits)) of each arm that ran on several replicas."""

    def share(value: float | None) -> str:
        return DASH if value is None else percent(value, signed=False)

    tables = []
    for code, arm in cell.arms.items():
        rows = [
            (
                str(r.replica),
                (share(r.busy_frac), str(r.num_requests), str(r.output_tokens), share(r.prefix_hit_frac)),
            )
            for r in arm.replicas
        ]
        if rows:
            tables.append((f"Replicas, {cell_title(cell)}, controllers on: {arm_label(code)}", rows))
    return tables


def full_table(cell: CellFigures) -> Table:
    metrics = [BY_NAME[name] for name in IN_FULL]
    why = _reasons([cell], metrics)
    note = f"{counts_text(cell)} {DASH} {'; '.join(why)}." if why else counts_text(cell)
    return _table(cell_title(cell), note, [cell], metrics)


def _table(title: str, note: str, cells: Sequence[CellFigures], metrics: Sequence[Metric]) -> Table:
    codes = list(dict.fromkeys(code for cell in cells for code in cell.arms))
    heads: list[tuple[str, str]] = []
    columns: list[list[TableCell]] = []
    for cell in cells:
        for metric in metrics:
            known = [abs(v) for code in cell.arms if (v := cell.value(code, metric.name)) is not None]
            reference = max(known, default=1.0)
            _, unit = scaled(metric, reference)
            heads.append((metric.label, unit))
            columns.append([_table_cell(cell, code, metric, reference) for code in codes])
    rows = tuple((arm_label(code), tuple(column[k] for column in columns)) for k, code in enumerate(codes))
    first = tuple(k % len(metrics) == 0 for k in range(len(columns)))
    return Table(title, note, tuple((cell_title(c), len(metrics)) for c in cells), tuple(heads), rows, first)


def _reasons(cells: Sequence[CellFigures], metrics: Sequence[Metric]) -> list[str]:
    """Why figures are missing, a line for each reason."""
    labels: dict[str, list[str]] = {}
    for metric in metrics:
        for cell in cells:
            for arm in cell.arms.values():
                figure = arm.figures[metric.name]
                if figure.value is None and metric.label not in labels.setdefault(figure.reason or "undefined", []):
                    labels[figure.reason or "undefined"].append(metric.label)
    return [f"{', '.join(names)}: {reason}" for reason, names in labels.items()]


def _table_cell(cell: CellFigures, code: str, metric: Metric, reference: float) -> TableCell:
    arm = cell.arms.get(code)
    if arm is None:
        return TableCell("", "", "this arm did not run here")
    figure = arm.figures[metric.name]
    if figure.value is None:
        return TableCell(DASH, "", figure.reason or "undefined")
    factor, _ = scaled(metric, reference)
    detail = "; ".join(part for part in (figure.method, figure.reason) if part)
    return TableCell(digits(figure.value * factor), interval_text(metric, figure, reference), detail)
