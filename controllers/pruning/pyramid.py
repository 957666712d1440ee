"""Pyramid budgets: early layers keep many blocks, late layers few, chosen by a vote as in SnapKV."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from controllers.pruning.numbers import check_share, check_spared
from controllers.pruning.snapkv import SnapKV
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, KeepAction, KeepObservation


@dataclass(frozen=True, kw_only=True)
class Pyramid:
    """Layer l of L keeps the share `block_budget_frac` (1 + `taper` (1 - 2 l / (L - 1))), clipped to 1.

    The share falls linearly with depth around its mean; within a layer blocks are voted for as in SnapKV. A plant
    without layers (the simulator) applies the mean share.
    Source: PyramidKV, arXiv 2406.02069. Deviates: whole blocks; see `SnapKV` for the window.
    Raises InputError for numbers outside their range.
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.KEEP
    block_budget_frac: float = 0.25
    taper: float = 0.8
    window_tokens: int = 32
    sink_blocks: int = 0
    recent_blocks: int = 2

    def __post_init__(self) -> None:
        check_share("Pyramid", "block_budget_frac", self.block_budget_frac)
        check_spared("Pyramid", self.sink_blocks, self.recent_blocks)
        if not 0.0 <= self.taper < 1.0:
            raise InputError(f"Pyramid.taper must be in [0, 1), got {self.taper:g}; 0 gives every layer the same share")
        self._votes()

    def _votes(self) -> SnapKV:
        return SnapKV(
            block_budget_frac=self.block_budget_frac,
            window_tokens=self.window_tokens,
            sink_blocks=self.sink_blocks,
            recent_blocks=self.recent_blocks,
        )

    def init(self, capacity: int) -> Any:
        return self._votes().init(capacity)

    def step(self, state: Any, observation: KeepObservation) -> tuple[Any, KeepAction]:
        state, action = self._votes().step(state, observation)
        return state, replace(action, layer_taper=np.full(observation.num_slots, self.taper))
