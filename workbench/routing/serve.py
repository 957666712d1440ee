"""Route questions as they would be served: probe, decide, answer. No reply is generated that the decision does not need.

    probe      the first `probe_tokens` of the Standard reply
    Standard   goes on from the probe (its KV would be reused)
    Direct     a new prompt, its own reply
    CoT        likewise

Tokens always include the probe. A fixed router pays for none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from controllers.routing.descriptors import describe
from workbench.protocols import Controller, RouteObservation, RouteReason, Strategy
from workbench.routing.evaluate import SEED_STRIDE
from workbench.routing.extraction import Extraction, extract, is_correct
from workbench.routing.generation_record import Settings
from workbench.routing.panel import needs_probe
from workbench.routing.prompts import Prompts
from workbench.routing.question import Question
from workbench.routing.text_model import Reply, TextModel
from workbench.signals import FloatArray


@dataclass(frozen=True, kw_only=True)
class Served:
    """One question's way: what the probe showed, what was decided and why, what was answered at which cost."""

    question: Question
    strategy: Strategy
    reason: RouteReason
    probe_entropy_nats: FloatArray  # [probe tokens]; empty for a fixed router
    sum_nats: float
    trend: float  # NaN where undefined
    avnr: float
    output_tokens: int  # probe included
    text: str
    extraction: Extraction
    correct: bool


def serve(
    model: TextModel,
    questions: Sequence[Question],
    router: Controller[Any, Any, Any],
    prompts: Prompts,
    settings: Settings,
    on_progress: Callable[[float], None] = lambda share: None,
) -> list[Served]:
    """All questions, `chunk_questions` at a time."""
    out: list[Served] = []
    for start in range(0, len(questions), settings.chunk_questions):
        out += _serve_chunk(
            model, questions[start : start + settings.chunk_questions], start, router, prompts, settings
        )
        on_progress(len(out) / len(questions))
    return out


def _serve_chunk(
    model: TextModel,
    questions: Sequence[Question],
    start: int,
    router: Controller[Any, Any, Any],
    prompts: Prompts,
    settings: Settings,
) -> list[Served]:
    n = len(questions)
    position = np.arange(start, start + n)
    probed = needs_probe(router)
    standard = [model.prompt(prompts.messages(q, Strategy.STANDARD))[0] for q in questions]

    def generate(rows: Sequence[int], asked: list[list[int]], max_tokens: int, strategy: Strategy) -> dict[int, Reply]:
        if not rows:
            return {}
        seeds = [(settings.seed * len(Strategy) + int(strategy)) * SEED_STRIDE + start + i for i in rows]
        return dict(zip(rows, model.generate(asked, max_tokens, settings.temperature, seeds), strict=True))

    probes: dict[int, Reply] = {}
    entropy = np.full((n, settings.probe_tokens), np.nan)
    surprisal = np.full((n, settings.probe_tokens), np.nan)
    tokens = np.zeros(n, dtype=np.int64)
    if probed:
        probes = generate(range(n), standard, settings.probe_tokens, Strategy.STANDARD)
        for i, reply in probes.items():
            tokens[i] = len(reply.token_ids)
            entropy[i, : tokens[i]] = reply.entropy_raw_nats
            surprisal[i, : tokens[i]] = reply.surprisal_raw_nats
    observation = RouteObservation(
        step=0,
        active=np.ones(n, dtype=bool),
        joined=np.ones(n, dtype=bool),
        request_id=position,
        measured=tokens > 0,
        measured_step=np.zeros(n, dtype=np.int64),
        num_probe_tokens=tokens,
        probe_entropy_nats=entropy,
        probe_surprisal_raw_nats=surprisal,
    )
    action = router.step(router.init(n), observation)[1]
    numbers = describe(entropy, tokens)
    text, cost = [""] * n, tokens.copy()
    for strategy in Strategy:
        rows = [i for i in range(n) if action.strategy[i] == strategy]
        goes_on = strategy is Strategy.STANDARD and probed
        if goes_on:
            for i in rows:
                text[i] = probes[i].text
            rows = [i for i in rows if probes[i].finish_reason != "stop"]
            if settings.max_standard_tokens == settings.probe_tokens:
                rows = []
        asked = [
            [*standard[i], *probes[i].token_ids]
            if goes_on
            else model.prompt(prompts.messages(questions[i], strategy))[0]
            for i in rows
        ]
        limit = settings.max_tokens(strategy) - (settings.probe_tokens if goes_on else 0)
        for i, reply in generate(rows, asked, limit, strategy).items():
            cost[i] += len(reply.token_ids)
            text[i] = text[i] + reply.text
    served = []
    for i, question in enumerate(questions):
        extraction = extract(text[i], question)
        served.append(
            Served(
                question=question,
                strategy=Strategy(int(action.strategy[i])),
                reason=RouteReason(int(action.reason[i])),
                probe_entropy_nats=entropy[i, : tokens[i]],
                sum_nats=float(numbers.sum_nats[i]),
                trend=float(numbers.trend[i]),
                avnr=float(numbers.avnr[i]),
                output_tokens=int(cost[i]),
                text=text[i],
                extraction=extraction,
                correct=is_correct(extraction, question),
            )
        )
    return served
