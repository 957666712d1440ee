"""The study's runs on a live model, and logits recorded from it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from workbench.engine.config import EngineConfig
from workbench.live.decoder import Chunk, ForwardInput
from workbench.live.kv_cache import allocate_kv_cache
from workbench.live.prompts import builtin_prompts
from workbench.live.session import LiveModel
from workbench.loop import close_loop
from workbench.protocols import DecisionPoint
from workbench.signals import FloatArray
from workbench.temper.side_by_side import SideBySide, laws_used
from workbench.temper.study import Generate, Job, Run

MAX_RUNNING = 64
COLUMNS = ("entropy_nats", "entropy_raw_nats", "varentropy_nats2", "surprisal_raw_nats", "token_ids")


class _NoRecord:
    def decision(self, observation: Any, action: Any, applied: Any) -> None:
        pass


def live_generate(model: LiveModel, num_prompts: int, num_tokens: int, seed: int) -> Generate:
    """A `Generate` over the built-in prompts; every job's text i draws the random numbers of text i.

    Jobs with the same delay and the same in-step laws run in one batch.
    """
    prompts = builtin_prompts()[:num_prompts]

    def generate(jobs: Sequence[Job], progress: Callable[[float], None]) -> list[Run]:
        groups: dict[Any, list[int]] = {}
        for index, job in enumerate(jobs):
            groups.setdefault((job.delay_steps, laws_used(job.controller)), []).append(index)
        runs: dict[int, Run] = {}
        done = 0
        for (delay_steps, _), members in groups.items():
            law = SideBySide(tuple(jobs[i].controller for i in members), num_prompts)
            made = model.plant(
                prompts * len(members),
                num_tokens,
                controlled=frozenset({DecisionPoint.TEMPERATURE}),
                delay_steps=delay_steps,
                max_running=MAX_RUNNING,
                seed=seed,
                ignore_stop=True,
            )
            made.executor.sampler.draw_as = np.arange(num_prompts * len(members)) % num_prompts
            made.plant.on_step = lambda done=done, members=members, made=made: progress(
                (done + len(members) * made.plant.share_done) / len(jobs)
            )
            close_loop(made.plant, {DecisionPoint.TEMPERATURE: law}, _NoRecord())
            texts = model.generations(made)
            for place, index in enumerate(members):
                mine = texts[place * num_prompts : (place + 1) * num_prompts]
                column = {name: np.array([getattr(text, name) for text in mine]) for name in COLUMNS}
                runs[index] = Run(temperature=np.array([text.temperature_applied for text in mine]), **column)
            done += len(members)
        return [runs[index] for index in range(len(jobs))]

    return generate


def prompt_ids(model: LiveModel, index: int) -> list[int]:
    return list(model.request(builtin_prompts()[index], 1).prompt.token_ids)


def recorded_logits(model: LiveModel, prompt: list[int], output: list[int], chunk_tokens: int = 256) -> FloatArray:
    """Logits [len(output), n] that each output token was drawn from, teacher-forced."""
    known = [*prompt, *output]
    decoder, size = model.decoder, EngineConfig.block_size
    num_blocks = -(-len(known) // size)
    cache = allocate_kv_cache(model.config, num_blocks, size, decoder.dtype, decoder.device)
    table = torch.arange(num_blocks, dtype=torch.int32, device=decoder.device)
    ids = torch.tensor(known, device=decoder.device)
    parts = []
    for start in range(0, len(known) - 1, chunk_tokens):
        stop = min(start + chunk_tokens, len(known) - 1)
        position = torch.arange(start, stop, device=decoder.device)
        wanted = torch.arange(max(start, len(prompt) - 1), stop, device=decoder.device)
        result = decoder.forward(
            ForwardInput(
                token_ids=ids[start:stop],
                positions=position,
                slot_index=position,
                num_decode=0,
                block_table=table[None, :0],
                context_tokens=table[:0],
                chunks=(Chunk(first=0, last=stop - start, start=start, block_table=table),),
                logit_rows=wanted - start,
            ),
            cache,
        )
        if wanted.numel():
            parts.append(result.logits.double().cpu().numpy())
    return np.concatenate(parts)
