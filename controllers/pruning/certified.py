"""The certified rule: read blocks back until a bound on what is left unread meets the target."""

from dataclasses import dataclass
from typing import ClassVar

from controllers.pruning.numbers import check_mass_budget, check_spared, keep_action
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, KeepAction, KeepObservation, KeepRule


@dataclass(frozen=True, kw_only=True)
class Certified:
    """Per query head and layer: the dropped mass is at most B / (A + B) <= `mass_budget`, known before reading.

    A     sum of exponentials of the scores read
    B     sum of upper bounds on those left out, from a low-bit sketch of their keys

    With `output_budget` t reading stops once the head's output o_K is known to be off by at most t |o_K|: the bound is the
    dropped mass times the reach of the values left out, from balls around them, so values that lie close together allow
    more mass to go. `mass_budget` then only chooses the levels of the sketch.

    Finding the blocks is the op's work, for each layer and KV head; the bound is on the query of the pruned run, one head
    at one layer. Needs keys: it runs on the real model and on recorded tapes, not in the simulator.
    Source: ours, DESIGN; laws and proofs: `workbench prove dropped-mass`, `pruning-output`.
    Raises InputError for numbers outside their range.
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.KEEP
    needs_keys: ClassVar[bool] = True
    needs_sketch: ClassVar[bool] = True
    mass_budget: float = 0.01
    output_budget: float | None = None
    sink_blocks: int = 1
    recent_blocks: int = 1

    def __post_init__(self) -> None:
        check_mass_budget("Certified", self.mass_budget)
        check_spared("Certified", self.sink_blocks, self.recent_blocks)
        if self.output_budget is not None and not 0.0 <= self.output_budget < 1.0:
            raise InputError(
                f"Certified.output_budget must be in [0, 1) of the output, got {self.output_budget:g}; 0 drops nothing"
            )

    def init(self, capacity: int) -> None:
        return None

    def step(self, state: None, observation: KeepObservation) -> tuple[None, KeepAction]:
        return None, keep_action(
            observation,
            KeepRule.CERTIFIED,
            mass_budget=self.mass_budget,
            sink_blocks=self.sink_blocks,
            recent_blocks=self.recent_blocks,
            output_budget=self.output_budget,
        )
