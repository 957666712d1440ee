"""One question of `workbench route`: the probe, its three numbers, the decision and the reason."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from workbench.cli.console import Output
from workbench.protocols import RouteReason, Strategy

WHY = {
    RouteReason.NO_TREND: "neither a trend nor overload: answer standardly",
    RouteReason.FALLING: "entropy falls along the probe: a chain of thought",
    RouteReason.RISING: "entropy rises along the probe: answer directly",
    RouteReason.OVERLOAD: "the summed entropy is above the limit: answer directly",
    RouteReason.TOO_SHORT: "the probe ended before a trend can be tested: answer standardly",
    RouteReason.FIXED: "a fixed strategy, which does not look",
    RouteReason.LEARNED: "the trained router's choice",
}
BARS = " .:-=+*#%@"


def one_question(
    out: Output,
    load: Callable[[], Any],
    text: str,
    options: Sequence[str],
    router: Any,
    router_name: str,
    prompts: Any,
    settings: Any,
    directory: Path | None,
) -> NoReturn:
    from workbench.routing.page import Section, write_page
    from workbench.routing.pictures import probe_picture
    from workbench.routing.question import AnswerKind, Question
    from workbench.routing.serve import serve
    from workbench.routing.task_files import LETTERS

    letters = tuple(LETTERS[: len(options)])
    asked = Question(
        task="question",
        question_id="0",
        text=text,
        kind=AnswerKind.CHOICE if options else AnswerKind.TEXT,
        answer=letters[0] if options else "?",  # unknown: only how it is asked matters
        labels=letters,
        options=tuple(options),
    )
    model = load()
    with out.progress("probe and answer"):
        got = serve(model, [asked], router, prompts, settings)[0]
    trace = got.probe_entropy_nats
    numbers = f"S_H = {got.sum_nats:.2f} nats   V_sp = {_number(got.trend)}   avnr = {_number(got.avnr)}"
    strategy = {Strategy.STANDARD: "Standard", Strategy.DIRECT: "Direct", Strategy.COT: "CoT"}[got.strategy]
    why = f"{strategy}: {WHY[got.reason]}"
    out.say(f"probe     {len(trace)} tokens, entropy {spark(trace)}" if len(trace) else "probe     none")
    out.say(f"numbers   {numbers}")
    out.say(f"decision  {why} ({router_name})")
    out.say(f"answer    {got.text.strip()}")
    read = f"; read as: {got.extraction.answer or 'no answer'}" if options else ""
    out.say(f"tokens    {got.output_tokens}, probe included{read}")
    paths = {}
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        page = directory / "question.html"
        sections = [Section.of_picture("Probe", probe_picture(trace, numbers))] if len(trace) else []
        sections += [Section("Decision", [why]), Section("Answer", text=got.text.strip())]
        write_page(page, "One question routed", [text, numbers], sections)
        paths["report"] = page
    out.done(
        True,
        {
            "accuracy": None,
            "tokens_mean": got.output_tokens,
            **{f"share_{s.name.lower()}": float(got.strategy is s) for s in Strategy},
            "probe_tokens": len(trace),
            "sum_nats": got.sum_nats,
            "trend": got.trend if math.isfinite(got.trend) else None,
            "avnr": got.avnr if math.isfinite(got.avnr) else None,
        },
        paths,
    )


def _number(value: float) -> str:
    return f"{value:+.3f}" if math.isfinite(value) else "undefined"


def spark(trace: Sequence[float]) -> str:
    """The trace in plain characters, a level per token, the highest as @."""
    top = max((float(h) for h in trace), default=0.0) or 1.0
    return "|" + "".join(BARS[min(int(float(h) / top * len(BARS)), len(BARS) - 1)] for h in trace) + "|"
