"""Where a simulated sequence looks: attention mass over its KV blocks, mean over layers and heads.

Block b of B (0 the oldest) of request r has weight

    w_b = sink [b = 0] + age^-decay exp(spread n_{r,b} + flicker n_{r,b,B}),   age = B - b

with n standard normal: n_{r,b} makes heavy hitters that stay, n_{r,b,B} makes them change a little each time the block count
changes, which is when masses are drawn anew (n_{r,b,B} is one of `FLICKER_GRID` equally likely normal quantiles). mass_b = w_b / sum w. The last block is part full at first; its mass is as it
would be on average over its filling.

A keep rule drops blocks by its own score; what is dropped here is their true mass. What a controller is told sums to 1
over the blocks that were read, NaN elsewhere, as the live plant reports it. `dropped_mass` is exact for this process;
in life errors compound over layers, which the entropy process imitates by `pruning_feedback`.
Source: ours; sinks after StreamingLLM (arXiv 2309.17453), heavy hitters after H2O (arXiv 2306.14048).
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit
from scipy.special import ndtri

from kernels.laws import KEEP_LEAST_MASS, KEEP_TOP_BLOCKS, KEEP_WINDOW
from sims import streams
from sims.scalar_philox import normal_quantile, philox_words, unit_fine
from workbench.errors import InputError
from workbench.signals import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, kw_only=True)
class MassProcess:
    """The symbols are those of the module; weights are relative to the newest block's 1.

    sink 4, decay 0.6 and spread 0.8 are assumptions in the range seen on small Llama models; `workbench calibrate` fits them.
    """

    sink: float = 4.0
    decay: float = 0.6
    spread: float = 0.8
    flicker: float = 0.3
    source: str = "assumed, not fitted"

    def __post_init__(self) -> None:
        for name in ("sink", "decay", "spread", "flicker"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise InputError(f"MassProcess.{name} must be in [0, inf), got {getattr(self, name)}")


FLICKER_GRID = 4096  # a draw of the flicker takes twelve random bits


class MassLaw(NamedTuple):
    """A `MassProcess` as compiled code reads it."""

    sink: float
    spread: float
    age_weight: FloatArray  # [width] age^-decay, age from 1
    flicker: FloatArray  # [FLICKER_GRID] exp(flicker n) at the quantiles of n, which have unit variance


def mass_law(process: MassProcess, width: int) -> MassLaw:
    """For slots of up to `width` blocks."""
    normal = ndtri((np.arange(FLICKER_GRID) + 0.5) / FLICKER_GRID)
    age = np.arange(1, width + 1, dtype=float)
    return MassLaw(process.sink, process.spread, age**-process.decay, np.exp(process.flicker * normal / normal.std()))


class MassState(NamedTuple):
    """Per slot, changed in place. Blocks evicted stay evicted until the slot has a new owner or is preempted."""

    mass: FloatArray  # [slots, width] true dense mass of each block
    counted: IntArray  # [slots] block count the masses were drawn for, 0: none
    kept: BoolArray  # [slots, width] read in the last step
    gone: BoolArray  # [slots, width] evicted for good
    num_gone: IntArray  # [slots] how many those are
    dropped: FloatArray  # [slots] mass not read in the last step
    num_read: IntArray  # [slots] blocks read in the last step
    heavy: FloatArray  # [slots, width] exp(spread n_{r,b})
    heavy_count: IntArray  # [slots] blocks `heavy` is drawn for
    spent: FloatArray  # [slots] score given up by evictions
    threshold: FloatArray  # [slots] score limit of the last LEAST_MASS choice, tried first in the next


def new_mass_state(num_slots: int, width: int) -> MassState:
    return MassState(
        np.zeros((num_slots, width)), np.zeros(num_slots, np.int64), np.zeros((num_slots, width), np.bool_),
        np.zeros((num_slots, width), np.bool_), np.zeros(num_slots, np.int64), np.zeros(num_slots),
        np.zeros(num_slots, np.int64), np.zeros((num_slots, width)), np.zeros(num_slots, np.int64), np.zeros(num_slots),
        np.zeros(num_slots),
    )  # fmt: skip


@njit(cache=True)
def forget_slot(state: MassState, slot: int) -> None:
    """The slot has a new owner."""
    state.counted[slot] = 0
    state.heavy_count[slot] = state.num_gone[slot] = state.num_read[slot] = 0
    state.dropped[slot] = state.spent[slot] = state.threshold[slot] = 0.0
    state.gone[slot, :] = False
    state.kept[slot, :] = False


@njit(cache=True)
def draw_masses(state: MassState, law: MassLaw, seed: int, slot: int, request_id: int, num_blocks: int) -> None:
    """True masses of a slot for its present block count."""
    for b in range(state.heavy_count[slot], num_blocks):
        w0, w1, _, _ = philox_words(seed, streams.MASS, request_id, b, 0)
        state.heavy[slot, b] = math.exp(law.spread * normal_quantile(unit_fine(w0, w1)))
    state.heavy_count[slot] = max(state.heavy_count[slot], num_blocks)
    total = 0.0
    for group in range((num_blocks + 7) // 8):
        # One counter gives eight draws; the token index tells block counts apart.
        words = philox_words(seed, streams.MASS, request_id, num_blocks, 1 + group)
        for lane in range(min(8, num_blocks - 8 * group)):
            b = 8 * group + lane
            bits = words[lane // 2] >> np.uint64(16 * (lane % 2) + 4)
            noise = law.flicker[bits & np.uint64(FLICKER_GRID - 1)]
            weight = state.heavy[slot, b] * noise * law.age_weight[num_blocks - 1 - b]
            if b == 0:
                weight += law.sink
            state.mass[slot, b] = weight
            total += weight
    for b in range(num_blocks):
        state.mass[slot, b] /= total
    state.counted[slot] = num_blocks


@njit(cache=True)
def choose_blocks(
    state: MassState, slot: int, num_blocks: int, rule: int, mass_budget: float, budget_frac: float, sinks: int,
    recent: int, score: FloatArray,
) -> bool:  # fmt: skip
    """Set kept[slot] and dropped[slot] for one step; returns whether the kept blocks changed.

    The laws are those of `kernels.reference_numpy.keep_blocks` over the blocks still held, as the live plant applies
    them: sinks and recent blocks are counted among those held, the score given up by evictions goes on counting against
    the budget, a share to keep is a share of all blocks ever filled. Blocks without a score stay.
    """
    held = num_blocks - state.num_gone[slot]
    first, last = min(sinks, held), held - max(recent, 1)
    if rule == KEEP_LEAST_MASS:
        budget = max(mass_budget - state.spent[slot], 0.0)
        if held == num_blocks:
            holds, changed = _keep_above_threshold(state, slot, num_blocks, first, last, budget, score)
            if holds:
                return changed
        limit = _least_mass_limit(state, slot, num_blocks, first, last, budget, score)
    elif rule == KEEP_TOP_BLOCKS:
        want = int(math.ceil(budget_frac * num_blocks - 1e-9))
        limit = _top_blocks_limit(state, slot, num_blocks, first, last, held - want, score)
    else:
        limit = (np.inf, 0) if rule == KEEP_WINDOW else (-np.inf, 0)
    # Everything below the limit goes, and the first so many of those equal to it.
    threshold, ties = limit
    changed, place, dropped, num_read = False, 0, 0.0, 0
    for b in range(num_blocks):
        if state.gone[slot, b]:
            dropped += state.mass[slot, b]
            continue
        keep = True
        if first <= place < last:
            if rule == KEEP_WINDOW or score[b] < threshold:
                keep = False
            elif score[b] == threshold and ties > 0:
                keep = False
                ties -= 1
        place += 1
        changed = changed or keep != state.kept[slot, b]
        state.kept[slot, b] = keep
        num_read += keep
        if not keep:
            dropped += state.mass[slot, b]
    state.dropped[slot], state.num_read[slot] = dropped, num_read
    return changed


@njit(cache=True)
def _keep_above_threshold(
    state: MassState, slot: int, num_blocks: int, first: int, last: int, budget: float, score: FloatArray
) -> tuple[bool, bool]:
    """(the threshold of the step before still holds, then: the kept blocks changed). Nothing is evicted.

    It holds if what lies below it fits the budget and the next score does not. Scores move slowly, so sorting is rare;
    one pass without a branch sees whether it is needed.
    """
    guess = state.threshold[slot]
    below, above, dropped, num_dropped, changed = 0.0, np.inf, 0.0, 0, False
    for b in range(first):
        changed |= not state.kept[slot, b]
    for b in range(first, last):
        value = score[b]
        drop = value < guess
        below += value if drop else 0.0
        above = value if not drop and value < above else above
        dropped += state.mass[slot, b] if drop else 0.0
        num_dropped += drop
        changed |= drop == state.kept[slot, b]
    for b in range(max(first, last), num_blocks):
        changed |= not state.kept[slot, b]
    if not below <= budget < below + above:
        return False, False
    if changed:
        for b in range(num_blocks):
            state.kept[slot, b] = not (first <= b < last and score[b] < guess)
    state.dropped[slot], state.num_read[slot] = dropped, num_blocks - num_dropped
    return True, changed


@njit(cache=True)
def _candidates(state: MassState, slot: int, num_blocks: int, first: int, last: int, score: FloatArray) -> FloatArray:
    """Scores of the blocks a rule may drop, lowest first."""
    values, count, place = np.empty(num_blocks), 0, 0
    for b in range(num_blocks):
        if not state.gone[slot, b]:
            if first <= place < last and score[b] == score[b]:
                values[count] = score[b]
                count += 1
            place += 1
    return np.sort(values[:count])


@njit(cache=True)
def _least_mass_limit(
    state: MassState, slot: int, num_blocks: int, first: int, last: int, budget: float, score: FloatArray
) -> tuple[float, int]:
    """(threshold, ties): drop scores below the threshold, and `ties` of those equal to it."""
    values = _candidates(state, slot, num_blocks, first, last, score)
    total = 0.0
    for i in range(values.shape[0]):
        total += values[i]
        if total > budget:
            ties = 0
            while ties < i and values[i - 1 - ties] == values[i]:
                ties += 1
            # Next time's first guess: half way to the score below, so that either may move a little.
            lower = values[i - 1] if i > 0 else 0.0
            state.threshold[slot] = 0.5 * (lower + values[i]) if lower < values[i] else values[i]
            return values[i], ties
    state.threshold[slot] = np.inf
    return np.inf, 0


@njit(cache=True)
def _top_blocks_limit(
    state: MassState, slot: int, num_blocks: int, first: int, last: int, surplus: int, score: FloatArray
) -> tuple[float, int]:
    """(threshold, ties) that drop the `surplus` lowest scores, or as many as may go."""
    values = _candidates(state, slot, num_blocks, first, last, score)
    count = min(max(surplus, 0), values.shape[0])
    if count == values.shape[0]:
        return np.inf, 0
    ties = 0
    while ties < count and values[count - 1 - ties] == values[count]:
        ties += 1
    return values[count], ties


@njit(cache=True)
def evict_dropped(state: MassState, slot: int, num_blocks: int, score: FloatArray, out: BoolArray) -> None:
    """Blocks not kept are given up for good; `out` marks them."""
    for b in range(num_blocks):
        if not state.gone[slot, b] and not state.kept[slot, b]:
            state.gone[slot, b] = out[b] = True
            state.num_gone[slot] += 1
            if score[b] == score[b]:
                state.spent[slot] += score[b]


@njit(cache=True)
def told_masses(state: MassState, slot: int, num_blocks: int, out: FloatArray) -> None:
    """What the plant reports: masses of the blocks read, summing to 1 over them, NaN elsewhere."""
    total = 1.0 - state.dropped[slot]
    for b in range(num_blocks):
        read = state.kept[slot, b] and not state.gone[slot, b]
        out[b] = state.mass[slot, b] / total if read else np.nan
    for b in range(num_blocks, out.shape[0]):
        out[b] = np.nan
