"""A router that does not look: it draws each strategy with a given probability. What a router must beat at equal shares.

The draw is a counter-based uniform of (seed, request id), so it depends on neither slot, batch nor order.
Source: ours.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kernels.philox import uniform
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, RouteAction, RouteObservation, RouteReason, Strategy

STREAM = 11  # of the counter-based generator; the sampler of tokens uses others


@dataclass(frozen=True, kw_only=True)
class RandomMixRouter:
    """Shares are probabilities in [0, 1]; what is left after Direct and CoT is Standard."""

    point: ClassVar[DecisionPoint] = DecisionPoint.ROUTE
    needs_probe: ClassVar[bool] = False
    share_direct: float = 1.0 / 3.0
    share_cot: float = 1.0 / 3.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (self.share_direct >= 0.0 and self.share_cot >= 0.0 and self.share_direct + self.share_cot <= 1 + 1e-9):
            raise InputError(
                "RandomMixRouter.share_direct and share_cot must be at least 0 and sum to at most 1, got "
                f"{self.share_direct!r} and {self.share_cot!r}; the rest is Standard"
            )

    def init(self, capacity: int) -> None:
        return None

    def step(self, state: None, observation: RouteObservation) -> tuple[None, RouteAction]:
        ids = np.maximum(observation.request_id, 0)
        draw = uniform(self.seed, STREAM, ids, np.zeros_like(ids))
        direct = draw < self.share_direct
        cot = ~direct & (draw < self.share_direct + self.share_cot)
        strategy = np.select([~observation.active, direct, cot], [0, Strategy.DIRECT, Strategy.COT], Strategy.STANDARD)
        reason = np.where(observation.active, int(RouteReason.FIXED), 0)
        return None, RouteAction(strategy=strategy.astype(np.int64), reason=reason.astype(np.int64))
