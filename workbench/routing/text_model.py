"""What an evaluation asks of a model: prompts, replies with their entropies, and scores of continuations.

`workbench/routing/live_text_model.py` answers with our own decoder; tests use a scripted one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from workbench.signals import FloatArray


@dataclass(frozen=True)
class Reply:
    """One generated reply; arrays have one entry per token, the end token included."""

    token_ids: tuple[int, ...]
    text: str
    finish_reason: str
    entropy_raw_nats: FloatArray
    surprisal_raw_nats: FloatArray

    @property
    def content_ids(self) -> tuple[int, ...]:
        """The tokens without the end token, to be continued."""
        return self.token_ids[:-1] if self.finish_reason == "stop" else self.token_ids


@dataclass(frozen=True)
class Branch:
    """Continue the first `at` tokens of the text with `ids`."""

    at: int
    ids: tuple[int, ...]


@dataclass(frozen=True)
class BranchScore:
    """One entry per token of the branch; `next_entropy_nats` is that of the token after the last one."""

    surprisal_nats: FloatArray
    entropy_nats: FloatArray
    next_entropy_nats: float


class TextModel(Protocol):
    def settings(self) -> dict[str, str]:
        """What decides the numbers: model, its weights' identity, dtype, backend. Part of an evaluation's identity."""
        ...

    def prompt(self, messages: Sequence[dict[str, str]]) -> tuple[list[int], str]:
        """Token ids and text of a conversation, through the model's chat template."""
        ...

    def encode(self, text: str) -> list[int]: ...

    def generate(
        self, prompts: Sequence[Sequence[int]], max_tokens: int, temperature: float, seeds: Sequence[int]
    ) -> list[Reply]:
        """Replies in order. A reply depends on its prompt, its seed and its place, not on its neighbours (up to rounding)."""
        ...

    def score(self, text_ids: Sequence[int], branches: Sequence[Branch]) -> list[BranchScore]: ...
