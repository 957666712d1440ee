"""The verdict in words: which controllers help, by how much, at what price, and where nothing happens and why.

Every sentence is computed from `findings`: paired changes against the baseline arm and their 95 % intervals.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.metrics import BASELINE, CONTROLLERS, CellFigures, RunFigures
from workbench.report.findings import MECHANISMS, OUTCOMES, Finding, findings, outcomes_of
from workbench.report.numbers import MANY, THIN, change_text, percent, times

NAMES = {"S": "The scheduler", "T": "The temperature loop", "P": "Pruning", "STP": "All three together"}
SHORT_QUEUE = 0.05  # share of busy time
PLANTS = {"sim": "simulated", "live": "live"}


@dataclass(frozen=True)
class PlantVerdict:
    """What an arm does on one plant: a mark, a sentence, and the details behind it (label, lines)."""

    name: str
    mark: str  # helps, trade, hurts, nothing, unknown
    summary: str
    reasons: tuple[str, ...]  # where nothing happens and why, a sentence each
    details: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Verdict:
    code: str
    name: str
    headline: str
    parts: tuple[PlantVerdict, ...]


@dataclass(frozen=True)
class VerdictPage:
    verdicts: tuple[Verdict, ...]
    remarks: tuple[str, ...]


def verdict_of(found: RunFigures) -> VerdictPage:
    """Verdicts of the three controllers alone and of all three together, and what to keep in mind."""
    codes = [code for code in (*CONTROLLERS, "STP") if any(code in cell.changes for cell in found.cells)]
    return VerdictPage(tuple(_verdict(found, code) for code in codes), tuple(_remarks(found, codes)))


def _verdict(found: RunFigures, code: str) -> Verdict:
    parts = []
    for plant, name in PLANTS.items():
        cells = [cell for cell in found.of_plant(plant) if code in cell.changes]
        if cells:
            parts.append(_on_plant(cells, code, plant, name))
    return Verdict(code, NAMES[code], _headline(code, parts), tuple(parts))


def _on_plant(cells: Sequence[CellFigures], code: str, plant: str, name: str) -> PlantVerdict:
    outcomes = findings(cells, code, outcomes_of(code))
    # A lower NLL is no gain; a higher one is a price.
    better = [f for f in outcomes if f.state == "better" and f.metric != "nll_nats"]
    worse = [f for f in outcomes if f.state == "worse"]
    if better or worse:
        mark = "trade" if better and worse else "helps" if better else "hurts"
    else:
        states = {f.state for f in outcomes}
        mark = "unknown" if "unknown" in states and "open" not in states else "nothing"
    details = (("better", _listed(better, outcomes)), ("worse", _listed(worse, outcomes)))
    lead = {"sim": "In simulation", "live": "On the live model"}[plant]
    it = "they" if code == "STP" else "it"
    summary = _summary(lead, it, better, worse, mark) + _moves(cells, code, it)
    reasons = tuple(f"{line[0].upper()}{line[1:]}." for line in _reasons(cells, outcomes, code))
    return PlantVerdict(name, mark, summary, reasons, tuple((label, lines) for label, lines in details if lines))


def _headline(code: str, parts: Sequence[PlantVerdict]) -> str:
    many = code == "STP"
    verb = {
        "helps": "help" if many else "helps",
        "trade": "are a trade" if many else "is a trade",
        "hurts": "hurt" if many else "hurts",
        "nothing": "change no outcome" if many else "changes no outcome",
        "unknown": "cannot be judged",
    }
    says = [verb[part.mark] for part in parts]
    where = {"simulated": "in simulation", "live": "live"}
    if len(parts) == 2 and says[0] == says[1]:
        return f"{NAMES[code]} {says[0]}, in simulation and live"
    return f"{NAMES[code]} " + ", and ".join(
        f"{text} {where[part.name]}" for text, part in zip(says, parts, strict=True)
    )


def _summary(lead: str, it: str, better: Sequence[Finding], worse: Sequence[Finding], mark: str) -> str:
    if mark == "unknown":
        return f"{lead} there were too few requests for an interval, so nothing can be said."
    if mark == "nothing":
        return f"{lead} no latency, throughput, goodput, energy or quality changed measurably."
    gain = _strongest(better, it) if better else ""
    loss = _strongest(worse, it) if worse else ""
    if gain and loss:
        return f"{lead} {it} {gain}, but {loss}."
    return f"{lead} {it} {gain}; nothing measured gets worse." if gain else f"{lead} {it} {loss}; nothing gets better."


def _strongest(hits: Sequence[Finding], it: str) -> str:
    most = max(hits, key=lambda f: f.size)
    relative = most.relative
    ending, place = "s" if it == "it" else "", _place(most.cell)
    if (relative.value or 0.0) >= MANY:
        many = change_text(relative).removeprefix("×")
        return (
            f"{'multiplies' if ending else 'multiply'} {OUTCOMES[most.metric]} by {many}{f' {place}' if place else ''}"
        )
    falls = (relative.value or 0.0) < 0.0
    low, high = sorted(abs(end) for end in (relative.low or 0.0, relative.high or 0.0))
    interval = f"({percent(low, False).removesuffix(THIN + '%')} to {percent(high, False).removesuffix(THIN + '%')})"
    return (
        f"{'cut' if falls else 'raise'}{ending} {OUTCOMES[most.metric]} by {percent(most.size, False)} {interval}"
        f"{f' {place}' if place else ''}"
    )


def _moves(cells: Sequence[CellFigures], code: str, it: str) -> str:
    """What it does on purpose, as a sentence: each mechanism's change as the range over cells."""
    parts = []
    for metric, name in MECHANISMS[code].items():
        moved = [f for f in findings(cells, code, [metric]) if f.state in ("better", "worse")]
        values = [f.relative.value for f in moved if f.relative.value is not None]
        if values:
            low, high = (times(v) if max(values) >= MANY else percent(v) for v in (min(values), max(values)))
            parts.append(f"{name} by {low if low == high else f'{low} to {high}'}")
    return f" {it.capitalize()} {'moves' if it == 'it' else 'move'} {_joined(parts)}." if parts else ""


def _joined(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _listed(hits: Sequence[Finding], outcomes: Sequence[Finding]) -> tuple[str, ...]:
    metrics = sorted({f.metric for f in hits}, key=lambda m: -max(f.size for f in hits if f.metric == m))
    lines = []
    for metric in metrics:
        mine = [f for f in hits if f.metric == metric]
        most = max(mine, key=lambda f: f.size)
        total = sum(f.metric == metric for f in outcomes)
        place = f", most {_place(most.cell)}" if _place(most.cell) else ""
        where = f" in {len(mine)} of {total} cells{place}" if total > 1 else ""
        lines.append(f"{OUTCOMES[metric]} {change_text(most.relative)}{where}")
    return tuple(lines)


def _place(cell: CellFigures) -> str:
    load = "" if cell.cell.load_frac is None else f"at load {cell.cell.load_frac:g}"
    memory = "" if cell.cell.memory is None else f"with {cell.cell.memory} memory"
    return " ".join(part for part in (load, memory) if part)


def _reasons(cells: Sequence[CellFigures], outcomes: Sequence[Finding], code: str) -> tuple[str, ...]:
    """Where nothing happens, and why, as far as the record can say."""
    if code == "STP":
        return ()
    lines: list[str] = []
    quiet = [cell for cell in cells if cell.value(BASELINE, "waiting_share") == 0.0]
    if code == "S" and quiet:
        lines.append(f"{_share(quiet, cells)} nothing ever queued: every order serves alike, arms tie by construction")
    brief = [cell for cell in cells if 0.0 < (cell.value(BASELINE, "waiting_share") or 0.0) < SHORT_QUEUE]
    if code == "S" and brief:
        lines.append(
            f"{_share(brief, cells)} requests waited in under {percent(SHORT_QUEUE, False)} of busy time: little to reorder"
        )
    whole = [cell for cell in cells if (c := cell.change("P", "kv_read_frac")) is not None and c.identical]
    if code == "P" and whole:
        lines.append(f"{_share(whole, cells)} no block could be dropped: only sinks, recent blocks and mass to keep")
    times = [f for f in outcomes if f.metric in ("ttft_mean_s", "tpot_mean_s", "e2e_mean_s")]
    if code == "T" and times and all(f.state == "same" for f in times):
        lines.append(
            "latency is identical to the last digit: answers keep their lengths, and drawing at another temperature "
            "takes no longer"
        )
    if code == "T" and any(f.state in ("better", "worse") for f in findings(cells, code, ["nll_nats"])):
        lines.append(
            "NLL follows the mean temperature: compare with a constant T of that mean before calling it a price or a gain"
        )
    output = [f for f in outcomes if f.metric == "output_tokens_per_s"]
    light = [f for f in output if f.cell.cell.load_frac is not None and f.cell.cell.load_frac < 1.0]
    if code != "T" and light and all(f.state in ("same", "open") for f in light):
        lines.append("below capacity, output per second is what arrives: no controller can raise it")
    unknown = [f for f in outcomes if f.state == "unknown" and f.relative.value is not None]
    if unknown:
        names = ", ".join(dict.fromkeys(OUTCOMES[f.metric] for f in unknown))
        lines.append(f"too few requests for an interval of {names}")
    return tuple(lines)


def _share(some: Sequence[CellFigures], cells: Sequence[CellFigures]) -> str:
    return "here" if len(cells) == 1 else f"in {len(some)} of {len(cells)} cells"


def _remarks(found: RunFigures, codes: Sequence[str]) -> list[str]:
    remarks: list[str] = []
    if not codes:
        arms = sum(len(cell.arms) for cell in found.cells)
        remarks.append(
            f"This run holds {arms} arm{'s' if arms != 1 else ''} and no baseline to compare with, so there is no verdict, "
            "only figures."
        )
    judged = [
        f
        for code in codes
        for f in findings(found.cells, code, outcomes_of(code))
        if f.state in ("better", "worse", "open")
    ]
    if judged:
        remarks.append(
            f"{len(judged)} changes were compared at 95{THIN}%; about {0.05 * len(judged):.0f} of them would leave out zero by "
            "chance alone, so trust patterns over single cells."
        )
    partial = [
        cell
        for cell in found.cells
        if any(arm.counts["completed"] < arm.counts["arrived"] for arm in cell.arms.values())
    ]
    if partial:
        worst = min(
            arm.counts["completed"] / max(arm.counts["arrived"], 1) for cell in partial for arm in cell.arms.values()
        )
        remarks.append(
            f"Not every request completed (down to {percent(worst, signed=False)} in one arm). Latencies are those of completed requests; "
            "goodput counts the rest as misses."
        )
    flags = dict.fromkeys(flag for cell in found.cells for flag in cell.flags)
    remarks += [f"Controller flag: {flag}." for flag in flags]
    if found.skipped:
        remarks.append(f"{len(found.skipped)} arms could not be read and are left out; they are listed at the end.")
    return remarks
