"""The study's runs on a live model, and logits recorded from it."""

from typing import Any

import numpy as np
import torch

from workbench.engine.config import EngineConfig
from workbench.live.decoder import Chunk, ForwardInput
from workbench.live.kv_cache import allocate_kv_cache
from workbench.live.prompts import builtin_prompts
from workbench.live.session import LiveModel
from workbench.protocols import DecisionPoint
from workbench.signals import FloatArray
from workbench.temper.study import Generate, Run


def live_generate(model: LiveModel, num_prompts: int, num_tokens: int, seed: int) -> Generate:
    """A `Generate` over the built-in prompts. One seed for every run: equal draws where equal distributions allow it."""
    prompts = builtin_prompts()[:num_prompts]

    def generate(controller: Any, delay_steps: int, temperature: float) -> Run:
        controllers = {} if controller is None else {DecisionPoint.TEMPERATURE: controller}
        texts = model.generate(
            prompts,
            num_tokens,
            controllers=controllers,
            delay_steps=delay_steps,
            temperature=temperature,
            seed=seed,
            ignore_stop=True,
        )
        column = {
            name: np.array([getattr(text, name)[:num_tokens] for text in texts])
            for name in ("entropy_nats", "entropy_raw_nats", "varentropy_nats2", "surprisal_raw_nats", "token_ids")
        }
        temperature_applied = np.array([text.temperature_applied[:num_tokens] for text in texts])
        return Run(temperature=temperature_applied, **column)

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
