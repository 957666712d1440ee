"""KL-adaptive stability sampling: sure positions whose belief has stopped moving."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controllers.unmasking.selection import eligible, rank_ascending, reveal
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, RevealAction, RevealObservation
from workbench.signals import BoolArray, IntArray


@dataclass(frozen=True)
class CalmState:
    calm: IntArray  # [capacity, length] iterations in a row in which the marginal moved by less than the threshold


@dataclass(frozen=True, kw_only=True)
class KLASS:
    """Reveal masked positions with confidence >= `confidence` whose marginal moved by KL < `divergence_nats` in each of the
    last `history` iterations; if there is none, the `fallback` surest.

    It needs `divergence_nats` in the observation (KL of this marginal from the previous iteration's) and `history` passes
    before anything is called stable.
    Source: arXiv 2511.05664.
    Raises InputError for numbers outside their range.
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.REVEAL
    needs_divergence: ClassVar[bool] = True
    confidence: float = 0.9
    divergence_nats: float = 0.01
    history: int = 2
    fallback: int = 1

    def __post_init__(self) -> None:
        if not 0.0 < self.confidence <= 1.0:
            raise InputError(f"KLASS.confidence must be in (0, 1], got {self.confidence:g}")
        if not self.divergence_nats > 0.0:
            raise InputError(f"KLASS.divergence_nats must be above 0, got {self.divergence_nats:g}")
        if self.history < 1 or self.fallback < 1:
            raise InputError(f"KLASS needs history and fallback of at least 1, got {self.history} and {self.fallback}")

    def init(self, capacity: int) -> CalmState:
        return CalmState(np.zeros((capacity, 0), dtype=np.int64))

    def step(self, state: CalmState, observation: RevealObservation) -> tuple[CalmState, RevealAction]:
        num_slots, length = observation.masked.shape
        before = np.zeros((num_slots, length), dtype=np.int64)
        width = min(length, state.calm.shape[1])
        before[:, :width] = state.calm[:, :width]
        among = eligible(observation)
        still = among & (observation.divergence_nats < self.divergence_nats)
        calm = np.where(still, np.where(observation.joined[:, None], 0, before) + 1, 0)
        calm = np.where(observation.active[:, None], calm, before)
        stable = among & (calm >= self.history) & (observation.confidence >= self.confidence)
        surest = rank_ascending(-observation.confidence, among)
        found: BoolArray = np.asarray(stable.any(axis=1))
        # Stable positions come first, and only they are free; with none the surest few go.
        rank = np.where(stable, surest, surest + length)
        return CalmState(calm), reveal(
            observation,
            rank=rank,
            cost=np.where(stable | ~found[:, None], 0.0, 1.0),
            budget=0.5,
            max_count=np.where(found, length, self.fallback),
        )
