"""Continuous batching with chunked prefill: one walk down the controller's order forms the next batch.

Each request wants its uncomputed tokens: one for a decode, a chunk for a prefill. The walk gives tokens and KV blocks in
order until the batch limit or the token budget is used up; ready sequences it does not reach are paused, KV kept.

Lack of KV: blocks are taken from the lowest-ranked holder behind the request that needs them (preemption by recompute). If
that is not enough the request is blocked and nobody behind it may take new blocks in this step: the head of the order
is never bypassed for lack of KV. With a preemption quantum q > 0 a holder that has drawn fewer than q tokens since its
admission is protected, and protected holders run on behind a blocked request; if nothing at all could run, the walk is
repeated without protection. Each admission then pays for itself with q tokens, so preemptions of a request are at most
ceil(output / q), plus the rare unprotected ones.

Two variants, off by default. Swap: a victim whose blocks fit the host memory that is left (`swap_room`) keeps its tokens
there, `computed` stays, and it needs all its blocks at once to go on. Prefix caching (`index`): whoever is admitted adopts
the beginning of its prompt that is in memory; if it then cannot run, it gives the blocks back.
"""

import numpy as np
from numba import njit

from workbench.engine.kv_blocks import BlockPool, allocate, release
from workbench.engine.prefix_cache import PrefixIndex, adopt
from workbench.signals import IntArray


@njit(cache=True)
def form_batch(
    order: IntArray,  # [ready] slots, first served first
    pool: BlockPool,
    known: IntArray,  # [num_slots] prompt and generated tokens so far
    computed: IntArray,  # [num_slots] of those, in the KV cache; 0 again after preemption, kept by a swap
    since_admission: IntArray,  # [num_slots] tokens drawn since the row last took its first block
    block_size: int,
    max_running: int,
    token_budget: int,
    max_chunk_tokens: int,
    watermark_blocks: int,
    quantum: int,
    batch_slot: IntArray,  # out [max_running]
    batch_tokens: IntArray,  # out [max_running]
    preempted: IntArray,  # out [num_slots]
    swap_room: int = 0,  # blocks of host memory that victims may fill
    request_id: IntArray | None = None,  # [num_slots], with an index
    index: PrefixIndex | None = None,
) -> tuple[int, int]:
    """Fill the batch; returns (rows in the batch, rows preempted). Changes pool, computed and since_admission."""
    num_rows, num_preempted, swap_room = _walk(
        order, pool, known, computed, since_admission, block_size, max_running, token_budget, max_chunk_tokens,
        watermark_blocks, quantum, batch_slot, batch_tokens, preempted, 0, swap_room, request_id, index,
    )  # fmt: skip
    if num_rows == 0 and order.shape[0] > 0:
        num_rows, num_preempted, swap_room = _walk(
            order, pool, known, computed, since_admission, block_size, max_running, token_budget, max_chunk_tokens,
            0, 0, batch_slot, batch_tokens, preempted, num_preempted, swap_room, request_id, index,
        )  # fmt: skip
    return num_rows, num_preempted


@njit(cache=True)
def _walk(
    order: IntArray,
    pool: BlockPool,
    known: IntArray,
    computed: IntArray,
    since_admission: IntArray,
    block_size: int,
    max_running: int,
    token_budget: int,
    max_chunk_tokens: int,
    watermark_blocks: int,
    quantum: int,
    batch_slot: IntArray,
    batch_tokens: IntArray,
    preempted: IntArray,
    num_preempted: int,
    swap_room: int,
    request_id: IntArray | None,
    index: PrefixIndex | None,
) -> tuple[int, int, int]:
    num_ready = order.shape[0]
    # Read out of the tuple once: at every use it would count references.
    num_held, num_logical, num_free = pool.num_held, pool.num_logical, pool.num_free
    lost = np.zeros(num_held.shape[0], np.bool_)
    holders = 0
    for position in range(num_ready):
        holders += num_held[order[position]] > 0
    num_rows, budget, blocked, tail = 0, token_budget, False, num_ready
    for position in range(num_ready):
        if num_rows == max_running or budget == 0:
            break
        slot = int(order[position])
        holds = num_held[slot] > 0
        if lost[slot] or (blocked and not (holds and since_admission[slot] < quantum)):
            continue
        if index is not None:  # noqa: SIM102 (a test of None alone is compiled away)
            if request_id is not None and not holds and computed[slot] == 0:
                computed[slot] = adopt(pool, index, slot, request_id[slot], known[slot], block_size)
        want = min(known[slot] - computed[slot], budget, max_chunk_tokens)
        need = int((computed[slot] + want + block_size - 1) // block_size - num_logical[slot])
        reserve = 0 if holds or holders == 0 else watermark_blocks
        while need > num_free[0] - reserve and not blocked:
            tail -= 1
            while tail > position and (num_held[order[tail]] == 0 or (since_admission[order[tail]] < quantum)):
                tail -= 1
            if tail <= position:
                break
            victim = int(order[tail])
            if num_held[victim] <= swap_room:
                swap_room -= num_held[victim]
            else:
                computed[victim] = 0
            release(pool, victim, index)
            since_admission[victim] = 0
            lost[victim] = True
            holders -= 1
            preempted[num_preempted] = victim
            num_preempted += 1
        if holders == 0:
            reserve = 0
        if need > num_free[0] - reserve:
            blocked = True
            if index is not None:  # noqa: SIM102
                if not holds and num_held[slot] > 0:
                    release(pool, slot, index)
                    computed[slot] = 0
            continue
        if not holds:
            holders += 1
            since_admission[slot] = 0
        if need > 0:
            allocate(pool, slot, need, index)
        batch_slot[num_rows] = slot
        batch_tokens[num_rows] = want
        num_rows += 1
        budget -= want
    return num_rows, num_preempted, swap_room
