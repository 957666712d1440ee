"""Engines side by side on the same weights: ours, transformers, and vLLM in an environment of its own.

Each answers `run(prompts, max_tokens)` with the seconds it took to generate exactly that many tokens for every prompt, prefill
included, sampled at T = 1, no end token heeded. Ours returns H, varentropy and surprisal of every token as well.
"""

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from workbench.errors import InputError
from workbench.live.session import LiveModel
from workbench.loop import close_loop
from workbench.protocols import Action, Controller, DecisionPoint, Observation

Prompts = Sequence[Sequence[int]]


class Peer(Protocol):
    name: str

    def run(self, prompts: Prompts, max_tokens: int) -> float: ...


class TimedPlant:
    """A plant that adds up the time spent in `advance`: what is left of a run is the controllers and their data."""

    def __init__(self, plant: Any) -> None:
        self._plant, self.num_slots, self.advancing_s = plant, plant.num_slots, 0.0

    def advance(self) -> DecisionPoint | None:
        began_s = time.perf_counter()
        point = self._plant.advance()
        self.advancing_s += time.perf_counter() - began_s
        return point

    def observe(self, point: DecisionPoint) -> Observation:
        return self._plant.observe(point)

    def apply(self, point: DecisionPoint, action: Any) -> Action:
        return self._plant.apply(point, action)


class NoRecord:
    def decision(self, observation: Observation, action: Action, applied: Action) -> None:
        pass


class Ours:
    """Our engine; with `controllers`, `control_frac` is the share of the last run spent on deciding."""

    def __init__(
        self, model: LiveModel, controllers: Mapping[DecisionPoint, Controller[Any, Any, Any]] | None = None
    ) -> None:
        self.name = "ours, controlled" if controllers else "ours"
        self.model, self.controllers = model, dict(controllers or {})
        self.control_frac = 0.0

    def run(self, prompts: Prompts, max_tokens: int) -> float:
        began_s = time.perf_counter()
        made = self.model.plant(
            prompts,
            max_tokens,
            controlled=frozenset(self.controllers),
            max_running=len(prompts),
            ignore_stop=True,
            measure_mass=DecisionPoint.KEEP in self.controllers,
            measure_dropped=False,
        )
        timed = TimedPlant(made.plant)
        started_s = time.perf_counter()
        close_loop(timed, self.controllers, NoRecord())
        ended_s = time.perf_counter()
        if any(len(output) != max_tokens for output in made.executor.outputs):
            raise RuntimeError("a request ended before its cap")
        self.control_frac = 1.0 - timed.advancing_s / (ended_s - started_s)
        return ended_s - began_s


class Transformers:
    name = "transformers"

    def __init__(self, directory: Path) -> None:
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self.model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16).eval()

    def run(self, prompts: Prompts, max_tokens: int) -> float:
        ids = torch.tensor([list(prompt) for prompt in prompts])
        began_s = time.perf_counter()
        with torch.inference_mode():
            out = self.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                top_k=0,
                min_new_tokens=max_tokens,
                max_new_tokens=max_tokens,
                pad_token_id=0,
            )
        seconds = time.perf_counter() - began_s
        if out.shape[1] != ids.shape[1] + max_tokens:
            raise RuntimeError("transformers did not generate the tokens asked for")
        return seconds


class VLLM:
    """One vLLM process, eager or compiled, spoken to over its standard input and output."""

    def __init__(self, python: Path, directory: Path, mode: str, log: Path) -> None:
        self.name = f"vllm {mode}"
        worker = Path(__file__).with_name("vllm_worker.py")
        self._log = log.open("w")
        try:
            self._process = subprocess.Popen(
                [str(python), str(worker), str(directory), mode],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, bufsize=1,
            )  # fmt: skip
        except OSError as error:
            raise InputError(f"--vllm {python}: {error.strerror or error}") from None
        self.version = self._answer().get("version")

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.close()
            raise InputError(f"{self.name} ended; its output is in {self._log.name}")
        return json.loads(line)

    def run(self, prompts: Prompts, max_tokens: int) -> float:
        assert self._process.stdin is not None
        task = {"prompts": [list(prompt) for prompt in prompts], "max_tokens": max_tokens}
        self._process.stdin.write(json.dumps(task) + "\n")
        answer = self._answer()
        if answer["tokens"] != len(prompts) * max_tokens:
            raise RuntimeError(f"{self.name} generated {answer['tokens']} tokens, not {len(prompts) * max_tokens}")
        return float(answer["seconds"])

    def close(self) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._log.close()


def equal_length_prompts(model: LiveModel, count: int, length: int) -> list[list[int]]:
    """`count` built-in prompts cut or filled to one length, so that no engine pads."""
    from workbench.live.prompts import builtin_prompts

    assert model.tokenizer is not None
    prompts = []
    for i, spec in enumerate(specs := builtin_prompts()):
        ids = model.tokenizer.chat_prompt(spec.prompt or "").token_ids
        filler = model.tokenizer.chat_prompt(specs[(i + 1) % len(specs)].prompt or "").token_ids
        prompts.append((ids + filler * length)[:length])
    return [prompts[i % len(prompts)] for i in range(count)]
