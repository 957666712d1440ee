"""The entropy sum under a total divergence budget: eta is set from what the run has spent so far."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controllers.unmasking.selection import eligible, known_entropy, reveal
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, RevealAction, RevealObservation
from workbench.signals import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class SpendState:
    spent_nats: FloatArray  # [capacity] estimated divergence so far
    mean_entropy_nats: FloatArray  # [capacity] mean marginal entropy of the masked positions last time, NaN at first
    num_masked: IntArray  # [capacity] masked positions last time


@dataclass(frozen=True, kw_only=True)
class AdaptiveEntropySum:
    """`EntropySum` with eta_k = max(0, budget - spent_k) / (1 + log2 m_k), m_k positions masked.

    What iteration k cost is estimated from two forward passes: s_k = (b_k - 1)(h_k - h_{k+1}), b_k positions revealed, h
    the mean marginal entropy of the masked ones before and after. In a random order the j-th position of a batch has
    mean entropy g_{j-1} given those before it, non-increasing in j with g_0 = h_k and E g_b = E h_{k+1}; the total correlation
    is sum_j (g_0 - g_{j-1}), so for a batch size fixed beforehand E[TC] <= (b - 1)(h_k - E h_{k+1}). A run that stays cheap
    (s_k small) gets a larger eta, one that was expensive a smaller; spent out, it goes one position at a time.
    `total_nats` is a target for KL under an exact predictor, held by feedback and measured, not a certificate: the batch size
    depends on the entropies, and the last batch has no pass after it.
    Source: ours.
    Raises InputError unless the budget is in [0, inf).
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.REVEAL
    total_nats: float = 0.5

    def __post_init__(self) -> None:
        if not 0.0 <= self.total_nats < np.inf:
            raise InputError(f"AdaptiveEntropySum.total_nats must be in [0, inf), got {self.total_nats:g}")

    def init(self, capacity: int) -> SpendState:
        return SpendState(np.zeros(capacity), np.full(capacity, np.nan), np.zeros(capacity, dtype=np.int64))

    def step(self, state: SpendState, observation: RevealObservation) -> tuple[SpendState, RevealAction]:
        among: BoolArray = eligible(observation)
        entropy = known_entropy(observation)
        masked = among.sum(axis=1)
        mean = np.where(among, entropy, 0.0).sum(axis=1) / np.maximum(masked, 1)
        fresh = observation.joined | np.isnan(state.mean_entropy_nats)
        drop = np.where(fresh, 0.0, state.mean_entropy_nats - mean)
        batch = np.where(fresh, 1, state.num_masked - masked)
        spent = np.where(observation.joined, 0.0, state.spent_nats) + np.maximum(batch - 1, 0) * drop
        eta = np.maximum(self.total_nats - spent, 0.0) / (1.0 + np.log2(np.maximum(masked, 1)))
        active = observation.active
        new = SpendState(
            np.where(active, spent, state.spent_nats),
            np.where(active, mean, state.mean_entropy_nats),
            np.where(active, masked, state.num_masked),
        )
        return new, reveal(
            observation,
            rank=observation.permutation_rank,
            cost=entropy,
            budget=np.where(active, eta, 0.0),
            include_crossing=True,
        )
