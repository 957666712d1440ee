"""The max-entropy rule: a random order, cut at the first position that is itself too uncertain."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controllers.unmasking.selection import known_entropy, reveal
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, RevealAction, RevealObservation


@dataclass(frozen=True, kw_only=True)
class MaxEntropy:
    """Take masked positions in random order up to and including the first with H > `threshold_nats`, at most `batch_cap`.

    Without a cap it reveals everything at once as soon as all entropies are small, however strongly the positions
    depend on each other; with cap b a batch's total correlation is at most (b - 1) threshold.
    Source: arXiv 2603.22248, Algorithm 2. Its rate is printed there as O~(H(X0) L / eps); see the study of algorithms.
    Raises InputError unless threshold is in [0, inf] and the cap at least 1.
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.REVEAL
    threshold_nats: float = 0.1
    batch_cap: int = 32

    def __post_init__(self) -> None:
        if not self.threshold_nats >= 0.0:
            raise InputError(f"MaxEntropy.threshold_nats must be in [0, inf], got {self.threshold_nats:g}")
        if self.batch_cap < 1:
            raise InputError(f"MaxEntropy.batch_cap must be at least 1, got {self.batch_cap}")

    def init(self, capacity: int) -> None:
        return None

    def step(self, state: None, observation: RevealObservation) -> tuple[None, RevealAction]:
        return None, reveal(
            observation,
            rank=observation.permutation_rank,
            cost=(known_entropy(observation) > self.threshold_nats).astype(np.float64),
            budget=0.5,
            include_crossing=True,
            max_count=np.full(observation.num_slots, self.batch_cap, dtype=np.int64),
        )
