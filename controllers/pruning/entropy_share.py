"""Entropy share -a ln a as a block score: the trap, and the guard that makes it harmless."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controllers.pruning.mass_memory import RunningMass
from controllers.pruning.numbers import check_share, check_spared, keep_action
from workbench.protocols import DecisionPoint, KeepAction, KeepObservation, KeepRule
from workbench.signals import FloatArray

PEAK = np.exp(-1.0)  # -a ln a rises up to here and falls beyond


@dataclass(frozen=True, kw_only=True)
class EntropyShare:
    """Keep the share of blocks with the largest -m ln m, m the predicted mass.

    A TRAP: the score falls where m > 1/e, so a block of mass 0.9 scores 0.095 and goes before one of mass 0.05 with
    0.150. Shipped to be shown beside `GuardedEntropyShare`. Unlike all other policies it spares no sinks by default,
    for sinks are what it drops first.
    Source: one reading of arXiv 2603.03310, which does not rule it out.
    Raises InputError for numbers outside their range.
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.KEEP
    trap: ClassVar[str | None] = "drops the dominant block first: -a ln a falls where a > 1/e"
    block_budget_frac: float = 0.25
    sink_blocks: int = 0
    recent_blocks: int = 1
    weight: float = 0.2
    evict: bool = False

    def __post_init__(self) -> None:
        name = type(self).__name__
        check_share(name, "block_budget_frac", self.block_budget_frac)
        check_share(name, "weight", self.weight)
        check_spared(name, self.sink_blocks, self.recent_blocks)

    def init(self, capacity: int) -> FloatArray:
        return RunningMass(self.weight).init(capacity)

    def step(self, state: FloatArray, observation: KeepObservation) -> tuple[FloatArray, KeepAction]:
        predicted = RunningMass(self.weight).update(state, observation, evict=self.evict)
        return predicted, keep_action(
            observation,
            KeepRule.TOP_BLOCKS,
            block_budget_frac=self.block_budget_frac,
            sink_blocks=self.sink_blocks,
            recent_blocks=self.recent_blocks,
            score=self.share(predicted),
            evict=self.evict,
        )

    def share(self, mass: FloatArray) -> FloatArray:
        """The score [..]: -m ln m, 0 at m = 0, NaN where m is."""
        positive = np.where(mass > 0.0, mass, 1.0)
        return np.where(np.isnan(mass), np.nan, -positive * np.log(positive) + 0.0)


@dataclass(frozen=True, kw_only=True)
class GuardedEntropyShare(EntropyShare):
    """As `EntropyShare` with the falling branch turned up: 2/e + m ln m beyond m = 1/e.

    The score then rises with m throughout, so the order is that of the masses and no block of larger mass goes first.
    Source: ours.
    """

    trap: ClassVar[str | None] = None

    def share(self, mass: FloatArray) -> FloatArray:
        raw = super().share(mass)
        return np.where(mass > PEAK, 2.0 * PEAK - raw, raw)
