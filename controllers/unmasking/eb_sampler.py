"""The entropy-bounded sampler: the surest positions while their summed entropies less the largest stay in a budget."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from controllers.unmasking.selection import cumulative_excess, eligible, known_entropy, rank_ascending, reveal
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, RevealAction, RevealObservation


@dataclass(frozen=True, kw_only=True)
class EBSampler:
    """Largest k with sum H - max H <= `gamma_nats` over the first k masked positions in the order of a proxy of error.

    The proxy: lowest entropy, highest confidence, or largest margin between the two likeliest tokens. A batch's total
    correlation is at most gamma, so KL <= gamma x iterations; the deterministic order gives nothing better in general.
    Source: arXiv 2505.24857.
    Raises InputError unless gamma is in [0, inf] and the order is known.
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.REVEAL
    gamma_nats: float = 0.1
    order: Literal["entropy", "confidence", "margin"] = "entropy"

    def __post_init__(self) -> None:
        if not self.gamma_nats >= 0.0:
            raise InputError(f"EBSampler.gamma_nats must be in [0, inf], got {self.gamma_nats:g}")
        if self.order not in ("entropy", "confidence", "margin"):
            raise InputError(f"EBSampler.order must be entropy, confidence or margin, got {self.order!r}")

    def init(self, capacity: int) -> None:
        return None

    def step(self, state: None, observation: RevealObservation) -> tuple[None, RevealAction]:
        score = {
            "entropy": observation.entropy_nats,
            "confidence": -observation.confidence,
            "margin": observation.runner_up - observation.confidence,
        }[self.order]
        among = eligible(observation)
        rank = rank_ascending(score, among)
        cost = cumulative_excess(known_entropy(observation), rank, among)
        return None, reveal(observation, rank=rank, cost=cost, budget=self.gamma_nats)
