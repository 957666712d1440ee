"""The live model as an object: load it once, then generate, score and measure without thinking of engines.

    model = LiveModel.load("smollm2")
    results = model.generate(["What is entropy?"], max_tokens=64, controllers={DecisionPoint.TEMPERATURE: pi})

Generation runs on the same plant, loop and controllers as every other run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kernels.dispatch import backend as choose_backend
from workbench.engine.config import EngineConfig
from workbench.errors import InputError
from workbench.live.decoder import Chunk, Decoder, ForwardInput
from workbench.live.kv_cache import KVCache, allocate_kv_cache
from workbench.live.model_config import ModelConfig
from workbench.live.plant import LivePlant, LiveRequest, ample_blocks, live_plant
from workbench.live.prompts import PromptSpec
from workbench.live.tokenizer import Message, Prompt, Tokenizer
from workbench.live.weights import load_model
from workbench.loop import Recorder, close_loop
from workbench.protocols import Action, Controller, DecisionPoint, Observation
from workbench.signals import FloatArray, IntArray

AnyPrompt = str | Sequence[int] | Sequence[Message] | Prompt | PromptSpec


@dataclass(frozen=True, kw_only=True)
class Generation:
    """One finished request. Arrays have one entry per generated token, the end token included."""

    request_id: int
    kind: str
    prompt: Prompt
    token_ids: IntArray
    text: str  # without special tokens; empty where the model has no tokenizer
    finish_reason: str  # "stop": an end token; "length": the cap; "no distribution": a row of NaN logits
    entropy_raw_nats: FloatArray
    varentropy_raw_nats2: FloatArray
    entropy_nats: FloatArray
    varentropy_nats2: FloatArray
    surprisal_nats: FloatArray
    surprisal_raw_nats: FloatArray
    temperature_applied: FloatArray
    dropped_mass: FloatArray


@dataclass(frozen=True, kw_only=True)
class Score:
    """How a text fares under the unpruned model at T = 1; one entry per scored token."""

    surprisal_raw_nats: FloatArray
    entropy_raw_nats: FloatArray
    varentropy_raw_nats2: FloatArray


class _NoRecord:
    def decision(self, observation: Observation, action: Action, applied: Action) -> None:
        pass


class LiveModel:
    """A decoder with its tokenizer. `seed` is the default of every run; a call may give its own."""

    def __init__(self, decoder: Decoder, tokenizer: Tokenizer | None, stop_ids: Sequence[int], seed: int = 0) -> None:
        self.decoder, self.tokenizer, self.stop_ids, self.seed = decoder, tokenizer, tuple(stop_ids), seed
        self._cache: KVCache | None = None

    @classmethod
    def load(
        cls,
        path_or_name: str | Path = "smollm2",
        dtype: str = "bf16",
        backend: str = "cpu",
        seed: int = 0,
        device: str = "cpu",
    ) -> "LiveModel":
        """From a name, a Hugging Face directory or a GGUF file. Raises `InputError`."""
        try:
            ops = choose_backend(backend)
        except ValueError as error:
            raise InputError(str(error)) from None
        model = load_model(path_or_name, dtype)
        tokenizer = Tokenizer(model.directory) if (model.directory / "tokenizer.json").is_file() else None
        stop_ids = dict.fromkeys([*model.config.eos_ids, *(tokenizer.eos_ids if tokenizer else ())])
        return cls(Decoder(model, ops, device), tokenizer, list(stop_ids), seed)

    @property
    def config(self) -> ModelConfig:
        return self.decoder.config

    def request(self, prompt: AnyPrompt, max_tokens: int) -> LiveRequest:
        """Text and messages go through the chat template; token ids and `Prompt`s are taken as they are."""
        if isinstance(prompt, PromptSpec):
            given = prompt.token_ids or prompt.messages or prompt.prompt or ""
            return LiveRequest(
                prompt=self._prompt(given),
                max_tokens=prompt.max_tokens or max_tokens,
                kind=prompt.kind,
                arrival_s=prompt.arrival_s,
                priority=prompt.priority,
                seed=prompt.seed,
            )
        return LiveRequest(prompt=self._prompt(prompt), max_tokens=max_tokens)

    def _prompt(self, given: str | Sequence[int] | Sequence[Message] | Prompt) -> Prompt:
        if isinstance(given, Prompt):
            return given
        if not isinstance(given, str) and len(given) and not isinstance(given[0], dict):
            ids = [int(token) for token in given]  # type: ignore[arg-type]
            return Prompt(ids, self.tokenizer.decode(ids, skip_special=False) if self.tokenizer else "")
        if self.tokenizer is None:
            raise InputError("this model has no tokenizer; give prompts as token ids")
        return self.tokenizer.chat_prompt(given)  # type: ignore[arg-type]

    def plant(
        self,
        prompts: Sequence[AnyPrompt | LiveRequest],
        max_tokens: int = 128,
        *,
        config: EngineConfig | None = None,
        controlled: frozenset[DecisionPoint] = frozenset(),
        temperature: float = 1.0,
        max_running: int = 32,
        delay_steps: int = 0,
        seed: int | None = None,
        ignore_stop: bool = False,
        **options: Any,
    ) -> LivePlant:
        """A plant ready for `close_loop`. Without a `config`, KV memory is ample for `max_running` sequences."""
        requests = [p if isinstance(p, LiveRequest) else self.request(p, max_tokens) for p in prompts]
        if config is None:
            blocks = ample_blocks(requests, EngineConfig.block_size, max_running, EngineConfig.watermark_frac)
            config = EngineConfig(
                num_blocks=max(blocks, 2),
                max_running=max_running,
                max_context_tokens=self.config.max_context_tokens,
                temperature=temperature,
                delay_steps=delay_steps,
            )
        made = live_plant(
            self.decoder,
            requests,
            config,
            controlled=controlled,
            cache=self._cache,
            seed=self.seed if seed is None else seed,
            stop_ids=() if ignore_stop else self.stop_ids,
            **options,
        )
        self._cache = made.executor.cache
        return made

    def generate(
        self,
        prompts: Sequence[AnyPrompt],
        max_tokens: int = 128,
        *,
        controllers: Mapping[DecisionPoint, Controller[Any, Any, Any]] | None = None,
        recorder: Recorder | None = None,
        **options: Any,
    ) -> list[Generation]:
        """Answers in the order of `prompts`; `options` as in `plant` and `LiveExecutor`."""
        controllers = dict(controllers or {})
        options.setdefault("sketched_keys", getattr(controllers.get(DecisionPoint.KEEP), "needs_sketch", False))
        numbered = [self.request(prompt, max_tokens) for prompt in prompts]
        made = self.plant(numbered, controlled=frozenset(controllers), **options)
        close_loop(made.plant, controllers, recorder or _NoRecord())
        results = self.generations(made)
        place = np.argsort([request.arrival_s for request in numbered], kind="stable")
        return [results[i] for i in np.argsort(place, kind="stable")]

    def generations(self, made: LivePlant) -> list[Generation]:
        """What a finished plant produced, by request id."""
        tokens = made.plant.telemetry.tokens
        names = ("request_id", "token_id", *_PER_TOKEN)
        columns = {n: np.concatenate([step[n] for step in tokens]) if tokens else np.empty(0) for n in names}
        order = np.argsort(columns["request_id"], kind="stable")
        edges = np.searchsorted(columns["request_id"][order], np.arange(len(made.requests) + 1))
        results = []
        for i, request in enumerate(made.requests):
            rows = order[edges[i] : edges[i + 1]]
            ids = columns["token_id"][rows].astype(np.int64)
            results.append(
                Generation(
                    request_id=i,
                    kind=request.kind,
                    prompt=request.prompt,
                    token_ids=ids,
                    text=self.tokenizer.decode([t for t in ids.tolist() if t >= 0]) if self.tokenizer else "",
                    finish_reason=made.executor.finish_reasons[i] or "unfinished",
                    **{name: columns[name][rows] for name in _PER_TOKEN},
                )
            )
        return results

    def score(self, prompt_ids: Sequence[int], output_ids: Sequence[int], chunk_tokens: int = 512) -> Score:
        """Teacher-forced: each output token under the full model given all before it, at T = 1 and unpruned."""
        known = [*prompt_ids, *output_ids]
        if not prompt_ids or not output_ids:
            raise InputError("score needs at least one prompt token and one output token")
        if len(known) > self.config.max_context_tokens:
            raise InputError(f"{len(known)} tokens exceed the context of {self.config.max_context_tokens}")
        decoder, size = self.decoder, EngineConfig.block_size
        num_blocks = -(-len(known) // size)
        cache = allocate_kv_cache(self.config, num_blocks, size, decoder.dtype, decoder.device)
        table = torch.arange(num_blocks, dtype=torch.int32, device=decoder.device)
        ids = torch.tensor(known, device=decoder.device)
        parts = []
        for start in range(0, len(known) - 1, chunk_tokens):
            stop = min(start + chunk_tokens, len(known) - 1)
            position = torch.arange(start, stop, device=decoder.device)
            wanted = position[position >= len(prompt_ids) - 1]
            logits = decoder.forward(
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
            ).logits
            if wanted.numel() == 0:
                continue
            zero = torch.zeros_like(wanted)
            at = decoder.ops.logit_stats(logits, zero.float(), seed=0, request_id=zero, token_index=zero)
            chosen = logits.gather(1, ids[wanted + 1][:, None])[:, 0]
            parts.append(
                [
                    x.double().cpu().numpy()
                    for x in (at.log_sum_exp - chosen, at.entropy_raw_nats, at.varentropy_raw_nats2)
                ]
            )
        surprisal, entropy, varentropy = (np.concatenate(column) for column in zip(*parts, strict=True))
        return Score(surprisal_raw_nats=surprisal, entropy_raw_nats=entropy, varentropy_raw_nats2=varentropy)


_PER_TOKEN = (
    "entropy_raw_nats",
    "varentropy_raw_nats2",
    "entropy_nats",
    "varentropy_nats2",
    "surprisal_nats",
    "surprisal_raw_nats",
    "temperature_applied",
    "dropped_mass",
)
