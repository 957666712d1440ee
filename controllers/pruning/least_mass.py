"""Drop the KV blocks of least attention mass while what is dropped stays within a mass budget."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np
from numba import njit

from workbench.errors import InputError
from workbench.protocols import DecisionPoint, KeepAction, KeepObservation, KeepRule
from workbench.signals import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class MassState:
    predicted_mass: FloatArray  # [capacity, max_blocks] mass of each block under dense attention, NaN never measured
    steps_since_refresh: IntArray  # [capacity] decisions since every block was last kept


@dataclass(frozen=True, kw_only=True)
class LeastMass:
    """m_b <- m_b + w (a_b (1 - hidden) - m_b); the blocks of least m_b go while their sum is at most `mass_budget`.

    a_b      measured attention mass of block b, which sums to 1 over the blocks that were read
    hidden   predicted mass of the blocks that were not read, so that m_b estimates dense attention
    w        `weight` in (0, 1], 1 keeps only the last measurement

    The first `sink_blocks`, the last `recent_blocks` and blocks never measured stay. Every `refresh_steps` decisions all
    blocks of the row are read once, so that a block whose mass comes back is seen (0: never; not used with `evict`).
    The output of one head at one layer changes by at most mass dropped x diameter of the values, for the mass really
    dropped; the prediction is an estimate, not a bound (the certified rule is another controller).
    Source: ours, after DESIGN 4.4; the entropy share -a ln a of arXiv 2603.03310 drops the dominant block first.
    Raises InputError for numbers outside their range.
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.KEEP
    mass_budget: float = 0.02
    sink_blocks: int = 1
    recent_blocks: int = 4
    weight: float = 0.2
    refresh_steps: int = 64
    evict: bool = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.mass_budget < 1.0:
            raise InputError(f"LeastMass.mass_budget must be in [0, 1), got {self.mass_budget:g}; 0 drops nothing")
        if not 0.0 < self.weight <= 1.0:
            raise InputError(f"LeastMass.weight must be in (0, 1], got {self.weight:g}")
        if self.sink_blocks < 0 or self.recent_blocks < 1:
            raise InputError(
                "LeastMass needs sink_blocks >= 0 and recent_blocks >= 1 (the block being written), "
                f"got {self.sink_blocks} and {self.recent_blocks}"
            )
        if self.refresh_steps < 0:
            raise InputError(f"LeastMass.refresh_steps must be at least 0, got {self.refresh_steps}; 0 is never")

    def init(self, capacity: int) -> MassState:
        return MassState(np.full((capacity, 0), np.nan), np.zeros(capacity, dtype=np.int64))

    def step(self, state: MassState, observation: KeepObservation) -> tuple[MassState, KeepAction]:
        num_slots, max_blocks = observation.block_mass.shape
        known = min(max_blocks, state.predicted_mass.shape[1])
        predicted = np.full((num_slots, max_blocks), np.nan)
        predicted[:, :known] = state.predicted_mass[:, :known]
        since, rule = state.steps_since_refresh.copy(), np.empty(num_slots, np.int64)
        _predict(
            observation.active, observation.joined, observation.measured, observation.num_blocks, observation.block_mass,
            max_blocks, predicted, since, self.weight, 0 if self.evict else self.refresh_steps, self.evict, rule,
        )  # fmt: skip
        budget, share, sinks, recent, evict = _same_in_every_row(
            num_slots, self.mass_budget, self.sink_blocks, self.recent_blocks, self.evict
        )
        action = KeepAction(
            rule=rule,
            mass_budget=budget,
            block_budget_frac=share,
            sink_blocks=sinks,
            recent_blocks=recent,
            score=predicted,
            evict=evict,
        )
        return MassState(predicted, since), action

    def compiled(self, state: MassState, width: int) -> "LeastMassRule":
        """As in `controllers.compiled`."""
        num_slots, known = state.predicted_mass.shape
        score = np.full((num_slots, max(width, known)), np.nan)
        score[:, :known] = state.predicted_mass
        budget, share, sinks, recent, evict = _same_in_every_row(
            num_slots, self.mass_budget, self.sink_blocks, self.recent_blocks, self.evict
        )
        return LeastMassRule(
            float(self.weight), 0 if self.evict else self.refresh_steps,
            state.steps_since_refresh.copy(), score, budget.copy(), share.copy(), sinks.copy(), recent.copy(), evict.copy(),
        )  # fmt: skip


KEEP_ALL = int(KeepRule.ALL)
LEAST = int(KeepRule.LEAST_MASS)


@lru_cache(maxsize=16)
def _same_in_every_row(num_slots: int, *values: float) -> tuple[np.ndarray, ...]:
    """Arrays of an action that never change: mass budget, block share, sinks, recent blocks, evict."""
    mass_budget, sink_blocks, recent_blocks, evict = values
    arrays = (
        np.full(num_slots, mass_budget),
        np.ones(num_slots),
        np.full(num_slots, int(sink_blocks), np.int64),
        np.full(num_slots, int(recent_blocks), np.int64),
        np.full(num_slots, bool(evict)),
    )
    for array in arrays:
        array.flags.writeable = False
    return arrays


@njit(cache=True)
def _predict(active, joined, measured, num_blocks, mass, width, score, since, weight, refresh_steps, evict, out):
    """Take in what was measured of each slot's blocks, of which `width` are shown; out [slots]: rules for the next step."""
    unread = np.empty(width)
    for i in range(active.shape[0]):
        out[i] = KEEP_ALL
        if not active[i]:
            continue
        if joined[i]:
            since[i] = 0
            for b in range(score.shape[1]):
                score[i, b] = np.nan
        if measured[i]:
            # No loop branches, and all but the sum are vectorised. It is in four parts, because one would wait for itself.
            count = min(num_blocks[i], width)
            h0, h1, h2, h3, fours = 0.0, 0.0, 0.0, 0.0, count // 4
            if not evict:
                for b in range(count):
                    a, p = mass[i, b], score[i, b]
                    known = 0.0 if p != p else p
                    unread[b] = known if a != a else 0.0
                for four in range(fours):
                    h0 += unread[4 * four]
                    h1 += unread[4 * four + 1]
                    h2 += unread[4 * four + 2]
                    h3 += unread[4 * four + 3]
                for rest in range(count % 4):
                    h0 += unread[4 * fours + rest]
            share = 1.0 - min((h0 + h1) + (h2 + h3), 1.0)
            # A block not read keeps its prediction, one never seen takes what is measured.
            for b in range(count):
                a, p = mass[i, b] * share, score[i, b]
                moved = a if math.isnan(p) else p + weight * (a - p)
                score[i, b] = p if math.isnan(a) else moved
        since[i] += 1
        if refresh_steps > 0 and since[i] >= refresh_steps:
            since[i] = 0
        else:
            out[i] = LEAST


@njit(cache=True)
def _decide(rule, view, out):
    _predict(
        view.active, view.joined, view.measured, view.num_blocks, view.block_mass, view.shown_width, rule.score,
        rule.since, rule.weight, rule.refresh_steps, rule.evict[0], out,
    )  # fmt: skip


class LeastMassRule(NamedTuple):
    """`LeastMass` as compiled code has it: numbers, state, and the fields of the action by their names."""

    weight: float
    refresh_steps: int
    since: IntArray
    score: FloatArray  # [slots, width] predicted mass
    mass_budget: FloatArray
    block_budget_frac: FloatArray
    sink_blocks: IntArray
    recent_blocks: IntArray
    evict: BoolArray

    decide = _decide

    def state(self, shown_width: int) -> MassState:
        return MassState(self.score[:, :shown_width].copy(), self.since)
