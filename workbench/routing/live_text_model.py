"""A `TextModel` on our own decoder: any local model directory, GGUF file or known name that `LiveModel` reads."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from workbench.errors import InputError
from workbench.live.prompts import PromptSpec
from workbench.live.session import LiveModel
from workbench.routing.likelihood import score_branches
from workbench.routing.text_model import Branch, BranchScore, Reply

MAX_RUNNING = 64  # replies generated at once


class LiveTextModel:
    """Raises `InputError` for a model without a tokenizer or a chat template."""

    def __init__(self, path_or_name: str, dtype: str = "bf16", backend: str = "cpu") -> None:
        self.live = LiveModel.load(path_or_name, dtype=dtype, backend=backend)
        self._name, self._dtype = path_or_name, dtype
        if self.live.tokenizer is None:
            raise InputError(f"model {path_or_name}: no tokenizer.json; routing needs text")
        if self.live.tokenizer.chat_template is None:
            raise InputError(
                f"model {path_or_name}: no chat template; add chat_template.jinja to its folder, "
                "routing asks an instructed model"
            )

    def settings(self) -> dict[str, str]:
        config = hashlib.sha256(repr(self.live.config).encode()).hexdigest()[:16]
        name = Path(self._name).name or self._name
        return {
            "model": name,
            "model_config": config,
            "dtype": self._dtype,
            "backend": self.live.decoder.ops.implementation,
        }

    def prompt(self, messages: Sequence[dict[str, str]]) -> tuple[list[int], str]:
        assert self.live.tokenizer is not None
        made = self.live.tokenizer.chat_prompt(messages)
        return made.token_ids, made.text

    def encode(self, text: str) -> list[int]:
        assert self.live.tokenizer is not None
        return self.live.tokenizer.encode(text)

    def generate(
        self, prompts: Sequence[Sequence[int]], max_tokens: int, temperature: float, seeds: Sequence[int]
    ) -> list[Reply]:
        limit = self.live.config.max_context_tokens
        for prompt in prompts:
            if len(prompt) + max_tokens > limit:
                raise InputError(
                    f"a prompt of {len(prompt)} tokens and {max_tokens} new ones exceed the context of {limit}; "
                    "lower --max-tokens or shorten the question"
                )
        specs = [
            PromptSpec(token_ids=tuple(p), seed=s if temperature > 0.0 else None)
            for p, s in zip(prompts, seeds, strict=True)
        ]
        made = self.live.generate(specs, max_tokens=max_tokens, temperature=temperature, max_running=MAX_RUNNING)
        return [
            Reply(
                token_ids=tuple(int(t) for t in g.token_ids),
                text=g.text,
                finish_reason=g.finish_reason,
                entropy_raw_nats=g.entropy_raw_nats,
                surprisal_raw_nats=g.surprisal_raw_nats,
            )
            for g in made
        ]

    def score(self, text_ids: Sequence[int], branches: Sequence[Branch]) -> list[BranchScore]:
        return score_branches(self.live.decoder, text_ids, branches)
