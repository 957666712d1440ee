"""Latent shapes from recorded entropies: for each token the (gap, slope, curvature) whose H and V at several
temperatures come nearest to those measured on its logits.

Least squares over the temperatures T_j, V weighted by w = 0.3 because its scale is larger:

    sum_j (H(T_j) - H_j)^2 + w^2 (V(T_j) - V_j)^2

A grid gives the start, Levenberg-Marquardt the rest, gap, slope and curvature held at or above 0. What is left is reported
by `sims.calibrate`: it is the error of H(T) in the simulator.
Source: ours.
"""

import numpy as np
from numba import njit

from sims.latent_shapes import moments
from workbench.errors import InputError
from workbench.signals import FloatArray

VARENTROPY_WEIGHT = 0.3
GAPS = np.array([0.0, 0.1, 0.3, 0.7, 1.2, 2.0, 3.0, 4.5, 6.5, 9.0, 13.0])
SLOPES = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.3, 1.7, 2.3, 3.2, 4.5])
CURVATURES = np.array([0.0, 0.02, 0.06, 0.15, 0.3, 0.6])


def fit_shapes(
    entropy_nats: FloatArray, varentropy_nats2: FloatArray, temperatures: FloatArray, num_outcomes: int
) -> FloatArray:
    """[m, 3] shapes from [m, k] entropies and varentropies at k temperatures > 0. Rows with NaN give NaN."""
    h, v = np.asarray(entropy_nats, float), np.asarray(varentropy_nats2, float)
    t = np.asarray(temperatures, float)
    if h.shape != v.shape or h.ndim != 2 or h.shape[1] != t.shape[0]:
        raise InputError(f"entropies and varentropies must be [tokens, {t.shape[0]}], got {h.shape} and {v.shape}")
    if not np.all(t > 0.0):
        raise InputError(f"calibration temperatures must be above 0, got {t.tolist()}")
    grid = np.array(np.meshgrid(GAPS, SLOPES, CURVATURES, indexing="ij")).reshape(3, -1).T
    return _fit(h, v, t, num_outcomes, np.ascontiguousarray(grid), _curves(grid, t, num_outcomes))


@njit(cache=True)
def _curves(shapes: FloatArray, temperatures: FloatArray, num_outcomes: int) -> FloatArray:
    """[m, 2 k] H then weighted V at each temperature."""
    k = temperatures.shape[0]
    out = np.empty((shapes.shape[0], 2 * k))
    for i in range(shapes.shape[0]):
        for j in range(k):
            _, h, v = moments(shapes[i, 0], shapes[i, 1], shapes[i, 2], temperatures[j], num_outcomes)
            out[i, j], out[i, k + j] = h, VARENTROPY_WEIGHT * v
    return out


@njit(cache=True)
def _fit(
    h: FloatArray, v: FloatArray, temperatures: FloatArray, num_outcomes: int, grid: FloatArray, curves: FloatArray
) -> FloatArray:
    k = temperatures.shape[0]
    out = np.empty((h.shape[0], 3))
    wanted = np.empty(2 * k)
    for i in range(h.shape[0]):
        wanted[:k] = h[i]
        wanted[k:] = VARENTROPY_WEIGHT * v[i]
        if np.any(np.isnan(wanted)):
            out[i] = np.nan
            continue
        best, start = np.inf, 0
        for g in range(grid.shape[0]):
            miss = 0.0
            for j in range(2 * k):
                miss += (curves[g, j] - wanted[j]) ** 2
            if miss < best:
                best, start = miss, g
        out[i] = _polish(grid[start].copy(), wanted, temperatures, num_outcomes)
    return out


@njit(cache=True)
def _polish(shape: FloatArray, wanted: FloatArray, temperatures: FloatArray, num_outcomes: int) -> FloatArray:
    """Levenberg-Marquardt with a forward-difference Jacobian, clipped at 0."""
    points = np.empty((4, 3))
    damping = 1e-2
    error = np.inf
    for _ in range(25):
        points[:] = shape
        for p in range(3):
            points[p + 1, p] += 1e-5
        values = _curves(points, temperatures, num_outcomes)
        residual = wanted - values[0]
        error = (residual * residual).sum()
        if error < 1e-10:
            break
        jacobian = np.empty((wanted.shape[0], 3))
        for p in range(3):
            jacobian[:, p] = (values[p + 1] - values[0]) / 1e-5
        gram = jacobian.T @ jacobian
        improved = False
        for _ in range(6):
            system = gram.copy()
            for p in range(3):
                system[p, p] += damping * (gram[p, p] + 1e-9)
            trial = np.maximum(shape + np.linalg.solve(system, jacobian.T @ residual), 0.0)
            miss = wanted - _curves(trial.reshape(1, 3), temperatures, num_outcomes)[0]
            new = (miss * miss).sum()
            if new < error:
                improved = new < error * (1.0 - 1e-6)
                shape, error = trial, new
                damping = max(damping * 0.3, 1e-9)
                break
            damping *= 4.0
        if not improved:
            break
    return shape


def shape_errors(
    shapes: FloatArray, entropy_nats: FloatArray, temperatures: FloatArray, num_outcomes: int
) -> FloatArray:
    """[m, k] H(T_j) of the shapes minus what was measured."""
    k = len(temperatures)
    return _curves(np.ascontiguousarray(shapes), np.asarray(temperatures, float), num_outcomes)[:, :k] - entropy_nats
