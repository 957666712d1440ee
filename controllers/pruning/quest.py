"""Quest: the pages whose key box allows the largest score, chosen for each query, layer and KV head."""

from dataclasses import dataclass
from typing import ClassVar

from controllers.pruning.numbers import check_share, check_spared, keep_action
from workbench.protocols import DecisionPoint, KeepAction, KeepObservation, KeepRule


@dataclass(frozen=True, kw_only=True)
class Quest:
    """Keep the ceil(`block_budget_frac` B) blocks of largest upper-bound score, found in the op from key boxes.

    Needs keys: it runs on the real model and on recorded tapes, not in the simulator.
    Source: arXiv 2406.10774. Deviates: one choice for the query heads that share a KV head (their best bound); the
    paper's two dense first layers are not special here.
    Raises InputError for numbers outside their range.
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.KEEP
    needs_keys: ClassVar[bool] = True
    block_budget_frac: float = 0.25
    sink_blocks: int = 0
    recent_blocks: int = 1

    def __post_init__(self) -> None:
        check_share("Quest", "block_budget_frac", self.block_budget_frac)
        check_spared("Quest", self.sink_blocks, self.recent_blocks)

    def init(self, capacity: int) -> None:
        return None

    def step(self, state: None, observation: KeepObservation) -> tuple[None, KeepAction]:
        return None, keep_action(
            observation,
            KeepRule.TOP_BOUND,
            block_budget_frac=self.block_budget_frac,
            sink_blocks=self.sink_blocks,
            recent_blocks=self.recent_blocks,
        )
