"""The plant's random orders: a permutation per request and iteration, from a counter, or orders given beforehand."""

import numpy as np
from numba import njit

from kernels.philox import random_words
from workbench.errors import InputError
from workbench.signals import IntArray

STREAM = 0x0D3  # keeps these draws apart from everything else drawn under the same seed


def random_ranks(seed: int, request_id: IntArray, iteration: int, length: int) -> IntArray:
    """[rows, length] a uniform permutation per row that depends on nothing but its arguments: not on slot, batch or arm.

    Philox words keyed by (seed, stream, request, iteration) seed a SplitMix64 counter, which drives Fisher-Yates.
    Source: Salmon et al. (SC 2011) and Steele, Lea and Flood (OOPSLA 2014) for the generators.
    """
    words = random_words(seed, STREAM, np.asarray(request_id)[:, None], iteration, np.arange(2)[None, :])
    return _shuffle(words[:, 0] << np.uint64(32) | words[:, 1], length)


@njit(cache=True, nogil=True)
def _shuffle(key, length):
    out = np.empty((key.shape[0], length), dtype=np.int64)
    for row in range(key.shape[0]):
        state = key[row]
        rank = out[row]
        for i in range(length):
            state += np.uint64(0x9E3779B97F4A7C15)
            z = state
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            z = z ^ (z >> np.uint64(31))
            # 53 random bits times i + 1: the bias of the last place is below length / 2^53.
            j = np.int64(np.float64(z >> np.uint64(11)) * 1.1102230246251565e-16 * (i + 1))
            rank[i] = rank[j]
            rank[j] = i
    return out


def check_orders(orders: IntArray, length: int) -> IntArray:
    """Ranks [rows, length] that are permutations of 0 .. length - 1.

    Raises:
        InputError: a row that is no permutation, named with the first rank that is wrong.
    """
    ranks = np.asarray(orders)
    if ranks.ndim != 2 or ranks.shape[1] != length or ranks.dtype.kind not in "iu":
        raise InputError(f"orders must be integers of shape [rows, {length}], got {ranks.dtype} {ranks.shape}")
    wrong = np.flatnonzero((np.sort(ranks, axis=1) != np.arange(length)).any(axis=1))
    if wrong.size:
        values, counts = np.unique(ranks[wrong[0]], return_counts=True)
        twice = values[counts > 1]
        why = f"rank {twice[0]} occurs {counts[counts > 1][0]} times" if twice.size else f"ranks reach {values[-1]}"
        raise InputError(
            f"orders: row {wrong[0]} is no permutation of 0 .. {length - 1} ({why}); give every position its own rank"
        )
    return ranks.astype(np.int64)
