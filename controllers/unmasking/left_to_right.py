"""Autoregressive decoding of a masked-diffusion model: the leftmost masked positions, one (or a few) an iteration."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controllers.unmasking.selection import reveal
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, RevealAction, RevealObservation


@dataclass(frozen=True, kw_only=True)
class LeftToRight:
    """Reveal the `count` leftmost masked positions. count = 1 is exact (KL = 0) and takes as many passes as positions.

    Source: the chain rule. Raises InputError unless `count` is at least 1.
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.REVEAL
    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InputError(f"LeftToRight.count must be at least 1, got {self.count}")

    def init(self, capacity: int) -> None:
        return None

    def step(self, state: None, observation: RevealObservation) -> tuple[None, RevealAction]:
        num_slots, length = observation.masked.shape
        return None, reveal(
            observation,
            rank=np.broadcast_to(np.arange(length), (num_slots, length)),
            max_count=np.full(num_slots, self.count, dtype=np.int64),
        )
