"""Confidence factor: the more positions are taken together, the surer the last of them must be."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controllers.unmasking.selection import eligible, rank_ascending, reveal
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, RevealAction, RevealObservation


@dataclass(frozen=True, kw_only=True)
class ConfidenceFactor:
    """With confidences c_1 >= c_2 >= .., reveal the first n for the largest n with (n + 1)(1 - c_n) < `factor`, at least one.

    Source: Fast-dLLM (arXiv 2505.22618), parallel decoding by factor: for n positions all of confidence above
    1 - 1/(n + 1) the greedy product equals the greedy joint.
    Raises InputError unless `factor` is in (0, inf).
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.REVEAL
    factor: float = 0.5

    def __post_init__(self) -> None:
        if not 0.0 < self.factor < np.inf:
            raise InputError(f"ConfidenceFactor.factor must be in (0, inf), got {self.factor:g}")

    def init(self, capacity: int) -> None:
        return None

    def step(self, state: None, observation: RevealObservation) -> tuple[None, RevealAction]:
        among = eligible(observation)
        known = among & ~np.isnan(observation.confidence)
        doubt = np.sort(np.where(known, 1.0 - observation.confidence, np.inf), axis=1)  # ascending
        n = np.arange(1, doubt.shape[1] + 1)
        fits = (n + 1) * doubt < self.factor
        count = np.where(fits, n, 0).max(axis=1, initial=0)
        return None, reveal(observation, rank=rank_ascending(-observation.confidence, among), max_count=count)
