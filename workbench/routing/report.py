"""The report of an evaluation: one JSON of every number, a page with pictures, a markdown table."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from controllers.routing.descriptors import Descriptors
from workbench.routing.bootstrap import Interval
from workbench.routing.comparison import DescriptorRow, RouterRow
from workbench.routing.early_stopping import EarlyStopRow
from workbench.routing.findings import findings
from workbench.routing.generation_record import write_atomic
from workbench.routing.page import Section, markdown, write_page
from workbench.routing.pictures import accuracy_picture, manifold_picture, reason_picture
from workbench.routing.precision import FlipRow
from workbench.routing.simulate import LoadRow


@dataclass(frozen=True, kw_only=True)
class Results:
    """Everything an evaluation found; rows of both scorings, told apart by `scoring`."""

    routers: Sequence[RouterRow]
    oracle: Mapping[tuple[str, str], tuple[Interval, Interval]]  # by (task, scoring)
    descriptors: Sequence[DescriptorRow]
    early_stops: Sequence[EarlyStopRow]
    flips: Sequence[FlipRow]
    load: Sequence[LoadRow] = ()
    chance: Mapping[str, float]
    probes: Mapping[str, Descriptors]  # by task
    notes: Sequence[str]
    manifest: Mapping[str, Any]


def write_results(results: Results, directory: Path, title: str, lead: Sequence[str]) -> dict[str, Path]:
    """results.json, report.html and results.md in `directory`."""
    paths = {
        name: directory / file
        for name, file in (("results", "results.json"), ("report", "report.html"), ("table", "results.md"))
    }
    data = {
        "routers": [_row(row) for row in results.routers],
        "oracle": [
            {"task": task, "scoring": scoring, "accuracy": asdict(a), "tokens_mean": asdict(t)}
            for (task, scoring), (a, t) in results.oracle.items()
        ],
        "descriptors": [_row(row) for row in results.descriptors],
        "early_stops": [_row(row) for row in results.early_stops],
        "flips": [_row(row) for row in results.flips],
        "load": [_row(row) for row in results.load],
        "chance": {task: _finite(value) for task, value in results.chance.items()},
        "notes": list(results.notes),
        "manifest": dict(results.manifest),
    }
    found = findings(results.routers, results.descriptors, results.flips, results.chance)
    sections = [Section("What holds, and what does not", found), *_sections(results)]
    data["findings"] = found
    write_atomic(paths["results"], json.dumps(data, indent=1, allow_nan=False) + "\n")
    write_page(paths["report"], title, lead, [sections[0], *_pictures(results), *sections[1:]])
    write_atomic(paths["table"], markdown(title, lead, sections))
    return paths


def _pictures(results: Results) -> list[Section]:
    made = []
    for scoring in dict.fromkeys(row.scoring for row in results.routers):
        rows = [row for row in results.routers if row.scoring == scoring]
        made.append(
            Section.of_picture(
                f"Accuracy against tokens, by {scoring}",
                accuracy_picture(rows),
                "Up and to the left is better. Bars are 95 % bootstrap intervals over questions.",
            )
        )
    first = [row for row in results.routers if row.scoring == "extraction"]
    made.append(Section.of_picture("Why each router decided", reason_picture(first)))
    made.append(Section.of_picture("The manifold", manifold_picture(results.probes)))
    return made


def _sections(results: Results) -> list[Section]:
    sections = []
    for scoring in dict.fromkeys(row.scoring for row in results.routers):
        rows = [row for row in results.routers if row.scoring == scoring]
        table = []
        for task in dict.fromkeys(row.task for row in rows):
            for row in (row for row in rows if row.task == task):
                table.append(
                    [
                        task,
                        row.router,
                        _text(row.accuracy, 3),
                        _text(row.tokens_mean, 1),
                        _share(row.shares["direct"]),
                        _share(row.shares["standard"]),
                        _share(row.shares["cot"]),
                        _share(row.no_answer_share),
                        "–" if row.saving_vs_cot is None else _share(row.saving_vs_cot),
                        _text(row.accuracy_vs_cot, 3, signed=True),
                        _text(row.accuracy_vs_direct, 3, signed=True),
                        _text(row.accuracy_vs_mix, 3, signed=True),
                        _text(row.tokens_vs_mix, 1, signed=True),
                    ]
                )
            if (task, scoring) in results.oracle:
                accuracy, tokens = results.oracle[task, scoring]
                table.append([task, "(oracle)", _text(accuracy, 3), _text(tokens, 1), *["–"] * 9])
        chance = ", ".join(f"{task} {value:.3f}" for task, value in results.chance.items() if not math.isnan(value))
        sections.append(
            Section(
                f"Routers, scored by {scoring}",
                [
                    "Tokens are output tokens a question, the probe included. Differences are paired. "
                    "The mix draws each strategy with the router's own shares, without a probe. "
                    "The oracle knows which strategy is right and takes the cheapest."
                    + (f" Accuracy of guessing: {chance}." if chance else "")
                ],
                header=[
                    "task",
                    "router",
                    "accuracy (95 %)",
                    "tokens (95 %)",
                    "direct",
                    "standard",
                    "CoT",
                    "no answer",
                    "saved against CoT",
                    "accuracy − CoT",
                    "accuracy − direct",
                    "accuracy − mix",
                    "tokens − mix",
                ],
                rows=table,
            )
        )
    looking = [r for r in results.routers if r.scoring == "extraction" and r.reasons.get("fixed", 0.0) < 1.0]
    names = ["overload", "rising", "falling", "no_trend", "too_short", "learned", "fixed"]
    sections.append(
        Section(
            "Why",
            ["Share of questions by the reason of the decision."],
            header=["task", "router", *[name.replace("_", " ") for name in names]],
            rows=[[r.task, r.router, *[_share(r.reasons.get(name, 0.0)) for name in names]] for r in looking],
        )
    )
    sections.append(
        Section(
            "Do the three numbers tell where a chain of thought helps?",
            ["AUROC for: the chain of thought is right and Direct is wrong. 0.5 is chance."],
            header=["task", "scoring", "number", "helped", "questions", "AUROC (95 %)"],
            rows=[
                [d.task, d.scoring, d.descriptor, str(d.num_helped), str(d.num_questions), _text(d.auroc, 2)]
                for d in results.descriptors
            ],
        )
    )
    if results.early_stops:
        sections.append(
            Section(
                "Ending a chain of thought early",
                ["Scored by option likelihood where the thought is cut; against the whole thought."],
                header=["task", "rule", "stopped", "accuracy", "tokens", "accuracy − whole", "tokens − whole"],
                rows=[
                    [
                        e.task,
                        e.rule,
                        _share(e.stopped_share),
                        _text(e.accuracy, 3),
                        _text(e.tokens_mean, 1),
                        _text(e.accuracy_vs_whole, 3, signed=True),
                        _text(e.tokens_vs_whole, 1, signed=True),
                    ]
                    for e in results.early_stops
                ],
            )
        )
    if results.flips:
        sections.append(
            Section(
                "Decisions flipped by rounding",
                ["The same probe tokens read in another dtype, teacher-forced."],
                header=["task", "router", "questions", "flipped", "mean shift of H (nats)", "largest"],
                rows=[
                    [
                        f.task,
                        f.router,
                        str(f.num_questions),
                        f"{100 * f.flip_share:.1f} %",
                        f"{f.mean_shift_nats:.4f}",
                        f"{f.max_shift_nats:.3f}",
                    ]
                    for f in results.flips
                ],
            )
        )
    if results.load:
        sections.append(
            Section(
                "On a loaded server (simulated)",
                [
                    "The recorded questions as requests of a simulated server, all tasks mixed, Poisson arrivals. A request is "
                    "right where the recorded reply of its strategy is; the lengths are those of the recorded model."
                ],
                header=[
                    "router",
                    "requests/s offered",
                    "latency mean (s)",
                    "p95 (s)",
                    "tokens",
                    "requests/s served",
                    "right answers/s",
                    "accuracy",
                ],
                rows=[
                    [
                        row.router,
                        f"{row.rate_per_s:g}",
                        _number(row.latency_mean_s, 3),
                        _number(row.latency_p95_s, 3),
                        f"{row.output_tokens_mean:.1f}",
                        _number(row.requests_per_s, 2),
                        _number(row.right_answers_per_s, 2),
                        f"{row.accuracy:.3f}",
                    ]
                    for row in results.load
                ],
            )
        )
    if results.notes:
        sections.append(Section("Notes", list(results.notes)))
    return sections


def _row(row: Any) -> dict[str, Any]:
    data = {key: _finite(value) if isinstance(value, float) else value for key, value in asdict(row).items()}
    if isinstance(row, RouterRow):
        data |= {"saving_vs_cot": row.saving_vs_cot, "beats_mix": row.beats_mix}
    return data


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _text(value: Interval, places: int, signed: bool = False) -> str:
    if value.value is None:
        return "–"
    form = f"{'+' if signed else ''}.{places}f"
    if value.low is None or value.high is None:
        return f"{value.value:{form}}"
    return f"{value.value:{form}} ({value.low:{form}} to {value.high:{form}})"


def _number(value: float | None, places: int) -> str:
    return "–" if value is None else f"{value:.{places}f}"


def _share(value: float) -> str:
    return f"{round(100 * value) + 0:d} %"
