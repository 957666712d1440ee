"""How far u = ln T can be from the token's own solution: the drift bound, token by token, and where it says anything.

    e_k = u_k - u*_k,   d_k = u*_{k+1} - u*_k,   |e_{k+1}| <= rho_k |e_k| + |d_k|,
    rho_k = max(|1 - k_i V_lo|, |1 - k_i V_hi|) with V of token k in [V_lo, V_hi] between u* - |e_k| and u* + |e_k|,

u*_k the clamped solution of H(u) = H*. A token with V_lo near zero has rho_k near 1: it forgets nothing, and the bound
only grows there. `covered_frac` is the share of tokens with V_lo at or above a floor; `uniform_bound`, the textbook
sup|d|/(1 - rho), exists only when that share is 1. Certificate: `drift-bound`; V is read off a grid of u here.
"""

from dataclasses import dataclass

import numpy as np

from workbench.errors import InputError
from workbench.signals import FloatArray, entropy_and_varentropy


@dataclass(frozen=True)
class TokenRange:
    """What the clamp allows for each token: `log_temperature_solution` [K], and V [K, G] on a grid of u [G]."""

    log_temperature_solution: FloatArray
    grid: FloatArray
    varentropy_nats2: FloatArray


@dataclass(frozen=True)
class DriftBound:
    """`bound` [K + 1] on |e_k|, never more than the clamp's width; `rho` [K]."""

    bound: FloatArray
    rho: FloatArray
    covered_frac: float
    uniform_bound: float | None


def token_range(
    entropy_nats: FloatArray, varentropy_nats2: FloatArray, grid: FloatArray, target_nats: float
) -> TokenRange:
    """From H and V [K, G] on a rising grid of u [G] whose ends are the clamp. H rises with u, so it can be inverted."""
    if grid.size < 2 or np.any(np.diff(grid) <= 0.0):
        raise InputError("the grid of ln T must rise from ln T_min to ln T_max, with two points at least")
    solutions = np.array([np.interp(target_nats, row, grid) for row in entropy_nats])
    return TokenRange(solutions, grid, varentropy_nats2)


def ranges_of_logits(logits: FloatArray, target_nats: float, grid: FloatArray) -> TokenRange:
    """logits [K, n], one row a token."""
    found = [entropy_and_varentropy(np.atleast_2d(logits), float(np.exp(u))) for u in grid]
    return token_range(
        np.stack([h for h, _ in found], axis=1), np.stack([v for _, v in found], axis=1), grid, target_nats
    )


def drift_bound(
    tokens: TokenRange, k_i: float, start_error: float | None = None, floor_nats2: float = 0.1
) -> DriftBound:
    """The recursion above. `start_error` defaults to the clamp's width: nothing known at the start."""
    if k_i <= 0.0:
        raise InputError(f"k_i must be above 0, got {k_i:g}")
    width = float(tokens.grid[-1] - tokens.grid[0])
    count = tokens.log_temperature_solution.size
    drift = np.abs(np.diff(tokens.log_temperature_solution, append=tokens.log_temperature_solution[-1:]))
    bound, rho, low = np.empty(count + 1), np.empty(count), np.empty(count)
    bound[0] = width if start_error is None else min(abs(start_error), width)
    for k in range(count):
        center = tokens.log_temperature_solution[k]
        # one grid point beyond each end of the interval, so that the interval lies inside what is read
        first = max(np.searchsorted(tokens.grid, center - bound[k], side="right") - 1, 0)
        last = min(np.searchsorted(tokens.grid, center + bound[k], side="left") + 1, tokens.grid.size)
        between = tokens.varentropy_nats2[k, first:last]
        low[k] = between.min()
        rho[k] = max(abs(1.0 - k_i * low[k]), abs(1.0 - k_i * between.max()))
        bound[k + 1] = min(rho[k] * bound[k] + drift[k], width)
    covered = low >= floor_nats2
    worst = float(rho.max(initial=0.0))
    uniform = float(drift.max() / (1.0 - worst)) if count and covered.all() and worst < 1.0 else None
    return DriftBound(bound, rho, float(covered.mean()) if count else 0.0, uniform)
