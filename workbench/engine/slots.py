"""What every slot holds, as a table of whole numbers and a table of flags, and the passes a step makes over it.

A step of the engine touches each slot a handful of times. Each time is one compiled pass here, so that what a step costs does
not depend on how many arrays it takes to say what happened. Rows of the tables are named below; `EnginePlant` shows
them under their own names as views.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from workbench.engine.batching import form_batch
from workbench.engine.kv_blocks import BlockPool
from workbench.engine.prefix_cache import PrefixIndex
from workbench.engine.requests import RequestStatus
from workbench.signals import BoolArray, FloatArray, IntArray

# Whole numbers [NUMBERS, slots]
REQUEST, KNOWN, COMPUTED, GENERATED, SINCE_ADMISSION, LOST, PROMPT, OUTPUT, KIND, PRIORITY, RANK = range(11)
NUMBERS = 11
# Flags [FLAGS, slots]
OCCUPIED, SERVED, SAMPLES, DECODES, RUNNING = range(5)
FLAGS = 5
# The head of an observation [HEAD, slots]
ACTIVE, JOINED, MEASURED = range(3)
# Rows of a batch [BATCH, n]
B_SLOT, B_REQUEST, B_START, B_TOKENS, B_INDEX, B_PROMPT, B_OUTPUT, B_KIND, B_BLOCKS = range(9)

WAITING, RUNS = int(RequestStatus.WAITING), int(RequestStatus.RUNNING)


@njit(cache=True)
def look(
    active: BoolArray, request_id: IntArray, seen: IntArray, fresh: BoolArray, generated: IntArray,
    ring_step: IntArray, delay: int, head: BoolArray, measured_step: IntArray,
) -> None:  # fmt: skip
    """The head of an observation. A measurement is new once per decision point: `fresh` is used up by active rows."""
    for s in range(active.shape[0]):
        mine = active[s]
        told = mine and fresh[s] and generated[s] > delay
        head[ACTIVE, s] = mine
        head[JOINED, s] = mine and seen[s] != request_id[s]
        head[MEASURED, s] = told
        measured_step[s] = ring_step[(generated[s] - 1 - delay) % (delay + 1), s] if told else 0
        if mine:
            seen[s] = request_id[s]
            fresh[s] = False


@njit(cache=True)
def hand_over(rings: FloatArray, generated: IntArray, delay: int, out: FloatArray) -> None:
    """Measurements of the token `delay` before the last, NaN where that is before the first. out [measurements, slots]."""
    for s in range(generated.shape[0]):
        place = (generated[s] - 1 - delay) % (delay + 1)
        for m in range(out.shape[0]):
            out[m, s] = rings[place, m, s] if generated[s] > delay else np.nan


@njit(cache=True)
def survey(
    numbers: IntArray,
    flags: BoolArray,
    num_held: IntArray,
    max_chunk_tokens: int,
    want: IntArray,
    remaining: FloatArray,
) -> None:
    """What each slot would compute next, whether it holds KV, and how long its output still is."""
    for s in range(want.shape[0]):
        want[s] = min(numbers[KNOWN, s] - numbers[COMPUTED, s], max_chunk_tokens)
        flags[RUNNING, s] = num_held[s] > 0
        remaining[s] = numbers[OUTPUT, s] - numbers[GENERATED, s]


@njit(cache=True)
def slots_by_rank(rank: IntArray, occupied: BoolArray, order: IntArray) -> int:
    """Occupied slots by rank into `order`; how many, or -1 where ranks are no permutation of 0 .. occupied - 1."""
    count = 0
    for s in range(occupied.shape[0]):
        count += occupied[s]
    order[:count] = -1
    for s in range(occupied.shape[0]):
        if occupied[s]:
            r = rank[s]
            if r < 0 or r >= count or order[r] >= 0:
                return -1
            order[r] = s
    return count


@njit(cache=True)
def next_batch(
    order: IntArray, pool: BlockPool, numbers: IntArray, flags: BoolArray, block_size: int, max_running: int,
    token_budget: int, max_chunk_tokens: int, watermark_blocks: int, quantum: int, start_s: float, status: IntArray,
    first_scheduled_s: FloatArray, num_preemptions: IntArray, recomputed_tokens: IntArray, preempted: IntArray,
    swap_room: int, index: PrefixIndex | None,
) -> tuple[IntArray, BoolArray, int, int, int, int]:  # fmt: skip
    """Form the batch down `order` and enter it into tables and ledger.

    Returns (batch [BATCH, n], samples [n], rows preempted, rows that decode, ready slots without KV, most blocks).
    """
    before = numbers[COMPUTED].copy()
    slot, tokens = np.empty(max_running, np.int64), np.empty(max_running, np.int64)
    n, num_preempted = form_batch(
        order, pool, numbers[KNOWN], numbers[COMPUTED], numbers[SINCE_ADMISSION], block_size, max_running, token_budget,
        max_chunk_tokens, watermark_blocks, quantum, slot, tokens, preempted, swap_room, numbers[REQUEST], index,
    )  # fmt: skip
    for i in range(num_preempted):
        s = preempted[i]
        r = numbers[REQUEST, s]
        num_preemptions[r] += 1
        status[r] = WAITING
        if numbers[COMPUTED, s] == 0:  # not swapped
            numbers[LOST, s] = max(numbers[LOST, s], before[s])
    flags[SAMPLES, :] = False
    flags[DECODES, :] = False
    num_held, num_logical = pool.num_held, pool.num_logical
    batch, samples, num_decodes, widest = np.empty((9, n), np.int64), np.empty(n, np.bool_), 0, 0
    for i in range(n):
        s = slot[i]
        r, start, end = numbers[REQUEST, s], numbers[COMPUTED, s], numbers[COMPUTED, s] + tokens[i]
        samples[i] = end == numbers[KNOWN, s]
        flags[SAMPLES, s] = samples[i]
        flags[DECODES, s] = samples[i] and tokens[i] == 1 and start > 0
        num_decodes += flags[DECODES, s]
        status[r] = RUNS
        if np.isnan(first_scheduled_s[r]):
            first_scheduled_s[r] = start_s
        lost = numbers[LOST, s]
        recomputed_tokens[r] += min(end, lost) - min(start, lost)
        batch[B_SLOT, i], batch[B_REQUEST, i], batch[B_START, i], batch[B_TOKENS, i] = s, r, start, tokens[i]
        batch[B_INDEX, i], batch[B_PROMPT, i] = numbers[GENERATED, s], numbers[PROMPT, s]
        batch[B_OUTPUT, i], batch[B_KIND, i] = numbers[OUTPUT, s], numbers[KIND, s]
        batch[B_BLOCKS, i] = num_logical[s]
        widest = max(widest, num_logical[s])
    num_waiting = 0
    for i in range(order.shape[0]):
        num_waiting += num_held[order[i]] == 0
    return batch, samples, num_preempted, num_decodes, num_waiting, int(widest)


@njit(cache=True)
def settle(
    slot: IntArray, num_tokens: IntArray, samples: BoolArray, output_tokens: IntArray, ended: BoolArray,
    h_raw: FloatArray, v_raw: FloatArray, h: FloatArray, v: FloatArray, surprisal: FloatArray, temperature: FloatArray,
    step: int, now_s: float, numbers: IntArray, flags: BoolArray, rings: FloatArray, ring_step: IntArray,
    fresh: BoolArray, generated_tokens: IntArray, first_token_s: FloatArray,
) -> IntArray:  # fmt: skip
    """After a step: tokens counted, measurements kept for later decisions. Returns the rows whose request has ended."""
    flags[SERVED, :] = False
    done, count = np.empty(slot.shape[0], np.int64), 0
    for i in range(slot.shape[0]):
        s = slot[i]
        numbers[COMPUTED, s] += num_tokens[i]
        flags[SERVED, s] = True
        if not samples[i]:
            continue
        place = numbers[GENERATED, s] % rings.shape[0]
        rings[place, 0, s], rings[place, 1, s], rings[place, 2, s] = h_raw[i], v_raw[i], h[i]
        rings[place, 3, s], rings[place, 4, s], rings[place, 5, s] = v[i], surprisal[i], temperature[i]
        ring_step[place, s] = step
        for point in range(fresh.shape[0]):
            fresh[point, s] = True
        numbers[GENERATED, s] += 1
        numbers[KNOWN, s] += 1
        numbers[SINCE_ADMISSION, s] += 1
        r = numbers[REQUEST, s]
        generated_tokens[r] = numbers[GENERATED, s]
        if np.isnan(first_token_s[r]):
            first_token_s[r] = now_s
        if ended[i] or numbers[GENERATED, s] >= output_tokens[i]:
            done[count] = i
            count += 1
    return done[:count]


@njit(cache=True)
def take_masses(rows: FloatArray, told: BoolArray, slot: IntArray, block_mass: FloatArray) -> None:
    """Copy the block masses of rows that say something new into the slots' table. told [n], or [0]: rows not all NaN."""
    width = min(rows.shape[1], block_mass.shape[1])
    for i in range(slot.shape[0]):
        news = told[i] if told.shape[0] else False
        if not told.shape[0]:
            for b in range(width):
                if not np.isnan(rows[i, b]):
                    news = True
                    break
        if news:
            for b in range(width):
                block_mass[slot[i], b] = rows[i, b]


def number_table(num_slots: int) -> NDArray[np.int64]:
    table = np.zeros((NUMBERS, num_slots), np.int64)
    table[REQUEST] = -1
    return table


def flag_table(num_slots: int) -> NDArray[np.bool_]:
    return np.zeros((FLAGS, num_slots), np.bool_)
