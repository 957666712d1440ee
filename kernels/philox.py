"""Counter-based random numbers: Philox4x32-10, the same bits in NumPy, torch, Triton and C++. Torch-free.

A draw is a pure function of what it is for, never of when, where or in which batch it is made:

    key     = (seed low word, seed high word)                     the run seed, 64 bits
    counter = (lane // 4, token_index, request_id, stream)        32 bits each
    x       = word lane % 4 of philox4x32_10(counter, key)
    u       = ((x >> 9) + 0.5) * 2**-23                           in (0, 1), exact in float32

so two arms of an experiment, or two batch orders, see common random numbers. `uniform_fine` joins lanes 0 and 1 into
46 bits for inverse-CDF sampling, where 23 bits would put tokens below 1.2e-7 out of reach.
Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011); the keying is ours.
"""

from typing import TypeVar

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

MULTIPLIER_0 = 0xD2511F53
MULTIPLIER_1 = 0xCD9E8D57
WEYL_0 = 0x9E3779B9
WEYL_1 = 0xBB67AE85
WORD = 0xFFFFFFFF
NUM_ROUNDS = 10

Words = TypeVar("Words")


def split_seed(seed: int) -> tuple[int, int]:
    """The two 32-bit key words of a run seed; a seed is taken modulo 2**64."""
    return seed & WORD, (seed >> 32) & WORD


def philox4x32(c0: Words, c1: Words, c2: Words, c3: Words, key_0: int, key_1: int) -> tuple[Words, Words, Words, Words]:
    """The four output words for counters held in int64 arrays (NumPy or torch), each value in [0, 2**32).

    A 32 x 32 bit product wraps in int64, but its bit pattern is right; masking after the shift reads the high word.
    """
    for _ in range(NUM_ROUNDS):
        product_0 = c0 * MULTIPLIER_0  # type: ignore[operator]
        product_1 = c2 * MULTIPLIER_1  # type: ignore[operator]
        c0 = ((product_1 >> 32) & WORD) ^ c1 ^ key_0
        c2 = ((product_0 >> 32) & WORD) ^ c3 ^ key_1
        c1, c3 = product_1 & WORD, product_0 & WORD
        key_0, key_1 = (key_0 + WEYL_0) & WORD, (key_1 + WEYL_1) & WORD
    return c0, c1, c2, c3


@numba.njit(cache=True)
def _words(seed_0, seed_1, stream, request_id, token_index, lane, out):  # pragma: no cover - compiled
    """out[i] = the Philox word of entry i; one scalar loop, so a simulated step pays microseconds."""
    word = np.uint64(WORD)
    shift = np.uint64(32)
    for i in range(out.size):
        c0 = np.uint64(lane[i]) >> np.uint64(2)
        c1 = np.uint64(token_index[i]) & word
        c2 = np.uint64(request_id[i]) & word
        c3 = np.uint64(stream) & word
        k0, k1 = np.uint64(seed_0), np.uint64(seed_1)
        for _ in range(NUM_ROUNDS):
            p0 = c0 * np.uint64(MULTIPLIER_0)
            p1 = c2 * np.uint64(MULTIPLIER_1)
            c0 = (p1 >> shift) ^ c1 ^ k0
            c2 = (p0 >> shift) ^ c3 ^ k1
            c1, c3 = p1 & word, p0 & word
            k0, k1 = (k0 + np.uint64(WEYL_0)) & word, (k1 + np.uint64(WEYL_1)) & word
        which = np.uint64(lane[i]) & np.uint64(3)
        if which == np.uint64(0):
            out[i] = c0
        elif which == np.uint64(1):
            out[i] = c1
        elif which == np.uint64(2):
            out[i] = c2
        else:
            out[i] = c3


def random_words(
    seed: int, stream: int, request_id: ArrayLike, token_index: ArrayLike, lane: ArrayLike = 0
) -> NDArray[np.uint64]:
    """Philox words in [0, 2**32), shape the broadcast of request_id, token_index and lane (int64, lane >= 0)."""
    parts = np.asarray(request_id, np.int64), np.asarray(token_index, np.int64), np.asarray(lane, np.int64)
    shape = np.broadcast_shapes(*(part.shape for part in parts))
    # A flat copy only where something is repeated: compiled code is slow to accept views that warn when written.
    request, token, lanes = (
        np.ascontiguousarray(part).reshape(-1) if part.shape == shape else np.broadcast_to(part, shape).flatten()
        for part in parts
    )
    out = np.empty(shape, np.uint64)
    seed_0, seed_1 = split_seed(seed)
    _words(seed_0, seed_1, stream & WORD, request, token, lanes, out.reshape(-1))
    return out


def uniform(
    seed: int, stream: int, request_id: ArrayLike, token_index: ArrayLike, lane: ArrayLike = 0
) -> NDArray[np.float64]:
    """Uniform draws in (0, 1) on the grid (k + 1/2) / 2**23, shape the broadcast of the three array arguments.

    seed: run seed. stream: what the draw is for, so that two uses never share one. request_id, token_index: int64,
    used modulo 2**32. lane: index within the draw, for example the vocabulary index of a Gumbel variable.
    """
    return ((random_words(seed, stream, request_id, token_index, lane) >> np.uint64(9)) + 0.5) * 2.0**-23


def uniform_fine(seed: int, stream: int, request_id: ArrayLike, token_index: ArrayLike) -> NDArray[np.float64]:
    """Uniform draws in (0, 1) on the grid (k + 1/2) / 2**46, from lanes 0 (high bits) and 1 (low bits)."""
    high = random_words(seed, stream, request_id, token_index, 0) >> np.uint64(9)
    return (high + uniform(seed, stream, request_id, token_index, 1)) * 2.0**-23
