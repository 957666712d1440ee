"""StreamingLLM: attention sinks and a window of recent blocks, nothing else."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controllers.pruning.numbers import check_share, check_spared, keep_action
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, KeepAction, KeepObservation, KeepRule


@dataclass(frozen=True, kw_only=True)
class StreamingLLM:
    """Keep the first `sink_blocks` and the last w blocks; w is `window_blocks`, or what a share of the context leaves.

    window_blocks None: w = ceil(block_budget_frac B) - sink_blocks, at least 1, with B the filled blocks.
    Source: arXiv 2309.17453. Deviates: whole blocks; kept keys stay at their own positions (the paper renumbers
    positions inside the cache so that they never exceed the window).
    Raises InputError for numbers outside their range.
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.KEEP
    sink_blocks: int = 1
    block_budget_frac: float = 0.25
    window_blocks: int | None = None
    evict: bool = False

    def __post_init__(self) -> None:
        check_share("StreamingLLM", "block_budget_frac", self.block_budget_frac)
        check_spared("StreamingLLM", self.sink_blocks, 1)
        if self.window_blocks is not None and self.window_blocks < 1:
            raise InputError(f"StreamingLLM.window_blocks must be at least 1, got {self.window_blocks}")

    def init(self, capacity: int) -> None:
        return None

    def step(self, state: None, observation: KeepObservation) -> tuple[None, KeepAction]:
        filled = np.where(observation.active, observation.num_blocks, 1)
        share = np.ceil(self.block_budget_frac * filled - 1e-9).astype(np.int64) - self.sink_blocks
        window = np.maximum(share, 1) if self.window_blocks is None else self.window_blocks
        return None, keep_action(
            observation, KeepRule.WINDOW, sink_blocks=self.sink_blocks, recent_blocks=window, evict=self.evict
        )
