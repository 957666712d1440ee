"""What a row would add to the next step, learned from the steps measured so far, live and simulated alike.

    elapsed_s = a + b * tokens + c * KV tokens read

by least squares over the run, older steps forgotten slowly; the marginal cost of a row is b * tokens + c * context.
Until a few steps have been measured the answer rests on a prior of one millisecond a token. A simulated engine learns it
too, though its step cost is known: an order may only go by what an engine can know.
"""

import numpy as np
from numba import njit

from workbench.signals import FloatArray, IntArray

FORGET = 0.995  # weight of the past at each step: about 200 steps count
PRIOR = np.array([5e-3, 1e-3, 1e-7])  # seconds a step, a token, a KV token
PRIOR_WEIGHT = np.array([1.0, 1.0, 1e4])  # as one step of each kind
RIDGE = 1e-9
FLOOR_S = 1e-6


@njit(cache=True)
def learn(law: FloatArray, num_tokens: int, kv_tokens: float, elapsed_s: float) -> None:
    """Add a measured step to the normal equations `law` [3, 4]: their matrix, then their right-hand side."""
    x = (1.0, float(num_tokens), kv_tokens)
    for i in range(3):
        for j in range(3):
            law[i, j] = FORGET * law[i, j] + x[i] * x[j]
        law[i, 3] = FORGET * law[i, 3] + x[i] * elapsed_s


@njit(cache=True)
def marginal_s(law: FloatArray, start: IntArray, num_tokens: IntArray) -> FloatArray:
    """[n] seconds each row would add, at least `FLOOR_S`."""
    m = law.copy()
    for i in range(3):
        m[i, i] *= 1.0 + RIDGE
    for i in range(2):  # elimination; the matrix is positive definite, so no pivot is sought
        for k in range(i + 1, 3):
            factor = m[k, i] / m[i, i]
            for j in range(i, 4):
                m[k, j] -= factor * m[i, j]
    per_kv = m[2, 3] / m[2, 2]
    per_token = max((m[1, 3] - m[1, 2] * per_kv) / m[1, 1], 0.0)
    per_kv = max(per_kv, 0.0)
    out = np.empty(start.shape[0])
    for i in range(start.shape[0]):
        out[i] = max(per_token * num_tokens[i] + per_kv * (start[i] + num_tokens[i]), FLOOR_S)
    return out


class StepTime:
    """The law of one engine. `equations` [3, 4] is what compiled runs go on with."""

    def __init__(self) -> None:
        self.equations = np.column_stack([np.diag(PRIOR_WEIGHT), PRIOR_WEIGHT * PRIOR])

    def add(self, num_tokens: int, kv_tokens: float, elapsed_s: float) -> None:
        learn(self.equations, num_tokens, float(kv_tokens), elapsed_s)

    def marginal_s(self, start: IntArray, num_tokens: IntArray) -> FloatArray:
        """[n] seconds each row would add, at least `FLOOR_S`."""
        return marginal_s(self.equations, start, num_tokens)
