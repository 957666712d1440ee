"""Turn urgencies into the total order of an `OrderAction`.

The most urgent row is served first; equal urgencies go to the older request (lower `arrival_rank`). Urgencies are
compared in single precision, so that urgency and arrival fit one 64-bit key and the order costs one sort: two
urgencies closer than 1 part in 1.6e7 count as equal.
"""

import numpy as np
from numba import njit

from workbench.protocols import OrderAction, OrderObservation
from workbench.signals import BoolArray, FloatArray, IntArray

LAST = int(np.iinfo(np.int64).max)


def order_by_urgency(observation: OrderObservation, urgency: FloatArray) -> OrderAction:
    """urgency: [num_slots], at least 0 and not NaN on active rows (not read elsewhere)."""
    rank = np.empty(urgency.shape[0], np.int64)
    rank_by_urgency(observation.active, observation.arrival_rank, urgency, rank)
    return OrderAction(rank=rank)


def order_by_arrival(observation: OrderObservation) -> OrderAction:
    """First come, first served."""
    key = np.where(observation.active, observation.arrival_rank, LAST)
    rank = np.empty(key.shape[0], np.int64)
    ranks_of(key, rank)
    return OrderAction(rank=rank)


@njit(cache=True)
def rank_by_urgency(active: BoolArray, arrival_rank: IntArray, urgency: FloatArray, rank: IntArray) -> None:
    # The bits of non-negative floats rise with their value; complemented, the largest comes first.
    single = np.empty(active.shape[0], dtype=np.float32)
    for i in range(active.shape[0]):
        single[i] = urgency[i]
    bits = single.view(np.int32)
    key = np.empty(active.shape[0], dtype=np.int64)
    for i in range(active.shape[0]):
        key[i] = (((np.int64(0x7F800000) - np.int64(bits[i])) << 32) | arrival_rank[i]) if active[i] else LAST
    ranks_of(key, rank)


@njit(cache=True)
def ranks_of(key: IntArray, rank: IntArray) -> None:
    """Place of each key among all, equal ones by index; `num_slots` where a key is LAST. Keys are at least 0."""
    num_slots = key.shape[0]
    order = order_of(key)
    for position in range(num_slots):
        row = order[position]
        rank[row] = position if key[row] != LAST else num_slots


@njit(cache=True)
def order_of(key: IntArray) -> IntArray:
    """Indices that sort keys of at least 0, stably: a radix sort by bytes that leaves out bytes all keys share."""
    n = key.shape[0]
    counts = np.zeros((8, 256), np.int64)
    for i in range(n):
        k = key[i]
        for byte in range(8):
            counts[byte, (k >> (8 * byte)) & 255] += 1
    order, spare = np.arange(n), np.empty(n, np.int64)
    for byte in range(8):
        place, shift = counts[byte], 8 * byte
        if n == 0 or place[(key[0] >> shift) & 255] == n:
            continue
        total = 0
        for value in range(256):
            here = place[value]
            place[value] = total
            total += here
        for i in range(n):
            row = order[i]
            value = (key[row] >> shift) & 255
            spare[place[value]] = row
            place[value] += 1
        order, spare = spare, order
    return order
