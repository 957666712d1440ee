"""Paged KV-block accounting: which physical block holds which logical block of which slot.

The pool is plain arrays, changed in place by compiled functions, so that a step with hundreds of sequences runs no Python
loop. Invariants (held by a stateful property test): a physical block is either free or in exactly one place of the
table; held + free = num_blocks; a released or evicted block is never in a table. With an `index` (prefix caching) several
tables may hold one block, and free blocks are its ring instead of the stack; without one that code is not even compiled.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from workbench.engine.prefix_cache import PrefixIndex, give, take
from workbench.signals import IntArray


class BlockPool(NamedTuple):
    """State of the pool. A logical block once evicted stays evicted: `table` holds -1 there."""

    free: NDArray[np.int32]  # [num_blocks] stack of free physical blocks; the first num_free[0] entries count
    num_free: IntArray  # [1]
    table: NDArray[np.int32]  # [num_slots, max_blocks] physical block of each logical block, or -1
    num_logical: IntArray  # [num_slots] logical blocks ever allocated to the current owner
    num_held: IntArray  # [num_slots] of those, still held


def new_pool(num_blocks: int, num_slots: int, max_blocks: int) -> BlockPool:
    return BlockPool(
        free=np.arange(num_blocks - 1, -1, -1, dtype=np.int32),
        num_free=np.array([num_blocks], np.int64),
        table=np.full((num_slots, max_blocks), -1, np.int32),
        num_logical=np.zeros(num_slots, np.int64),
        num_held=np.zeros(num_slots, np.int64),
    )


@njit(cache=True)
def allocate(pool: BlockPool, slot: int, count: int, index: PrefixIndex | None = None) -> None:
    """Append `count` blocks to a slot. The caller has checked that they are free."""
    for _ in range(count):
        if index is None:
            pool.num_free[0] -= 1
            pool.table[slot, pool.num_logical[slot]] = pool.free[pool.num_free[0]]
        else:
            pool.table[slot, pool.num_logical[slot]] = take(pool, index)
        pool.num_logical[slot] += 1
        pool.num_held[slot] += 1


@njit(cache=True)
def release(pool: BlockPool, slot: int, index: PrefixIndex | None = None) -> None:
    """Give back every block of a slot (its request ended or was preempted)."""
    count = pool.num_logical[slot]
    for i in range(count):
        # A ring takes the end of a prompt first: it is of use to fewer requests than the beginning.
        logical = i if index is None else count - 1 - i
        physical = pool.table[slot, logical]
        if physical >= 0:
            if index is None:
                pool.free[pool.num_free[0]] = physical
                pool.num_free[0] += 1
            else:
                give(pool, index, physical)
            pool.table[slot, logical] = -1
    pool.num_logical[slot] = 0
    pool.num_held[slot] = 0


@njit(cache=True)
def evict(pool: BlockPool, slot: int, drop: NDArray[np.bool_], index: PrefixIndex | None = None) -> int:
    """Free the logical blocks marked in `drop` [<= max_blocks] for good; returns how many the slot no longer holds."""
    freed = 0
    for logical in range(min(drop.shape[0], pool.num_logical[slot])):
        physical = pool.table[slot, logical]
        if drop[logical] and physical >= 0:
            if index is None:
                pool.free[pool.num_free[0]] = physical
                pool.num_free[0] += 1
            else:
                give(pool, index, physical)
            pool.table[slot, logical] = -1
            pool.num_held[slot] -= 1
            freed += 1
    return freed
