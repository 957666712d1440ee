"""SnapKV: a window of queries votes once on which blocks of the prompt to keep."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controllers.pruning.mass_memory import SummedMass
from controllers.pruning.numbers import check_share, check_spared, keep_action
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, KeepAction, KeepObservation, KeepRule
from workbench.signals import FloatArray, IntArray


@dataclass(frozen=True)
class Votes:
    summed_mass: FloatArray  # [capacity, width] over the observation window, frozen after it
    seen: IntArray  # [capacity] measurements so far


@dataclass(frozen=True, kw_only=True)
class SnapKV:
    """Sum the masses of the first `window_tokens` measurements; then keep the top share for good, and all newer blocks.

    Source: arXiv 2404.14469. Deviates: whole blocks, so no pooling over neighbours; the window is the first tokens the
    plant reports, not the last of the prompt, and every block is read during it. Without one measurement nothing is dropped.
    Raises InputError for numbers outside their range.
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.KEEP
    block_budget_frac: float = 0.25
    window_tokens: int = 32
    sink_blocks: int = 0
    recent_blocks: int = 2
    evict: bool = False

    def __post_init__(self) -> None:
        check_share("SnapKV", "block_budget_frac", self.block_budget_frac)
        check_spared("SnapKV", self.sink_blocks, self.recent_blocks)
        if self.window_tokens < 1:
            raise InputError(f"SnapKV.window_tokens must be at least 1, got {self.window_tokens}")

    def init(self, capacity: int) -> Votes:
        return Votes(SummedMass().init(capacity), np.zeros(capacity, dtype=np.int64))

    def step(self, state: Votes, observation: KeepObservation) -> tuple[Votes, KeepAction]:
        active = observation.active
        seen = np.where(active & observation.joined, 0, state.seen)
        updated = SummedMass().update(state.summed_mass, observation, evict=True)
        old = np.full(updated.shape, np.nan)
        old[:, : state.summed_mass.shape[1]] = state.summed_mass
        voting = seen < self.window_tokens
        summed = np.where((active & voting)[:, None], updated, old)
        seen = seen + (active & observation.measured & voting)
        rule = np.where(seen >= self.window_tokens, int(KeepRule.TOP_BLOCKS), int(KeepRule.ALL))
        return Votes(summed, seen), keep_action(
            observation,
            rule,
            block_budget_frac=self.block_budget_frac,
            sink_blocks=self.sink_blocks,
            recent_blocks=self.recent_blocks,
            score=summed,
            evict=self.evict,
        )
