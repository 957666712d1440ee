"""Which KV blocks each simulated sequence reads in a step, and what is said of their masses afterwards.

A keep rule drops blocks by its own score; what is dropped here is their true mass. What a controller is told sums to 1
over the blocks that were read, NaN elsewhere, as the live plant reports it. `dropped_mass` is exact for this process;
in life errors compound over layers, which the entropy process imitates by `pruning_feedback`.
"""

import math

import numpy as np
from numba import njit

from kernels.laws import KEEP_LEAST_MASS, KEEP_TOP_BLOCKS, KEEP_WINDOW
from sims.mass_process import MassLaw, MassState, draw_masses, forget_slot
from workbench.signals import BoolArray, FloatArray, IntArray

MAX_PASSES = 8  # over the scores of a row, before they are sorted instead

# Compiled functions take arrays one by one, and all rows of a batch at once: handing over a tuple of arrays, or an array for
# each row, counts references, which takes longer than the work on a row's few blocks.


@njit(cache=True)
def attend_densely(
    state: MassState, law: MassLaw, seed: int, slot: IntArray, request_id: IntArray, start: IntArray,
    num_tokens: IntArray, samples: BoolArray, num_blocks: IntArray, masses: FloatArray, told: BoolArray,
) -> bool:  # fmt: skip
    """Every block is read. Fills rows of `masses` and marks them in `told`; returns whether there are any."""
    rows, news = slot.shape[0], False
    decodes, counted, num_read, kept, dropped = (
        np.empty(rows, np.bool_),
        state.counted,
        state.num_read,
        state.kept,
        state.dropped,
    )
    for i in range(rows):
        if start[i] == 0:
            forget_slot(state, slot[i])  # a new owner, or KV lost to preemption
        decodes[i] = samples[i] and num_tokens[i] == 1 and start[i] > 0
        told[i] = decodes[i] and counted[slot[i]] != num_blocks[i]
    draw_masses(state, law, seed, slot, request_id, num_blocks, told)
    for i in range(rows):
        s = slot[i]
        if not decodes[i]:
            continue
        if num_read[s] != num_blocks[i]:
            told[i] = True
            kept[s, : num_blocks[i]] = True
        dropped[s], num_read[s] = 0.0, num_blocks[i]
        news = news or told[i]
    if news:
        tell(state.mass, state.kept, state.gone, state.dropped, slot, num_blocks, told, masses, False)
    return news


@njit(cache=True)
def attend(
    state: MassState, law: MassLaw, seed: int, slot: IntArray, request_id: IntArray, start: IntArray,
    num_tokens: IntArray, samples: BoolArray, num_blocks: IntArray, block_size: int, rule: IntArray,
    mass_budget: FloatArray, budget_frac: FloatArray, sinks: IntArray, recent: IntArray, score: FloatArray,
    evict: BoolArray, masses: FloatArray, told: BoolArray, kv_read: FloatArray, dropped: FloatArray,
    evicted: BoolArray, by_slot: bool = False,
) -> tuple[bool, int]:  # fmt: skip
    """Apply each decoding row's keep rule. Fills masses, told, kv_read (tokens), dropped (mass) and evicted.

    `masses` has a row for each of the batch, or, with `by_slot`, for each slot, where only the blocks it has are written.
    Returns (somebody has something to tell, the highest rule asked for).
    """
    rows, news, highest = slot.shape[0], False, 0
    counted, num_gone, dropped_mass, num_read = state.counted, state.num_gone, state.dropped, state.num_read
    decodes, found, changed = np.empty(rows, np.bool_), np.empty(rows, np.bool_), np.empty(rows, np.bool_)
    for i in range(rows):
        s = slot[i]
        if start[i] == 0:
            forget_slot(state, s)
        decodes[i] = samples[i] and num_tokens[i] == 1 and start[i] > 0
        if decodes[i]:
            highest = max(highest, rule[s])
        told[i] = decodes[i] and counted[s] != num_blocks[i]
        found[i] = decodes[i] and rule[s] == KEEP_LEAST_MASS and num_gone[s] == 0
    draw_masses(state, law, seed, slot, request_id, num_blocks, told)
    keep_by_threshold(
        state.mass, state.kept, state.threshold, dropped_mass, num_read, slot, num_blocks, mass_budget,
        scores_that_may_go(score, slot, num_blocks, sinks, recent, found), found, changed,
    )  # fmt: skip
    for i in range(rows):
        if not decodes[i]:
            continue
        s, blocks = slot[i], num_blocks[i]
        if not found[i]:
            changed[i] = choose_blocks(
                state, s, blocks, rule[s], mass_budget[s], budget_frac[s], sinks[s], recent[s], score[s]
            )  # fmt: skip
        # The newest block is always read and holds what does not fill a block.
        kv_read[i] = num_read[s] * block_size - (blocks * block_size - start[i] - 1)
        dropped[i] = dropped_mass[s]
        told[i] = told[i] or changed[i]
        news = news or told[i]
        if evict[s]:
            evict_dropped(state, s, blocks, score[s], evicted[i])
    if news:
        tell(state.mass, state.kept, state.gone, dropped_mass, slot, num_blocks, told, masses, by_slot)
    return news, highest


@njit(cache=True)
def scores_that_may_go(
    score: FloatArray, slot: IntArray, num_blocks: IntArray, sinks: IntArray, recent: IntArray, wanted: BoolArray
) -> FloatArray:
    """[rows, width] scores of the blocks of wanted rows, inf where a block must stay: sinks, recent ones, those without a score."""
    out = np.empty((slot.shape[0], score.shape[1]))
    for i in range(slot.shape[0]):
        if not wanted[i]:
            continue
        s, count = slot[i], num_blocks[i]
        for b in range(count):
            out[i, b] = score[s, b] if score[s, b] == score[s, b] else np.inf
        for b in range(min(sinks[s], count)):
            out[i, b] = np.inf
        for b in range(max(count - max(recent[s], 1), 0), count):
            out[i, b] = np.inf
    return out


@njit(cache=True, fastmath={"reassoc", "nnan", "nsz"})
def keep_by_threshold(
    mass: FloatArray, kept: BoolArray, threshold: FloatArray, dropped: FloatArray, num_read: IntArray, slot: IntArray,
    num_blocks: IntArray, mass_budget: FloatArray, score: FloatArray, found: BoolArray, changed: BoolArray,
) -> None:  # fmt: skip
    """LEAST_MASS without a sort for the rows marked in `found`, of which nothing is evicted; where scores tie the mark is taken off.

    From the threshold of the step before, block by block: what lies below must fit the budget, and with the next score
    must not. Scores move slowly, so a pass or two is enough, and no pass branches. As `choose_blocks` otherwise.
    `score` [rows, width] is what `scores_that_may_go` made: compiled without NaNs, this function could not tell one.
    """
    for i in range(slot.shape[0]):
        if not found[i]:
            continue
        s, count = slot[i], num_blocks[i]
        budget = max(mass_budget[s], 0.0)
        limit, top, above, holds = threshold[s], 0.0, np.inf, False
        for _ in range(MAX_PASSES):
            below, top, above = 0.0, 0.0, np.inf
            for b in range(count):
                low = score[i, b] if score[i, b] < limit else 0.0
                below += low
                top = max(top, low)
                above = min(above, score[i, b] if score[i, b] >= limit else np.inf)
            if below > budget:
                limit = top
            elif below + above <= budget:
                limit = np.nextafter(above, np.inf)
            else:
                holds = True
                break
        found[i] = holds
        if not holds:
            continue
        threshold[s] = 0.5 * (top + above)  # next time either may move a little
        gone, num_dropped, differ = 0.0, 0, 0
        for b in range(count):
            drop = score[i, b] < limit
            gone += mass[s, b] if drop else 0.0
            num_dropped += drop
            differ += drop == kept[s, b]
        if differ:
            for b in range(count):
                kept[s, b] = not score[i, b] < limit
        dropped[s], num_read[s], changed[i] = gone, count - num_dropped, differ > 0


@njit(cache=True)
def choose_blocks(
    state: MassState, slot: int, num_blocks: int, rule: int, mass_budget: float, budget_frac: float, sinks: int,
    recent: int, score: FloatArray,
) -> bool:  # fmt: skip
    """Set kept[slot] and dropped[slot] for one step; returns whether the kept blocks changed.

    The laws are those of `kernels.selection_numpy.keep_blocks` over the blocks still held, as the live plant applies
    them: sinks and recent blocks are counted among those held, the score given up by evictions goes on counting against
    the budget, a share to keep is a share of all blocks ever filled. Blocks without a score stay.
    """
    mass, kept, gone = state.mass[slot], state.kept[slot], state.gone[slot]
    held = num_blocks - state.num_gone[slot]
    first, last = min(sinks, held), held - max(recent, 1)
    if rule == KEEP_LEAST_MASS:
        budget = max(mass_budget - state.spent[slot], 0.0)
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
def tell(
    mass: FloatArray, kept: BoolArray, gone: BoolArray, dropped: FloatArray, slot: IntArray, num_blocks: IntArray,
    told: BoolArray, out: FloatArray, by_slot: bool,
) -> None:  # fmt: skip
    """What the plant reports of rows with news: masses of the blocks read, summing to 1 over them, NaN elsewhere.

    A row of `out` for each row, or with `by_slot` for each slot, where what lies behind the slot's blocks is left as it is.
    """
    shown = np.array([np.nan, 1.0])  # looked up, because half of the branches would be guessed wrong
    for i in range(slot.shape[0]):
        if not told[i]:
            continue
        s, count, place = slot[i], num_blocks[i], slot[i] if by_slot else i
        scale = 1.0 / (1.0 - dropped[s])
        for b in range(count):
            out[place, b] = mass[s, b] * scale * shown[int(kept[s, b]) & ~int(gone[s, b])]
        if not by_slot:
            for b in range(count, out.shape[1]):
                out[place, b] = np.nan
