"""p ln p of many probabilities at once, by the vectorised logarithm.

NumPy's double logarithm is vectorised with AVX-512 only; elsewhere it costs more than the forward-backward pass it follows.
"""

import numpy as np
from numba import njit

from workbench.signals import FloatArray
from workbench.vector_math import logarithms

CHUNK = 512  # probabilities at a time; their scratch stays in the first-level cache
LEAST = 1e-300  # below it p ln p is 0 for every purpose, and a logarithm by its bits does not hold


def entropy_terms(probability: FloatArray) -> FloatArray:
    """p ln p of each entry, 0 where p < 1e-300; an entry that is no finite number at least 0 gives no meaningful number."""
    flat = np.ascontiguousarray(probability, dtype=np.float64).reshape(-1)
    out = np.empty(flat.size)
    _terms(flat, out)
    return out.reshape(probability.shape)


@njit(cache=True, nogil=True)
def _terms(p, out):
    scratch = np.empty(CHUNK)
    for start in range(0, p.shape[0], CHUNK):
        x, y = p[start : start + CHUNK], out[start : start + CHUNK]
        logarithms(x, y, scratch)
        for k in range(x.shape[0]):
            y[k] = x[k] * y[k] if x[k] >= LEAST else 0.0
