"""What an experiment is told: how large, which seed, where it may leave its runs, how to report progress."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

Size = TypeVar("Size")


def unheard(share: float) -> None:
    """Progress that nobody follows; unlike a lambda it can be sent to another process."""


@dataclass(frozen=True)
class Setting:
    """`directory` is the ledger's, or the experiment's own place within it."""

    quick: bool
    seed: int
    directory: Path
    jobs: int = 2
    tell: Callable[[float], None] = unheard
    vllm: Path | None = None  # a run directory with arms served by vLLM

    def size(self, quick: Size, full: Size) -> Size:
        return quick if self.quick else full

    def part(self, start: float, end: float) -> "Setting":
        """The same, whose progress fills [start, end] of this one's."""
        return replace(self, tell=lambda share: self.tell(start + share * (end - start)))
