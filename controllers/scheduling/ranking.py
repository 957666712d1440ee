"""Turn urgencies into the total order of an `OrderAction`.

The most urgent row is served first; equal urgencies go to the older request (lower `arrival_rank`). Urgencies are
compared in single precision, so that urgency and arrival fit one 64-bit key and the order costs one sort: two
urgencies closer than 1 part in 1.6e7 count as equal.
"""

import numpy as np
from numba import njit

from workbench.protocols import OrderAction, OrderObservation
from workbench.signals import FloatArray, IntArray

LAST = np.iinfo(np.int64).max


def order_by_urgency(observation: OrderObservation, urgency: FloatArray) -> OrderAction:
    """urgency: [num_slots], at least 0 and not NaN on active rows (not read elsewhere)."""
    return _order(_keys(observation.active, observation.arrival_rank, urgency))


def order_by_arrival(observation: OrderObservation) -> OrderAction:
    """First come, first served."""
    return _order(np.where(observation.active, observation.arrival_rank, LAST))


def _order(key: IntArray) -> OrderAction:
    return OrderAction(rank=_ranks(np.argsort(key), key))


@njit(cache=True)
def _keys(active, arrival_rank, urgency):
    # The bits of non-negative floats rise with their value; complemented, the largest comes first.
    single = np.empty(active.shape[0], dtype=np.float32)
    for i in range(active.shape[0]):
        single[i] = urgency[i]
    bits = single.view(np.int32)
    key = np.empty(active.shape[0], dtype=np.int64)
    for i in range(active.shape[0]):
        key[i] = (((np.int64(0x7F800000) - np.int64(bits[i])) << 32) | arrival_rank[i]) if active[i] else LAST
    return key


@njit(cache=True)
def _ranks(order, key):
    num_slots = order.shape[0]
    rank = np.empty(num_slots, dtype=np.int64)
    for position in range(num_slots):
        row = order[position]
        rank[row] = position if key[row] != LAST else num_slots
    return rank
