"""p ln p of many probabilities at once, compiled so that the vector unit of any processor does the logarithm.

NumPy's double logarithm is vectorised with AVX-512 only; elsewhere it costs more than the forward-backward pass it follows.

    p = 2^e m, m in [1/sqrt 2, sqrt 2);   f = m - 1, s = f / (2 + f), z = s^2
    ln p = e ln 2 + f - (f^2/2 - s (f^2/2 + R(z))),   R a polynomial of degree 7

Source: the logarithm of fdlibm (Sun Microsystems 1993, e_log.c), error below 1 unit in the last place; written without branches.
"""

import numpy as np
from numba import njit

from workbench.signals import FloatArray

CHUNK = 512  # probabilities at a time; their scratch stays in the first-level cache
LEAST = 1e-300  # below it p ln p is 0 for every purpose, and the exponent trick does not hold
SQRT_2 = 2.0**0.5
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
FRACTION, ONE, TWO_52 = 0x000FFFFFFFFFFFFF, 0x3FF0000000000000, 0x4330000000000000
SHIFT = 2.0**52 + 1023.0
C1, C2, C3, C4, C5, C6, C7 = (
    6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01, 2.222219843214978396e-01,
    1.818357216161805012e-01, 1.531383769920937332e-01, 1.479819860511658591e-01,
)  # fmt: skip


def entropy_terms(probability: FloatArray) -> FloatArray:
    """p ln p of each entry, 0 where p < 1e-300; an entry that is no finite number at least 0 gives no meaningful number."""
    flat = np.ascontiguousarray(probability, dtype=np.float64).reshape(-1)
    out = np.empty(flat.size)
    _terms(flat, flat.view(np.int64), out)
    return out.reshape(probability.shape)


@njit(cache=True, nogil=True, error_model="numpy")  # a division that may raise is a branch
def _terms(p, bits, out):
    mantissa, exponent = np.empty(CHUNK), np.empty(CHUNK)
    mantissa_bits, exponent_bits = mantissa.view(np.int64), exponent.view(np.int64)
    for start in range(0, p.shape[0], CHUNK):
        x, b, y = p[start : start + CHUNK], bits[start : start + CHUNK], out[start : start + CHUNK]
        for k in range(x.shape[0]):
            mantissa_bits[k] = (b[k] & FRACTION) | ONE
            exponent_bits[k] = (b[k] >> 52) | TWO_52  # the exponent field as a number above 2^52
        for k in range(x.shape[0]):
            m = mantissa[k]
            e = exponent[k] - SHIFT
            large = m > SQRT_2
            m = 0.5 * m if large else m
            e = e + 1.0 if large else e
            f = m - 1.0
            s = f / (2.0 + f)
            z = s * s
            w = z * z
            r = z * (C1 + w * (C3 + w * (C5 + w * C7))) + w * (C2 + w * (C4 + w * C6))
            half = 0.5 * f * f
            log = e * LN2_HIGH - ((half - (s * (half + r) + e * LN2_LOW)) - f)
            y[k] = x[k] * log if x[k] >= LEAST else 0.0
