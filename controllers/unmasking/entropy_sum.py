"""The entropy-sum rule: a random order, and as many positions as their summed entropies allow."""

from dataclasses import dataclass
from typing import ClassVar

from controllers.unmasking.selection import known_entropy, reveal
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, RevealAction, RevealObservation


@dataclass(frozen=True, kw_only=True)
class EntropySum:
    """Take masked positions in random order until sum H exceeds `eta_nats`, the crossing position included.

    H are the marginal entropies at the start of the iteration; the order is the plant's permutation, drawn anew each
    iteration. Every iteration but the last spends more than eta, so on every path (K - 1) eta < sum of the entropies
    spent, hence E_p[K] <= (H(X0) + KL)/eta + 1. A batch's total correlation is at most sum H - max H <= eta, and the random
    order makes KL = O(eta log length). It is not lowest-entropy-first: entropy sets how many, not which.
    eta = 0 reveals one uncertain position an iteration (certain ones come free), inf everything at once.
    Source: arXiv 2603.22248, Algorithm 1.
    Raises InputError unless eta is in [0, inf].
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.REVEAL
    eta_nats: float = 0.1

    def __post_init__(self) -> None:
        if not self.eta_nats >= 0.0:
            raise InputError(
                f"EntropySum.eta_nats must be in [0, inf], got {self.eta_nats:g}; 0 is one uncertain position an iteration"
            )

    def init(self, capacity: int) -> None:
        return None

    def step(self, state: None, observation: RevealObservation) -> tuple[None, RevealAction]:
        return None, reveal(
            observation,
            rank=observation.permutation_rank,
            cost=known_entropy(observation),
            budget=self.eta_nats,
            include_crossing=True,
        )
