"""What an experiment is told: how large, which seed, where it may leave its runs, how to report progress."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Setting:
    quick: bool
    seed: int
    directory: Path
    jobs: int = 2
    tell: Callable[[float], None] = lambda share: None
