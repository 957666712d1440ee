"""Always the same strategy: the three baselines every router is judged against. No probe is paid for.

Source: ours.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from workbench.protocols import DecisionPoint, RouteAction, RouteObservation, RouteReason, Strategy


@dataclass(frozen=True, kw_only=True)
class FixedRouter:
    point: ClassVar[DecisionPoint] = DecisionPoint.ROUTE
    needs_probe: ClassVar[bool] = False
    strategy: Strategy = Strategy.STANDARD

    def init(self, capacity: int) -> None:
        return None

    def step(self, state: None, observation: RouteObservation) -> tuple[None, RouteAction]:
        active = observation.active
        return None, RouteAction(
            strategy=np.where(active, int(self.strategy), 0).astype(np.int64),
            reason=np.where(active, int(RouteReason.FIXED), 0).astype(np.int64),
        )
