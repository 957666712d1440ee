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


MAX_PASSES = 8  # over the scores of a row, before they are sorted instead
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
    mass, heavy, flicker, age_weight = state.mass[slot], state.heavy[slot], law.flicker, law.age_weight
    for b in range(state.heavy_count[slot], num_blocks):
        w0, w1, _, _ = philox_words(seed, streams.MASS, request_id, b, 0)
        heavy[b] = math.exp(law.spread * normal_quantile(unit_fine(w0, w1)))
    state.heavy_count[slot] = max(state.heavy_count[slot], num_blocks)
    total = 0.0
    for group in range((num_blocks + 7) // 8):
        # One counter gives eight draws; the token index tells block counts apart.
        words = philox_words(seed, streams.MASS, request_id, num_blocks, 1 + group)
        for lane in range(min(8, num_blocks - 8 * group)):
            b = 8 * group + lane
            bits = words[lane // 2] >> np.uint64(16 * (lane % 2) + 4)
            noise = flicker[bits & np.uint64(FLICKER_GRID - 1)]
            weight = heavy[b] * noise * age_weight[num_blocks - 1 - b]
            if b == 0:
                weight += law.sink
            mass[b] = weight
            total += weight
    for b in range(num_blocks):
        mass[b] /= total
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
    mass, kept, gone = state.mass[slot], state.kept[slot], state.gone[slot]
    held = num_blocks - state.num_gone[slot]
    first, last = min(sinks, held), held - max(recent, 1)
    if rule == KEEP_LEAST_MASS:
        budget = max(mass_budget - state.spent[slot], 0.0)
        if held == num_blocks:
            candidates = np.empty(num_blocks)
            for b in range(num_blocks):
                may_go = first <= b < last and score[b] == score[b]
                candidates[b] = score[b] if may_go else np.inf
            holds, changed = keep_above_threshold(
                state.mass, state.kept, state.threshold, num_blocks, budget, candidates, state.dropped, state.num_read, slot,
            )  # fmt: skip
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
        if gone[b]:
            dropped += mass[b]
            continue
        keep = True
        if first <= place < last:
            if rule == KEEP_WINDOW or score[b] < threshold:
                keep = False
            elif score[b] == threshold and ties > 0:
                keep = False
                ties -= 1
        place += 1
        changed = changed or keep != kept[b]
        kept[b] = keep
        num_read += keep
        if not keep:
            dropped += mass[b]
    state.dropped[slot], state.num_read[slot] = dropped, num_read
    return changed


@njit(cache=True, fastmath={"reassoc", "nnan", "nsz"})
def keep_above_threshold(
    mass: FloatArray, kept: BoolArray, threshold: FloatArray, num_blocks: int, budget: float, score: FloatArray,
    dropped_mass: FloatArray, num_read: IntArray, slot: int,
) -> tuple[bool, bool]:  # fmt: skip
    """(found, the kept blocks changed): LEAST_MASS without a sort, where nothing is evicted. Not found where scores tie.

    From the threshold of the step before, block by block: what lies below must fit the budget, and with the next score
    must not. Scores move slowly, so a pass or two is enough, and no pass branches. `score` [num_blocks] is inf where a block
    must stay.
    """
    limit, top, above = threshold[slot], 0.0, np.inf
    for turn in range(MAX_PASSES + 1):
        if turn == MAX_PASSES:
            return False, False
        below, top, above = 0.0, 0.0, np.inf
        for b in range(num_blocks):
            value = score[b]
            low = value if value < limit else 0.0
            below += low
            top = max(top, low)
            above = min(above, value if value >= limit else np.inf)
        if below > budget:
            limit = top
        elif below + above <= budget:
            limit = np.nextafter(above, np.inf)
        else:
            break
    threshold[slot] = 0.5 * (top + above)  # next time either may move a little
    dropped, num_dropped, differ = 0.0, 0, 0
    for b in range(num_blocks):
        drop = score[b] < limit
        dropped += mass[slot, b] if drop else 0.0
        num_dropped += drop
        differ += drop == kept[slot, b]
    if differ:
        for b in range(num_blocks):
            kept[slot, b] = not score[b] < limit
    dropped_mass[slot], num_read[slot] = dropped, num_blocks - num_dropped
    return True, differ > 0


@njit(cache=True)
def _candidates(state: MassState, slot: int, num_blocks: int, first: int, last: int, score: FloatArray) -> FloatArray:
    """Scores of the blocks a rule may drop, lowest first."""
    values, count, place, gone = np.empty(num_blocks), 0, 0, state.gone[slot]
    for b in range(num_blocks):
        if not gone[b]:
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
            state.threshold[slot] = values[i]
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
    # Scaled, not divided, and without a branch: so the loop is vectorised.
    scale, mass, kept, gone = 1.0 / (1.0 - state.dropped[slot]), state.mass[slot], state.kept[slot], state.gone[slot]
    for b in range(num_blocks):
        told = mass[b] * scale
        out[b] = told if kept[b] & (not gone[b]) else np.nan
    for b in range(num_blocks, out.shape[0]):
        out[b] = np.nan
