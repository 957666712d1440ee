"""Philox draws for compiled loops: the same bits as `kernels.philox`, one counter at a time, and the normal quantile."""

import math

import numpy as np
from numba import njit

from workbench.signals import FloatArray

WORD = np.uint64(0xFFFFFFFF)
MULTIPLIER_0, MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
WEYL_0, WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
SHIFT = np.uint64(32)
CENTRAL = 0.425  # probabilities so near to 1/2 are in the middle of the normal quantile


@njit(cache=True, inline="always")
def philox_words(seed: int, stream: int, request_id: int, token_index: int, lane_group: int):
    """Four 32-bit words of counter (lane_group, token_index, request_id, stream); word w is lane 4 lane_group + w."""
    k0 = np.uint64(seed) & WORD
    k1 = np.uint64(seed) >> SHIFT
    c0 = np.uint64(lane_group) & WORD
    c1 = np.uint64(token_index) & WORD
    c2 = np.uint64(request_id) & WORD
    c3 = np.uint64(stream) & WORD
    for _ in range(10):
        p0 = c0 * MULTIPLIER_0
        p1 = c2 * MULTIPLIER_1
        c0 = (p1 >> SHIFT) ^ c1 ^ k0
        c2 = (p0 >> SHIFT) ^ c3 ^ k1
        c1 = p1 & WORD
        c3 = p0 & WORD
        k0 = (k0 + WEYL_0) & WORD
        k1 = (k1 + WEYL_1) & WORD
    return c0, c1, c2, c3


@njit(cache=True, inline="always")
def unit(word: np.uint64) -> float:
    """A word as a uniform draw on the grid (k + 1/2) / 2**23."""
    return (float(word >> np.uint64(9)) + 0.5) * 2.0**-23


@njit(cache=True, inline="always")
def unit_fine(high: np.uint64, low: np.uint64) -> float:
    """Two words as a uniform draw on the grid (k + 1/2) / 2**46."""
    return (float(high >> np.uint64(9)) + unit(low)) * 2.0**-23


@njit(cache=True, inline="always")
def _central(q: float) -> float:
    """The quantile of 1/2 + q, |q| <= 0.425."""
    r = 0.180625 - q * q
    num = ((((((2509.0809287301226727 * r + 33430.575583588128105) * r + 67265.770927008700853) * r
              + 45921.953931549871457) * r + 13731.693765509461125) * r + 1971.5909503065514427) * r
           + 133.14166789178437745) * r + 3.387132872796366608  # fmt: skip
    den = ((((((5226.495278852854561 * r + 28729.085735721942674) * r + 39307.89580009271061) * r
              + 21213.794301586595867) * r + 5394.1960214247511077) * r + 687.1870074920579083) * r
           + 42.313330701600911252) * r + 1.0  # fmt: skip
    return q * num / den


@njit(cache=True)
def _tail(u: float) -> float:
    """The quantile of u, |u - 1/2| > 0.425."""
    r = math.sqrt(-math.log(min(u, 1.0 - u)))
    if r <= 5.0:
        r -= 1.6
        num = ((((((7.7454501427834140764e-4 * r + 0.0227238449892691845833) * r + 0.24178072517745061177) * r
                  + 1.27045825245236838258) * r + 3.64784832476320460504) * r + 5.7694972214606914055) * r
               + 4.6303378461565452959) * r + 1.42343711074968357734  # fmt: skip
        den = ((((((1.05075007164441684324e-9 * r + 5.475938084995344946e-4) * r + 0.0151986665636164571966) * r
                  + 0.14810397642748007459) * r + 0.68976733498510000455) * r + 1.6763848301838038494) * r
               + 2.05319162663775882187) * r + 1.0  # fmt: skip
    else:
        r -= 5.0
        num = ((((((2.01033439929228813265e-7 * r + 2.71155556874348757815e-5) * r + 0.0012426609473880784386) * r
                  + 0.026532189526576123093) * r + 0.29656057182850489123) * r + 1.7848265399172913358) * r
               + 5.4637849111641143699) * r + 6.6579046435011037772  # fmt: skip
        den = ((((((2.04426310338993978564e-15 * r + 1.4215117583164458887e-7) * r + 1.8463183175100546818e-5) * r
                  + 7.868691311456132591e-4) * r + 0.0148753612908506148525) * r + 0.13692988092273580531) * r
               + 0.59983220655588793769) * r + 1.0  # fmt: skip
    return math.copysign(num / den, u - 0.5)


@njit(cache=True)
def normal_quantile(u: float) -> float:
    """The standard normal quantile of u in (0, 1), to about 1e-15 relative.

    Source: Wichura, "Algorithm AS 241: the percentage points of the normal distribution", Applied Statistics 37 (1988).
    """
    return _central(u - 0.5) if abs(u - 0.5) <= CENTRAL else _tail(u)


@njit(cache=True, error_model="numpy")
def normal_quantiles(u: FloatArray, out: FloatArray) -> None:
    """out = `normal_quantile` of each: the middle, where most fall, without branches, then the tails one by one."""
    for i in range(u.shape[0]):
        out[i] = _central(u[i] - 0.5)
    for i in range(u.shape[0]):
        if abs(u[i] - 0.5) > CENTRAL:
            out[i] = _tail(u[i])
