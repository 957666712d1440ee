"""What a row would add to the next step, learned from the steps measured so far.

    elapsed_s = a + b * tokens + c * KV tokens read

by least squares over the run, older steps forgotten slowly; the marginal cost of a row is b * tokens + c * context.
Until a few steps have been measured the answer rests on a prior of one millisecond a token.
"""

import numpy as np

from workbench.signals import FloatArray, IntArray

FORGET = 0.995  # weight of the past at each step: about 200 steps count
PRIOR = np.array([5e-3, 1e-3, 1e-7])  # seconds a step, a token, a KV token
FLOOR_S = 1e-6


class StepTime:
    """Recursive normal equations in three unknowns, scaled so that the prior counts as one step of each kind."""

    def __init__(self) -> None:
        scale = np.diag([1.0, 1.0, 1e4])
        self._gram = scale.copy()
        self._moment = scale @ PRIOR

    def add(self, num_tokens: int, kv_tokens: float, elapsed_s: float) -> None:
        x = np.array([1.0, num_tokens, kv_tokens])
        self._gram = FORGET * self._gram + np.outer(x, x)
        self._moment = FORGET * self._moment + x * elapsed_s

    def marginal_s(self, start: IntArray, num_tokens: IntArray) -> FloatArray:
        """[n] seconds each row would add, at least `FLOOR_S`."""
        _, per_token, per_kv = np.linalg.solve(self._gram + 1e-9 * np.diag(np.diag(self._gram)), self._moment)
        cost = max(per_token, 0.0) * num_tokens + max(per_kv, 0.0) * (start + num_tokens)
        return np.maximum(cost, FLOOR_S)
