"""How far u = ln T can be from the token's own solution: the drift bound, token by token, and where it says anything.

    e_k = u_k - u*_k,   d_k = u*_{k+1} - u*_k,   |e_{k+1}| <= rho_k |e_k| + |d_k|,
    rho_k = max(|1 - k_i V_lo|, |1 - k_i V_hi|) with V of token k in [V_lo, V_hi] on the clamp,

u*_k the clamped solution of H(u) = H*. A token with V_lo near zero has rho_k near 1: it forgets nothing, and the bound
only grows there. `covered_frac` is the share of tokens with V_lo at or above a floor; `uniform_bound`, the textbook
sup|d|/(1 - rho), exists only when that share is 1. Certificate: `drift-bound`.
"""

from dataclasses import dataclass

import numpy as np

from workbench.errors import InputError
from workbench.signals import FloatArray, entropy_and_varentropy


@dataclass(frozen=True)
class TokenRange:
    """What the clamp allows for each token [K]: the solution and the extremes of V on a grid of u."""

    log_temperature_solution: FloatArray
    varentropy_low_nats2: FloatArray
    varentropy_high_nats2: FloatArray


@dataclass(frozen=True)
class DriftBound:
    """`bound` [K + 1] on |e_k|, never more than the clamp's width; `rho` [K]."""

    bound: FloatArray
    rho: FloatArray
    covered_frac: float
    uniform_bound: float | None


def token_ranges(
    logits: FloatArray, target_nats: float, log_temperature_min: float, log_temperature_max: float, num_grid: int = 33
) -> TokenRange:
    """logits [K, n], one row a token. H rises with u, so the solution is found by bisection; V by a grid of `num_grid`."""
    if not log_temperature_min < log_temperature_max:
        raise InputError("the clamp needs log_temperature_min < log_temperature_max; give ln T_min and ln T_max")
    z = np.atleast_2d(np.asarray(logits, dtype=np.float64))
    grid = np.linspace(log_temperature_min, log_temperature_max, num_grid)
    varentropy = np.stack([entropy_and_varentropy(z, float(np.exp(u)))[1] for u in grid])
    low = np.full(z.shape[0], log_temperature_min)
    high = np.full(z.shape[0], log_temperature_max)
    for _ in range(50):
        middle = 0.5 * (low + high)
        below = entropy_and_varentropy(z, np.exp(middle))[0] < target_nats
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return TokenRange(0.5 * (low + high), varentropy.min(axis=0), varentropy.max(axis=0))


def drift_bound(
    tokens: TokenRange, k_i: float, clamp_width: float, start_error: float | None = None, floor_nats2: float = 0.1
) -> DriftBound:
    """The recursion above. `start_error` defaults to the clamp's width: nothing known at the start."""
    if k_i <= 0.0 or clamp_width <= 0.0:
        raise InputError(f"k_i and clamp_width must be above 0, got {k_i:g} and {clamp_width:g}")
    low, high = tokens.varentropy_low_nats2, tokens.varentropy_high_nats2
    rho = np.maximum(np.abs(1.0 - k_i * low), np.abs(1.0 - k_i * high))
    drift = np.abs(np.diff(tokens.log_temperature_solution, append=tokens.log_temperature_solution[-1:]))
    bound = np.empty(rho.size + 1)
    bound[0] = clamp_width if start_error is None else abs(start_error)
    for k in range(rho.size):
        bound[k + 1] = min(rho[k] * bound[k] + drift[k], clamp_width)
    covered = low >= floor_nats2
    worst = float(rho.max(initial=0.0))
    uniform = float(drift.max() / (1.0 - worst)) if covered.all() and worst < 1.0 and drift.size else None
    return DriftBound(bound, rho, float(covered.mean()) if covered.size else 0.0, uniform)
