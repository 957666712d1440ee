"""Exponentials and logarithms of many numbers at once, compiled so that the vector unit of any processor computes them.

A loop over the C library's `exp` or `log` is not vectorised; NumPy's are with AVX-512 only. Written without branches, and
without fused operations, so that the bits do not depend on the processor.

    exp x = 2^k exp r,                    k = round(x / ln 2), |r| <= ln 2 / 2, exp r by its series to r^13
    ln p  = e ln 2 + f - (f^2/2 - s (f^2/2 + R(z))),   p = 2^e (1 + f) in [1/sqrt 2, sqrt 2), s = f / (2 + f), z = s^2

Errors are below 1 unit in the last place. Source: reduction and R(z) of fdlibm (Sun Microsystems 1993, e_exp.c and e_log.c).
"""

import numpy as np
from numba import njit

from workbench.signals import FloatArray

LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
INVERSE_LN2, SQRT_2 = 1.4426950408889634074, 2.0**0.5
LOWEST_EXPONENT = -708.0  # exp of less is taken as exp of this, 3e-308
ROUND = 1.5 * 2.0**52  # added to a number, it leaves the nearest integer in the low bits
FRACTION, ONE, TWO_52 = 0x000FFFFFFFFFFFFF, 0x3FF0000000000000, 0x4330000000000000
BIAS = 2.0**52 + 1023.0
(I2, I3, I4, I5, I6, I7, I8, I9, I10, I11, I12, I13) = (
    1 / 2, 1 / 6, 1 / 24, 1 / 120, 1 / 720, 1 / 5040, 1 / 40320, 1 / 362880, 1 / 3628800, 1 / 39916800, 1 / 479001600,
    1 / 6227020800,
)  # fmt: skip
C1, C2, C3, C4, C5, C6, C7 = (
    6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01, 2.222219843214978396e-01,
    1.818357216161805012e-01, 1.531383769920937332e-01, 1.479819860511658591e-01,
)  # fmt: skip


@njit(cache=True, nogil=True, error_model="numpy")
def exponentials(x: FloatArray, out: FloatArray, scratch: FloatArray) -> None:
    """out = exp(x) for x up to 709; all three [n], apart in memory."""
    bits, power = out.view(np.int64), scratch.view(np.int64)
    for i in range(x.shape[0]):
        v = max(x[i], LOWEST_EXPONENT)
        shifted = v * INVERSE_LN2 + ROUND
        k = shifted - ROUND
        r = (v - k * LN2_HIGH) - k * LN2_LOW
        p = I8 + r * (I9 + r * (I10 + r * (I11 + r * (I12 + r * I13))))
        out[i] = 1.0 + r * (1.0 + r * (I2 + r * (I3 + r * (I4 + r * (I5 + r * (I6 + r * (I7 + r * p)))))))
        scratch[i] = shifted
    for i in range(x.shape[0]):
        bits[i] += power[i] << 52  # only k is left of `shifted`, in the place of the exponent


@njit(cache=True, nogil=True, error_model="numpy")  # a division that may raise is a branch
def logarithms(p: FloatArray, out: FloatArray, scratch: FloatArray) -> None:
    """out = ln(p) for normal positive p, some finite number for others; all three [n], apart in memory."""
    bits, mantissa_bits, exponent_bits = p.view(np.int64), out.view(np.int64), scratch.view(np.int64)
    for i in range(p.shape[0]):
        mantissa_bits[i] = (bits[i] & FRACTION) | ONE
        exponent_bits[i] = (bits[i] >> 52) | TWO_52  # the exponent field as a number above 2^52
    for i in range(p.shape[0]):
        m = out[i]
        e = scratch[i] - BIAS
        large = m > SQRT_2
        m = 0.5 * m if large else m
        e = e + 1.0 if large else e
        f = m - 1.0
        s = f / (2.0 + f)
        z = s * s
        w = z * z
        r = z * (C1 + w * (C3 + w * (C5 + w * C7))) + w * (C2 + w * (C4 + w * C6))
        half = 0.5 * f * f
        out[i] = e * LN2_HIGH - ((half - (s * (half + r) + e * LN2_LOW)) - f)
