"""A routed live run: the prompt of every request under every strategy, and what was made of it.

    question -> Standard, Direct, CoT prompts -> RoutedEnginePlant -> probe -> router -> the answer, scored where it can be

Questions are those of a task, or the workload's prompts put through the templates of free text (unscored). A prompt given
as token ids is taken as it is under every strategy.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from workbench.engine.plant import EnginePlant
from workbench.engine.routing import Regimes, RoutedEnginePlant
from workbench.errors import InputError
from workbench.live.executor import LiveExecutor
from workbench.live.plant import LiveRequest
from workbench.live.prompts import PromptSpec
from workbench.live.session import LiveModel
from workbench.live.tokenizer import Prompt
from workbench.protocols import Strategy
from workbench.routing.extraction import extract, is_correct
from workbench.routing.prompts import load_prompts
from workbench.routing.question import AnswerKind, Question
from workbench.routing.regimes import probe_tokens
from workbench.routing.study import default_tasks_dir
from workbench.routing.subsample import subsample
from workbench.routing.task_files import load_task
from workbench.scenario import Scenario


@dataclass(frozen=True)
class RoutedRequests:
    """Requests of a routed run, by request id."""

    requests: list[LiveRequest]  # as the Standard strategy has them
    prompts: list[tuple[Prompt, ...]]  # by `Strategy`
    questions: list[Question | None]
    regimes: Regimes
    note: str

    @property
    def longest(self) -> list[LiveRequest]:
        """The requests at their longest under any strategy: what memory must hold."""
        most = (self.regimes.prompt_tokens + self.regimes.output_tokens).max(axis=1)
        return [
            replace(r, max_tokens=int(n) - len(r.prompt.token_ids)) for r, n in zip(self.requests, most, strict=True)
        ]

    def make_plant(self, spec: Any, executor: LiveExecutor, *common: Any) -> EnginePlant:
        """For `live_plant(make_plant=..)`: what leaves the Standard mode finds its own prompt in the executor."""
        clock, config, controlled, window_steps = common

        def put(request: int, strategy: Strategy) -> None:
            prompts: Any = executor.prompts
            prompts[request] = self.prompts[request][strategy].token_ids

        return RoutedEnginePlant(spec, executor, clock, config, self.regimes, controlled, window_steps, put)

    def columns(self, plant: RoutedEnginePlant, probes: Sequence[str], texts: Sequence[str]) -> dict[str, Any]:
        """The record's columns of each request's way. `probes`: text of a probe that was left; `texts`: the answers."""
        columns = plant.route_columns() | {"probe_text": list(probes)}
        if any(q is not None and q.kind is not AnswerKind.TEXT for q in self.questions):
            found = [None if q is None else extract(text, q) for q, text in zip(self.questions, texts, strict=True)]
            columns |= {
                "extracted": [None if e is None else e.answer for e in found],
                "correct": [
                    q is not None and e is not None and is_correct(e, q)
                    for q, e in zip(self.questions, found, strict=True)
                ],
            }
        return columns


def routed_requests(
    model: LiveModel, scenario: Scenario, specs: Sequence[PromptSpec], limit_tokens: int, default_cap: int, seed: int
) -> RoutedRequests:
    """`specs` are the workload's prompts with their arrival times, one a request. Raises `InputError`."""
    routing, cap = scenario.routing, scenario.workload.max_tokens or default_cap
    if cap < routing.probe_tokens:
        raise InputError(
            f"workload.max_tokens ({cap}) must be at least routing.probe_tokens ({routing.probe_tokens}): "
            "the probe is the beginning of the Standard answer"
        )
    templates = load_prompts(routing.prompts)
    questions: list[Question | None]
    if routing.task is not None:
        asked = load_task(routing.task, routing.tasks_dir or default_tasks_dir())
        if len(specs) > len(asked):
            raise InputError(
                f"task {routing.task} has {len(asked)} questions, workload.num_requests is {len(specs)}; ask for fewer"
            )
        questions, note = list(subsample(asked, len(specs), seed)), f"questions of {asked[0].task}"
    else:
        questions, note = [_free_text(i, spec) for i, spec in enumerate(specs)], "the workload's prompts as free text"
    order = np.argsort([spec.arrival_s for spec in specs], kind="stable")
    caps = {Strategy.STANDARD: cap, Strategy.DIRECT: routing.max_direct_tokens, Strategy.COT: routing.max_cot_tokens}
    requests, prompts, kept = [], [], []
    length, output = (np.zeros((len(specs), len(Strategy)), np.int64) for _ in range(2))
    for r, i in enumerate(order):
        spec, question = specs[i], questions[i]
        if question is None:
            made = (model.request(spec, cap).prompt,) * len(Strategy)
        else:
            made = tuple(_templated(model, templates.messages(question, s)) for s in Strategy)
        for s in Strategy:
            length[r, s] = len(made[s].token_ids)
            if length[r, s] >= limit_tokens:
                raise InputError(
                    f"prompt {i} has {length[r, s]} tokens as {s.name.lower()}, the context holds {limit_tokens}; "
                    f"shorten it to at most {limit_tokens - 1}"
                )
            output[r, s] = min(caps[s], limit_tokens - length[r, s])
        requests.append(
            LiveRequest(
                prompt=made[Strategy.STANDARD], max_tokens=int(output[r, Strategy.STANDARD]), kind=spec.kind,
                arrival_s=spec.arrival_s, priority=spec.priority, seed=spec.seed,
            )
        )  # fmt: skip
        prompts.append(made)
        kept.append(question)
    regimes = Regimes(probe_tokens=probe_tokens(scenario), prompt_tokens=length, output_tokens=output)
    return RoutedRequests(requests, prompts, kept, regimes, note)


def _free_text(number: int, spec: PromptSpec) -> Question | None:
    """None for a prompt that no template can change."""
    text = spec.prompt or (spec.messages[-1]["content"] if spec.messages else None)
    if not text:
        return None
    return Question(task="prompts", question_id=str(number), text=text, kind=AnswerKind.TEXT, answer="-")


def _templated(model: LiveModel, messages: Any) -> Prompt:
    if model.tokenizer is None or model.tokenizer.chat_template is None:
        raise InputError("a router puts questions through the model's chat template, and this model has none")
    return model.tokenizer.chat_prompt(messages)
