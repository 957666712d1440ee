"""Keep every KV block: the dense baseline."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from workbench.protocols import DecisionPoint, KeepAction, KeepObservation, KeepRule


@dataclass(frozen=True, kw_only=True)
class KeepAll:
    """Nothing is dropped. Source: dense attention."""

    point: ClassVar[DecisionPoint] = DecisionPoint.KEEP

    def init(self, capacity: int) -> None:
        return None

    def step(self, state: None, observation: KeepObservation) -> tuple[None, KeepAction]:
        num_slots = observation.num_slots
        zeros = np.zeros(num_slots, dtype=np.int64)
        return None, KeepAction(
            rule=np.full(num_slots, int(KeepRule.ALL), dtype=np.int64),
            mass_budget=np.zeros(num_slots),
            block_budget_frac=np.ones(num_slots),
            sink_blocks=zeros,
            recent_blocks=zeros,
            score=np.broadcast_to(np.nan, observation.block_mass.shape),
            evict=np.zeros(num_slots, dtype=np.bool_),
        )
