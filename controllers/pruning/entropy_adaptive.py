"""Entropy-adaptive budgets: fewer blocks where the token is certain, all of them where it is not."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controllers.pruning.mass_memory import RunningMass
from controllers.pruning.numbers import check_mass_budget, check_share, check_spared, keep_action
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, KeepAction, KeepObservation, KeepRule
from workbench.signals import FloatArray


@dataclass(frozen=True)
class AdaptiveState:
    predicted_mass: FloatArray  # [capacity, width]
    held_entropy_nats: FloatArray  # [capacity] the H the budget goes by, NaN before the first


@dataclass(frozen=True, kw_only=True)
class EntropyAdaptive:
    """Least mass with the budget  m(H) = mass_budget clip((H_dense - H) / (H_dense - H_floor), 0, 1).

    H          held raw entropy of the last token: follows H_raw once that is off by more than `hysteresis_nats`, so that
               a budget does not chatter; before the first measurement everything is read
    H_floor    `floor_nats`: below it the budget grows no further
    H_dense    `dense_nats`: from here on every block is read

    With `from_keys` the op estimates masses from its key sketch for each layer and KV head (real model and tapes only),
    and keeps at least the share `floor_frac` of the blocks; without, a running mean of measured masses with weight `weight` decides, in both plants.
    Source: ours, after the entropic pruning of arXiv 2603.03310. Reads H_raw, so it does not steer by its own yardstick;
    pruning moves H_raw a little all the same (`workbench prune` measures by how much).
    Raises InputError for numbers outside their range.
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.KEEP
    mass_budget: float = 0.1
    floor_nats: float = 0.5
    dense_nats: float = 4.0
    hysteresis_nats: float = 0.25
    weight: float = 0.2
    sink_blocks: int = 1
    recent_blocks: int = 4
    from_keys: bool = False
    floor_frac: float = 0.1

    def __post_init__(self) -> None:
        check_mass_budget("EntropyAdaptive", self.mass_budget)
        check_share("EntropyAdaptive", "weight", self.weight)
        check_share("EntropyAdaptive", "floor_frac", self.floor_frac)
        check_spared("EntropyAdaptive", self.sink_blocks, self.recent_blocks)
        if not 0.0 <= self.floor_nats < self.dense_nats < np.inf:
            raise InputError(
                "EntropyAdaptive needs 0 <= floor_nats < dense_nats < inf, "
                f"got {self.floor_nats:g} and {self.dense_nats:g}"
            )
        if not 0.0 <= self.hysteresis_nats < np.inf:
            raise InputError(f"EntropyAdaptive.hysteresis_nats must be in [0, inf), got {self.hysteresis_nats:g}")

    @property
    def needs_keys(self) -> bool:
        return self.from_keys

    @property
    def needs_sketch(self) -> bool:
        return self.from_keys

    def init(self, capacity: int) -> AdaptiveState:
        return AdaptiveState(RunningMass(self.weight).init(capacity), np.full(capacity, np.nan))

    def step(self, state: AdaptiveState, observation: KeepObservation) -> tuple[AdaptiveState, KeepAction]:
        predicted = RunningMass(self.weight).update(state.predicted_mass, observation)
        held = np.where(observation.active & observation.joined, np.nan, state.held_entropy_nats)
        told = np.where(observation.active & observation.measured, observation.entropy_raw_nats, np.nan)
        moved = ~np.isnan(told) & ~(np.abs(told - held) <= self.hysteresis_nats)
        held = np.where(moved, told, held)
        certainty = np.clip((self.dense_nats - held) / (self.dense_nats - self.floor_nats), 0.0, 1.0)
        budget = np.where(observation.active, self.mass_budget * np.nan_to_num(certainty), 0.0)
        rule = KeepRule.LEAST_ESTIMATE if self.from_keys else KeepRule.LEAST_MASS
        return AdaptiveState(predicted, held), keep_action(
            observation,
            np.where(budget > 0.0, int(rule), int(KeepRule.ALL)),
            mass_budget=budget,
            block_budget_frac=self.floor_frac,
            sink_blocks=self.sink_blocks,
            recent_blocks=self.recent_blocks,
            score=predicted,
        )
