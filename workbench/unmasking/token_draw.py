"""The token of a revealed position: from its marginal as it is, or from the law a temperature controller asks for.

Draws are keyed by (seed, request, position, iteration), so they depend on neither slot nor batch.
"""

from typing import Any

import numpy as np
from numba import njit

from kernels.philox import uniform_fine
from kernels.reference_numpy import logit_stats
from workbench.protocols import SamplingAction
from workbench.signals import FloatArray, IntArray

TOKEN_STREAM = 0x70C  # of the run's counter-based generator


def draw_plain(
    probability: FloatArray, at: IntArray, position: IntArray, seed: int, request: IntArray, index: IntArray
) -> tuple[IntArray, FloatArray]:
    """Tokens at `probability`[at, position], T = 1, and their surprisals; the same tokens as `draw_by_law` at T = 1."""
    return inverse_cdf(probability, at, position, uniform_fine(seed, TOKEN_STREAM, request, index))


def draw_by_law(
    probability: FloatArray, law: SamplingAction, slot: IntArray, seed: int, request: IntArray, index: IntArray
) -> Any:
    """`LogitStats` of one draw a row of `probability` [drawn, num_symbols] under `law` of its `slot`."""

    def number(values: FloatArray | None) -> FloatArray | None:
        return None if values is None else values[slot]

    with np.errstate(divide="ignore"):
        logits = np.log(probability)
    return logit_stats(
        logits,
        law.temperature[slot],
        seed=seed,
        request_id=request,
        token_index=index,
        stream=TOKEN_STREAM,
        target_entropy_nats=number(law.target_entropy_nats),
        temperature_min=law.temperature_min,
        temperature_max=law.temperature_max,
        min_p=number(law.min_p),
        top_h=number(law.top_h),
        mirostat_mu_nats=number(law.mirostat_mu_nats),
        sampler="inverse_cdf",
    )


@njit(cache=True, nogil=True)
def inverse_cdf(probability, at, position, u):
    """The first symbol whose cumulative probability exceeds u times the total, per chosen position, and its surprisal."""
    n = probability.shape[2]
    token = np.empty(at.shape[0], dtype=np.int64)
    surprisal = np.empty(at.shape[0])
    for k in range(at.shape[0]):
        total = 0.0
        for s in range(n):
            total += probability[at[k], position[k], s]
        target = u[k] * total
        cumulative = 0.0
        for s in range(n):
            p = probability[at[k], position[k], s]
            if p > 0.0:
                token[k] = s
                surprisal[k] = -np.log(p)
                cumulative += p
                if cumulative > target:
                    break
    return token, surprisal
