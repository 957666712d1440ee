"""Least mass as a key sketch sees it: each query estimates every block's mass before it reads any."""

from dataclasses import dataclass
from typing import ClassVar

from controllers.pruning.numbers import check_mass_budget, check_share, check_spared, keep_action
from workbench.protocols import DecisionPoint, KeepAction, KeepObservation, KeepRule


@dataclass(frozen=True, kw_only=True)
class SketchMass:
    """Drop the blocks of least estimated mass while their sum is within `mass_budget`, for each layer and KV head, but keep
    at least the share `floor_frac` of the blocks, so that a head that looks at one block does not lose all others.

    The estimate is the softmax over scores of the sketched keys: of this query, where `LeastMass` goes by earlier ones.
    It is no bound (`Certified` has one); a head that looks at few blocks reads few, a diffuse one reads many.
    Needs keys: it runs on the real model and on recorded tapes, not in the simulator.
    Source: ours. Raises InputError for numbers outside their range.
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.KEEP
    needs_keys: ClassVar[bool] = True
    needs_sketch: ClassVar[bool] = True
    mass_budget: float = 0.05
    floor_frac: float = 0.1
    sink_blocks: int = 1
    recent_blocks: int = 1

    def __post_init__(self) -> None:
        check_mass_budget("SketchMass", self.mass_budget)
        check_share("SketchMass", "floor_frac", self.floor_frac)
        check_spared("SketchMass", self.sink_blocks, self.recent_blocks)

    def init(self, capacity: int) -> None:
        return None

    def step(self, state: None, observation: KeepObservation) -> tuple[None, KeepAction]:
        return None, keep_action(
            observation,
            KeepRule.LEAST_ESTIMATE,
            mass_budget=self.mass_budget,
            block_budget_frac=self.floor_frac,
            sink_blocks=self.sink_blocks,
            recent_blocks=self.recent_blocks,
        )
