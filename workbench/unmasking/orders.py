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


def rank_of_order(order: IntArray, length: int) -> IntArray:
    """[length] rank of each position in an order that lists the positions, the first to be revealed in front.

    Raises:
        InputError: a list that does not name every position exactly once, with what is wrong.
    """
    named = np.asarray(order, dtype=np.int64).reshape(-1)
    values, counts = np.unique(named, return_counts=True)
    outside, twice = values[(values < 0) | (values >= length)], values[counts > 1]
    why = None
    if outside.size:
        why = f"{outside[0]} is no position"
    elif twice.size:
        why = f"{twice[0]} occurs {counts[counts > 1][0]} times"
    elif named.size != length:
        why = f"{np.setdiff1d(np.arange(length), values)[0]} is missing"
    if why is not None:
        raise InputError(f"order must name each position of 0 .. {length - 1} once, {why}")
    rank = np.empty(length, dtype=np.int64)
    rank[named] = np.arange(length)
    return rank


def parse_order(text: str) -> IntArray:
    """Positions out of `2,0,1`. Raises InputError for a word that is no whole number."""
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if not word.lstrip("-").isdecimal():
            raise InputError(f"order takes positions with commas between, as in 2,0,1, got {word!r}")
    return np.array([int(word) for word in words], dtype=np.int64)
