"""The entropy sum taken in confidence order: what the entropy-sum rule is often mistaken for. No guarantee."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from controllers.unmasking.selection import eligible, known_entropy, rank_ascending, reveal
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, RevealAction, RevealObservation


@dataclass(frozen=True, kw_only=True)
class OrderedEntropySum:
    """As `EntropySum`, but the least uncertain first: by entropy (`order = "entropy"`) or falling confidence.

    Ties go by position, so mates that look alike are taken together: on duplicated pairs the divergence grows with the
    length instead of its logarithm. Shipped to show that the guarantee belongs to the random order.
    Source: ours, as a counter-example. Raises InputError unless eta is in [0, inf].
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.REVEAL
    eta_nats: float = 0.1
    order: Literal["entropy", "confidence"] = "entropy"

    def __post_init__(self) -> None:
        if not self.eta_nats >= 0.0:
            raise InputError(f"OrderedEntropySum.eta_nats must be in [0, inf], got {self.eta_nats:g}")
        if self.order not in ("entropy", "confidence"):
            raise InputError(f"OrderedEntropySum.order must be entropy or confidence, got {self.order!r}")

    def init(self, capacity: int) -> None:
        return None

    def step(self, state: None, observation: RevealObservation) -> tuple[None, RevealAction]:
        score = observation.entropy_nats if self.order == "entropy" else -observation.confidence
        return None, reveal(
            observation,
            rank=rank_ascending(score, eligible(observation)),
            cost=known_entropy(observation),
            budget=self.eta_nats,
            include_crossing=True,
        )
