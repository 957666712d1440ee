"""Confidence threshold: everything the model is sure of, and at least the surest position."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controllers.unmasking.selection import eligible, rank_ascending, reveal
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, RevealAction, RevealObservation


@dataclass(frozen=True, kw_only=True)
class ConfidenceThreshold:
    """Reveal every masked position whose largest marginal probability is at least `threshold`; else the surest one.

    The surest one is what keeps it going: with no position above the threshold it still makes progress.
    Source: Fast-dLLM (arXiv 2505.22618), parallel decoding by threshold.
    Raises InputError unless `threshold` is in (0, 1].
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.REVEAL
    threshold: float = 0.9

    def __post_init__(self) -> None:
        if not 0.0 < self.threshold <= 1.0:
            raise InputError(f"ConfidenceThreshold.threshold must be in (0, 1], got {self.threshold:g}")

    def init(self, capacity: int) -> None:
        return None

    def step(self, state: None, observation: RevealObservation) -> tuple[None, RevealAction]:
        return None, reveal(
            observation,
            rank=rank_ascending(-observation.confidence, eligible(observation)),
            cost=np.where(observation.confidence >= self.threshold, 0.0, 1.0),
            budget=0.5,
        )
