"""Top-k by confidence: each iteration the same number of positions, the surest first."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controllers.unmasking.selection import eligible, rank_ascending, reveal
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, RevealAction, RevealObservation


@dataclass(frozen=True, kw_only=True)
class LowConfidence:
    """Reveal the `count` masked positions of largest marginal probability (the rest, of low confidence, stay masked).

    Source: low-confidence remasking of LLaDA (arXiv 2502.09992).
    Raises InputError unless `count` is at least 1.
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.REVEAL
    count: int = 4

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InputError(f"LowConfidence.count must be at least 1, got {self.count}")

    def init(self, capacity: int) -> None:
        return None

    def step(self, state: None, observation: RevealObservation) -> tuple[None, RevealAction]:
        return None, reveal(
            observation,
            rank=rank_ascending(-observation.confidence, eligible(observation)),
            max_count=np.full(observation.num_slots, self.count, dtype=np.int64),
        )
