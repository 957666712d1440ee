"""H2O: the blocks with the largest accumulated attention, and the recent ones."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controllers.pruning.mass_memory import SummedMass
from controllers.pruning.numbers import check_share, check_spared, keep_action
from workbench.protocols import DecisionPoint, KeepAction, KeepObservation, KeepRule
from workbench.signals import FloatArray


@dataclass(frozen=True, kw_only=True)
class H2O:
    """Keep ceil(`block_budget_frac` B) blocks: half of them the most recent, the others of largest summed mass.

    The sum goes over every query of the prompt and every decoded token, as in the paper, where the plant reports
    `prompt_mass` (`workbench prune` does). The engines do not: their prefill never forms the attention matrix, and forming it
    for this sum alone would double the work of a prompt; there the sum starts with the first decoded token.
    Source: arXiv 2306.14048. Deviates: whole blocks, the mean over the query heads of a group; dropped blocks are masked
    unless `evict`, but a block that is not read gains no mass.
    Raises InputError for numbers outside their range.
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.KEEP
    block_budget_frac: float = 0.25
    sink_blocks: int = 0
    evict: bool = False

    def __post_init__(self) -> None:
        check_share("H2O", "block_budget_frac", self.block_budget_frac)
        check_spared("H2O", self.sink_blocks, 1)

    def init(self, capacity: int) -> FloatArray:
        return SummedMass().init(capacity)

    def step(self, state: FloatArray, observation: KeepObservation) -> tuple[FloatArray, KeepAction]:
        summed = SummedMass().update(state, observation, evict=True)
        if observation.prompt_mass is not None:
            before = np.where((observation.active & observation.joined)[:, None], observation.prompt_mass, np.nan)
            summed = np.where(np.isnan(before), summed, before + np.nan_to_num(summed))
        filled = np.where(observation.active, observation.num_blocks, 1)
        recent = np.maximum((0.5 * self.block_budget_frac * filled).astype(np.int64), 1)
        return summed, keep_action(
            observation,
            KeepRule.TOP_BLOCKS,
            block_budget_frac=self.block_budget_frac,
            sink_blocks=self.sink_blocks,
            recent_blocks=recent,
            score=summed,
            evict=self.evict,
        )
