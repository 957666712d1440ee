"""Generate and score every question under every strategy: the recorded generations all routers are judged on.

For one chunk of questions and one strategy: render the prompts, generate, extract the answer, append the cue and score each
option's likelihood after the model's own text, and (chain of thought) ask for the answer every few tokens along the way.
Every router's result is then a lookup: its decision on the first `probe_tokens` entropies of the Standard reply picks
which recorded reply counts.
"""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from workbench.protocols import Strategy
from workbench.routing.extraction import extract, is_correct
from workbench.routing.generation_record import GenerationRecord, Settings
from workbench.routing.prompts import Prompts
from workbench.routing.question import Question
from workbench.routing.subsample import subsample
from workbench.routing.text_model import Branch, Reply, TextModel

ORDER = (Strategy.STANDARD, Strategy.DIRECT, Strategy.COT)
SEED_STRIDE = 1_000_003  # seeds of a sampled reply: run seed, strategy and position


def evaluate(
    model: TextModel,
    tasks: Mapping[str, Sequence[Question]],
    prompts: Prompts,
    settings: Settings,
    directory: Path,
    *,
    strategies: Sequence[Strategy] = ORDER,
    on_progress: Callable[[float], None] = lambda share: None,
    stop_after_s: float | None = None,
) -> GenerationRecord:
    """Fill `directory` with the missing chunks; with `stop_after_s`, stop at the first chunk boundary past that time."""
    chosen = {name: subsample(questions, settings.total_questions, settings.seed) for name, questions in tasks.items()}
    record = GenerationRecord.open(directory, settings, identity(model, chosen, prompts))
    size = settings.chunk_questions
    jobs = [
        (record.chunk_path(name, strategy, number), questions[start : start + size], strategy, start)
        for name, questions in chosen.items()
        for number, start in enumerate(range(0, len(questions), size))
        for strategy in strategies
    ]
    # Chunk by chunk over all tasks and strategies: an unfinished evaluation has complete questions of every task.
    jobs.sort(key=lambda job: job[3])
    missing = [job for job in jobs if not job[0].is_file()]
    work = sum(settings.max_tokens(strategy) * len(part) for _, part, strategy, _ in missing)
    done, began_s = 0, time.monotonic()
    for path, part, strategy, start in missing:
        record.write(path, answer_chunk(model, part, strategy, start, prompts, settings))
        done += settings.max_tokens(strategy) * len(part)
        on_progress(done / work)
        if stop_after_s is not None and time.monotonic() - began_s > stop_after_s:
            break
    return record


def identity(model: TextModel, tasks: Mapping[str, Sequence[Question]], prompts: Prompts) -> dict[str, Any]:
    """What else decides the numbers, as plain JSON."""
    return {
        "model": model.settings(),
        "prompts": {"sha256": hashlib.sha256(repr(prompts).encode()).hexdigest()},
        "questions": {
            name: hashlib.sha256(repr([asdict(q) for q in part]).encode()).hexdigest() for name, part in tasks.items()
        },
    }


def answer_chunk(
    model: TextModel,
    questions: Sequence[Question],
    strategy: Strategy,
    start: int,
    prompts: Prompts,
    settings: Settings,
) -> list[dict[str, Any]]:
    """Rows of `generation_record.SCHEMA` for consecutive questions, the first at position `start`."""
    asked = [model.prompt(prompts.messages(question, strategy))[0] for question in questions]
    seeds = [(settings.seed * len(Strategy) + int(strategy)) * SEED_STRIDE + start + i for i in range(len(questions))]
    replies = model.generate(asked, settings.max_tokens(strategy), settings.temperature, seeds)
    rows = []
    for i, (question, prompt_ids, reply) in enumerate(zip(questions, asked, replies, strict=True)):
        extraction = extract(reply.text, question)
        asked_midway = strategy is Strategy.COT and question.labels  # numbers have no options to score midway
        every = settings.check_every_tokens if asked_midway else 0
        rows.append(
            {
                "task": question.task,
                "question_id": question.question_id,
                "position": start + i,
                "strategy": strategy.name.lower(),
                "answer": question.answer,
                "num_labels": len(question.labels),
                "prompt_tokens": len(prompt_ids),
                "output_tokens": len(reply.token_ids),
                "finish_reason": reply.finish_reason,
                "text": reply.text,
                "token_ids": list(reply.token_ids),
                "entropy_raw_nats": reply.entropy_raw_nats.tolist(),
                "surprisal_raw_nats": reply.surprisal_raw_nats.tolist(),
                "extracted": extraction.answer,
                "rule": extraction.rule,
                "correct_extraction": is_correct(extraction, question),
                **_scores(model, question, prompt_ids, reply, prompts, every),
            }
        )
    return rows


def _scores(
    model: TextModel, question: Question, prompt_ids: list[int], reply: Reply, prompts: Prompts, every: int
) -> dict[str, Any]:
    """Likelihood of each option after the reply, and at each check of a running thought."""
    cue = model.encode(prompts.cue)
    options = [[*cue, *model.encode(text)] for text in prompts.scored_texts(question)]
    content = reply.content_ids
    text = [*prompt_ids, *content]
    checks = list(range(every, len(content), every)) if every else []
    branches = [Branch(len(text), tuple(ids)) for ids in options]
    for tokens in checks:
        branches += [Branch(len(prompt_ids) + tokens, tuple(ids)) for ids in options]
    scored = model.score(text, branches) if branches else []
    skip = len(cue)
    nats = [-float(score.surprisal_nats[skip:].sum()) for score in scored]
    lengths = [len(ids) - skip for ids in options]

    def likeliest(values: Sequence[float]) -> str | None:
        if not options:
            return None
        return question.labels[int(np.argmax(np.asarray(values) / np.asarray(lengths)))]

    width = len(options)
    # The entropy after the cue is that before an option's first token: the same for every option.
    entropy = [float(scored[width * (1 + k)].entropy_nats[skip]) for k in range(len(checks))]
    best = likeliest(nats[: len(options)])
    return {
        "option_nats": nats[: len(options)],
        "option_tokens": lengths,
        "likeliest": best,
        "correct_likelihood": None if best is None else best == question.answer,
        "check_tokens": checks,
        "check_entropy_nats": entropy,
        "check_likeliest": [likeliest(nats[width * (1 + k) : width * (2 + k)]) for k in range(len(checks))],
    }
