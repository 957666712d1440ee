"""Critical values for V_sp that hold their size when the entropies of a trace depend on each other.

A smooth trace has a large V_sp by chance, so the critical value must grow with the trace's own autocorrelation. With R_i
the ranks of the entropies and r_i their residuals after a straight line in i,

    phi_hat = sum r_i r_{i+1} / sum r_i^2          `rank_autocorrelation`

and the null of "no trend" is rejected when |V_sp| > c_N(phi_hat). Both numbers read ranks only, so a monotone change of
the marginal distribution changes nothing. The curve c_N is found by simulation: start from the (1 - alpha) quantile of |V_sp|
at the phi whose mean phi_hat is the given one, then raise it, where the offending phi puts its phi_hat, until for
each phi in 0 .. `MAX_PHI` the rejection rate is below 0.93 alpha.
Source: ours. Block permutation with blocks of 8 has size 0.20 at phi = 0.9, so it is not used.
"""

from functools import lru_cache

import numpy as np

from controllers.routing.descriptors import average_ranks
from workbench.signals import BoolArray, FloatArray, IntArray

MAX_PHI = 0.95  # the null family: Gaussian-copula AR(1), 0 <= phi <= MAX_PHI; a random walk is beyond it
NULL_PHI = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.925, MAX_PHI)
PHI_HAT = np.linspace(-0.5, 1.0, 61)
LENGTH_STEP = 8  # a probe of N tokens uses the curve of the next lower multiple, which is never below the right one
NUM_TRACES = 8000


def ar1_traces(phi: float, num_traces: int, length: int, rng: np.random.Generator) -> FloatArray:
    """Stationary Gaussian AR(1) traces [num_traces, length] of variance 1: x_{i+1} = phi x_i + sqrt(1 - phi^2) e_i."""
    trace = rng.standard_normal((num_traces, length))
    scale = np.sqrt(1.0 - phi * phi)
    for i in range(1, length):
        trace[:, i] = phi * trace[:, i - 1] + scale * trace[:, i]
    return trace


def rank_autocorrelation(probe_entropy_nats: FloatArray, mask: BoolArray) -> FloatArray:
    """[rows] lag-1 autocorrelation phi_hat of the detrended ranks; 1 where nothing is left after the line."""
    count = np.maximum(mask.sum(axis=1), 1)[:, None]
    centre = 0.5 * (count + 1)
    rank = np.where(mask, average_ranks(probe_entropy_nats, mask) - centre, 0.0)
    index = np.where(mask, np.cumsum(mask, axis=1) - centre, 0.0)
    slope = (rank * index).sum(axis=1) / np.maximum((index**2).sum(axis=1), 1e-300)
    rest = rank - slope[:, None] * index
    pair = mask[:, 1:] & mask[:, :-1]
    product = np.where(pair, rest[:, 1:] * rest[:, :-1], 0.0).sum(axis=1)
    power = (rest**2).sum(axis=1)
    # Ranks are halves of integers: what is left of a perfect line is rounding.
    left = power > 1e-9 * count[:, 0] ** 3
    return np.where(left, product / np.where(left, power, 1.0), 1.0)


@lru_cache(maxsize=256)
def critical_values(num_tokens: int, false_route_rate: float, seed: int = 0) -> FloatArray:
    """The curve c_N on the grid `PHI_HAT`: non-decreasing, at most 1 (at 1 no trend can be told from chance)."""
    rng = np.random.default_rng((seed, num_tokens))
    everywhere = np.ones((NUM_TRACES, num_tokens), dtype=bool)
    index = np.arange(num_tokens) - 0.5 * (num_tokens - 1)
    strength, phi_hat = np.empty((2, len(NULL_PHI), NUM_TRACES))
    for k, phi in enumerate(NULL_PHI):
        trace = ar1_traces(phi, NUM_TRACES, num_tokens, rng)
        rank = average_ranks(trace, everywhere) - 0.5 * (num_tokens + 1)
        strength[k] = np.abs((rank * index).sum(axis=1) / (index**2).sum())
        phi_hat[k] = rank_autocorrelation(trace, everywhere)
    quantile = np.quantile(strength, 1.0 - false_route_rate, axis=1)
    curve = np.interp(PHI_HAT, np.maximum.accumulate(phi_hat.mean(axis=1)), np.maximum.accumulate(quantile))
    half = 0.5 * (PHI_HAT[1] - PHI_HAT[0])
    edges = np.append(PHI_HAT - half, PHI_HAT[-1] + half)
    where = np.stack([np.histogram(row, bins=edges)[0] for row in phi_hat]).astype(np.float64)
    where = where @ np.exp(-0.5 * ((PHI_HAT[:, None] - PHI_HAT) / 0.1) ** 2)
    where /= where.max(axis=1, keepdims=True)
    for _ in range(2000):
        size = (strength > np.interp(phi_hat, PHI_HAT, curve)).mean(axis=1)
        excess = np.maximum(size / false_route_rate - 0.9, 0.0)
        if excess.max() <= 0.03:
            break
        curve = np.minimum(1.0, np.maximum.accumulate(curve + 0.05 * (excess @ where) * (1.0 - curve)))
    curve.setflags(write=False)
    return curve


def critical_trend(num_measured: IntArray, phi_hat: FloatArray, false_route_rate: float, seed: int = 0) -> FloatArray:
    """[rows] the |V_sp| above which a trend is not chance; 1 (never reached from below) under `LENGTH_STEP` tokens."""
    result = np.ones(len(phi_hat))
    length = np.asarray(num_measured) // LENGTH_STEP * LENGTH_STEP
    for n in np.unique(length[length >= LENGTH_STEP]):
        rows = length == n
        result[rows] = np.interp(phi_hat[rows], PHI_HAT, critical_values(int(n), false_route_rate, seed))
    return result
