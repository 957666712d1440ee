"""Dilated unmasking: first positions far apart, then the gaps between them, blind to what the model believes."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controllers.unmasking.selection import eligible, reveal
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, RevealAction, RevealObservation


@dataclass(frozen=True, kw_only=True)
class Dilated:
    """In blocks of B, round t reveals the positions that B / base^t divides and no earlier round did: log_base B rounds.

    Neighbours are never revealed together before the last round, which suits dependence that fades with distance
    (a Markov chain) and no other. The state is in the mask: each step takes the coarsest level that is left.
    Source: arXiv 2506.19037. Deviates: `block_length` None means one block as long as the row is wide.
    Raises InputError unless base >= 2 and the block length is at least 1.
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.REVEAL
    block_length: int | None = None
    base: int = 2

    def __post_init__(self) -> None:
        if self.base < 2:
            raise InputError(f"Dilated.base must be at least 2, got {self.base}")
        if self.block_length is not None and self.block_length < 1:
            raise InputError(f"Dilated.block_length must be at least 1, got {self.block_length}")

    def init(self, capacity: int) -> None:
        return None

    def step(self, state: None, observation: RevealObservation) -> tuple[None, RevealAction]:
        length = observation.masked.shape[1]
        block = self.block_length or length
        position = np.arange(length)
        level = np.full(length, -1, dtype=np.int64)
        gap, round_ = block, 0
        while np.any(level < 0):
            gap = max(1, gap // self.base)
            level[(level < 0) & (position % block % gap == 0)] = round_
            round_ += 1
        among = eligible(observation)
        current = np.where(among, level, round_).min(axis=1, initial=round_)
        count = (among & (level == current[:, None])).sum(axis=1)
        rank = np.broadcast_to(level * length + position, among.shape)
        return None, reveal(observation, rank=rank, max_count=count)
