"""Forward-backward over a hidden chain with arbitrary evidence: the textbook recursion, compiled, scaled at each step."""

import numpy as np
from numba import njit

from workbench.signals import FloatArray


@njit(cache=True, nogil=True)
def forward_backward(initial: FloatArray, transition: FloatArray, evidence: FloatArray) -> tuple[FloatArray, float]:
    """Posterior of every state of one chain and the log-likelihood of the evidence.

    initial [S], transition [S, S] (row: from), evidence [L, S]: likelihood of what was seen at a position given its state
    (ones where nothing was). Returns (posterior [L, S], ln p(evidence)); a zero-probability row is uniform and the
    log-likelihood -inf.
    """
    length, num_states = evidence.shape
    posterior = np.empty((length, num_states))
    log_likelihood = 0.0
    alpha = initial.copy()
    for i in range(length):
        total = 0.0
        for b in range(num_states):
            if i == 0:
                value = initial[b]
            else:
                value = 0.0
                for a in range(num_states):
                    value += posterior[i - 1, a] * transition[a, b]
            value *= evidence[i, b]
            alpha[b] = value
            total += value
        if total > 0.0:
            log_likelihood += np.log(total)
            for b in range(num_states):
                posterior[i, b] = alpha[b] / total
        else:
            log_likelihood = -np.inf
            for b in range(num_states):
                posterior[i, b] = 1.0 / num_states
    beta = np.ones(num_states)
    seen = np.empty(num_states)
    for i in range(length - 1, -1, -1):
        if i < length - 1:
            top = 0.0
            for b in range(num_states):
                seen[b] = beta[b] * evidence[i + 1, b]
            for a in range(num_states):
                value = 0.0
                for b in range(num_states):
                    value += transition[a, b] * seen[b]
                beta[a] = value
                top = max(top, value)
            for a in range(num_states):
                beta[a] = beta[a] / top if top > 0.0 else 1.0
        total = 0.0
        for a in range(num_states):
            posterior[i, a] *= beta[a]
            total += posterior[i, a]
        for a in range(num_states):
            posterior[i, a] = posterior[i, a] / total if total > 0.0 else 1.0 / num_states
    return posterior, log_likelihood
