"""The live plant: the shared engine around a `LiveExecutor`, with a clock that counts measured step time.

The clock moves on by what each step took and jumps when there is nothing to do, so a run with arrivals takes no
longer than its work, and what was measured only for the record takes no time at all.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from workbench.engine.clock import CountedClock
from workbench.engine.config import EngineConfig
from workbench.engine.executor import RequestSpec
from workbench.engine.plant import EnginePlant
from workbench.engine.prompt_blocks import blocks_of_tokens
from workbench.errors import InputError
from workbench.live.decoder import Decoder
from workbench.live.executor import LiveExecutor
from workbench.live.kv_cache import KVCache, allocate_kv_cache
from workbench.live.tokenizer import Prompt
from workbench.protocols import DecisionPoint


@dataclass(frozen=True, kw_only=True)
class LiveRequest:
    """One request as the live plant takes it."""

    prompt: Prompt
    max_tokens: int
    kind: str = "any"
    arrival_s: float = 0.0
    priority: int = 0
    seed: int | None = None
    cancel_s: float = float("inf")  # when the client goes away


@dataclass(frozen=True)
class LivePlant:
    """The plant and what only a live run has: its executor (outputs, finish reasons) and its requests by id."""

    plant: EnginePlant
    executor: LiveExecutor
    requests: tuple[LiveRequest, ...]


def request_spec(requests: Sequence[LiveRequest]) -> tuple[RequestSpec, tuple[LiveRequest, ...]]:
    """Requests sorted by arrival, ties in the order given, as arrays; and in that order."""
    ordered = tuple(sorted(requests, key=lambda request: request.arrival_s))
    kinds = tuple(dict.fromkeys(request.kind for request in ordered)) or ("any",)
    spec = RequestSpec(
        arrival_s=np.array([r.arrival_s for r in ordered], np.float64),
        prompt_tokens=np.array([len(r.prompt.token_ids) for r in ordered], np.int64),
        output_tokens=np.array([r.max_tokens for r in ordered], np.int64),
        kind=np.array([kinds.index(r.kind) for r in ordered], np.int64),
        priority=np.array([r.priority for r in ordered], np.int64),
        kind_names=kinds,
        length_known=False,
        cancel_s=np.array([r.cancel_s for r in ordered]) if any(r.cancel_s < np.inf for r in ordered) else None,
    )
    return spec, ordered


def ample_blocks(requests: Sequence[LiveRequest], block_size: int, max_running: int, watermark_frac: float) -> int:
    """Blocks that hold the `max_running` longest requests whole, watermark included."""
    need = sorted((-(-(len(r.prompt.token_ids) + r.max_tokens) // block_size) for r in requests), reverse=True)
    return int(sum(need[:max_running]) / (1.0 - watermark_frac)) + 2


def live_plant(
    decoder: Decoder,
    requests: Sequence[LiveRequest],
    config: EngineConfig,
    *,
    controlled: frozenset[DecisionPoint] = frozenset(),
    cache: KVCache | None = None,
    window_steps: int | None = None,
    make_plant: Callable[..., EnginePlant] = EnginePlant,
    **executor_options: Any,
) -> LivePlant:
    """`make_plant` takes the arguments of `EnginePlant` by position; the first are a `RequestSpec` and a `LiveExecutor`.

    Raises `InputError` for a prompt that cannot fit the model's context, or too little memory for the cache.

    A request whose prompt fits but whose cap does not has its cap lowered to what is left of the context.
    """
    limit = min(config.max_context_tokens, decoder.config.max_context_tokens)
    vocab = decoder.config.vocab_size
    fitted = []
    for number, request in enumerate(requests):
        length = len(request.prompt.token_ids)
        if length >= limit:
            raise InputError(
                f"prompt {number} has {length} tokens, the context holds {limit}; shorten it to at most {limit - 1}"
            )
        if length == 0 or not all(0 <= token < vocab for token in request.prompt.token_ids):
            raise InputError(f"prompt {number} must hold token ids in [0, {vocab}), at least one")
        if request.max_tokens < 1:
            raise InputError(f"prompt {number}: max_tokens must be at least 1, got {request.max_tokens}")
        fitted.append(replace(request, max_tokens=min(request.max_tokens, limit - length)))
    spec, ordered = request_spec(fitted)
    config = replace(config, max_context_tokens=limit)
    if config.preemption == "swap":
        raise InputError("engine.preemption = swap is simulated only; the live plant preempts by recompute")
    if config.prefix_caching:
        # What a masked or evicted cache has computed is of no use elsewhere: the policy is part of the content.
        policy = "keep rule" if DecisionPoint.KEEP in controlled else "every block"
        model = f"{decoder.config!r} {decoder.dtype}"
        tokens = [request.prompt.token_ids for request in ordered]
        spec = replace(spec, prompt_blocks=blocks_of_tokens(tokens, config.block_size, model=model, policy=policy))
    if cache is None or cache.num_blocks < config.num_blocks or cache.block_size != config.block_size:
        cache = allocate_kv_cache(
            decoder.config, config.num_blocks, config.block_size, decoder.dtype, torch.device(decoder.device)
        )
    executor = LiveExecutor(
        decoder,
        cache,
        [request.prompt.token_ids for request in ordered],
        temperature=config.temperature,
        request_seeds={i: r.seed for i, r in enumerate(ordered) if r.seed is not None},
        **executor_options,
    )
    plant = make_plant(spec, executor, CountedClock(), config, controlled, window_steps)
    return LivePlant(plant, executor, ordered)
