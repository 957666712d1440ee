"""Intervals, two-sided 95 %, with the method stated beside each.

    over seeds      mean +- t(K - 1) sd / sqrt K                    K >= 3 independent seeds
    batch means     full +- t(n - 1) sqrt(sum (y_b - full)^2 / (n - 1) / n)   n consecutive batches within runs

Requests of one run are not independent (they share a queue), so a within-run interval never uses them one by one: it
cuts the run into consecutive batches and compares batch values with the value of the whole run, which also
serves ratios and quantiles. Batches of a short run are correlated, so such an interval is optimistic by an unknown
amount; intervals over seeds are not.
Source: sectioning as in Asmussen and Glynn, Stochastic Simulation, III.5; the choice of 3 seeds and 20 batches ours.

    relative change R - 1 with R = mean y / mean x, paired replicates (y_k, x_k):
    variance of R = var(y - R x) / (K mean(x)^2)                    the ratio estimator
"""

import math

import numpy as np
from scipy.special import stdtrit

from workbench.metrics.figure import Figure
from workbench.signals import FloatArray

CONFIDENCE = 0.95
MIN_SEEDS = 3
MAX_BATCHES = 20
MIN_BATCHES = 4
MIN_BATCH_REQUESTS = 4


def t_half_width(residual: FloatArray, fitted_mean: bool) -> float:
    """Half width of the interval of a mean whose replicates scatter by `residual` (about 0)."""
    n = residual.shape[0]
    centred = residual - residual.mean() if fitted_mean else residual
    variance = float((centred**2).sum()) / (n - 1)
    return float(stdtrit(n - 1, 0.5 + CONFIDENCE / 2)) * math.sqrt(variance / n)


def num_batches(num_requests: int) -> int:
    """Batches a run of that many requests is cut into; 0 where it is too short to say anything."""
    count = min(MAX_BATCHES, num_requests // MIN_BATCH_REQUESTS)
    return count if count >= MIN_BATCHES else 0


def interval(seed_values: FloatArray, batch_values: FloatArray, undefined_reason: str | None) -> Figure:
    """`Figure` of one metric of one arm.

    seed_values: [seeds]; batch_values: [seeds, batches], may have no batches. NaN: undefined there.
    """
    known = ~np.isnan(seed_values)
    if not known.any():
        return Figure(None, reason=undefined_reason or "not defined")
    center = float(seed_values[known].mean())
    missing = int((~known).sum())
    remark = f"undefined in {missing} of {known.size} seeds: {undefined_reason}" if missing else None
    if known.sum() >= MIN_SEEDS:
        half = t_half_width(seed_values[known] - center, fitted_mean=True)
        return Figure(center, center - half, center + half, f"t, {known.sum()} seeds", int(known.sum()), remark)
    residual = (batch_values - seed_values[:, None])[known].ravel()
    residual = residual[~np.isnan(residual)]
    if residual.size < MIN_BATCHES:
        return Figure(center, num_replicates=int(known.sum()), reason=remark or "too few requests for an interval")
    half = t_half_width(residual, fitted_mean=False)
    return Figure(center, center - half, center + half, f"batch means, {residual.size} batches", residual.size, remark)


def contrast_interval(seed_values: FloatArray, batch_values: FloatArray, weights: FloatArray) -> Figure:
    """Interval of sum_a weights[a] y[a] over paired arms. seed_values: [arms, seeds]; batch_values: [arms, seeds, batches]."""
    return interval(
        np.tensordot(weights, seed_values, 1), np.tensordot(weights, batch_values, 1), "an arm has no value"
    )


def relative_interval(seed_values: FloatArray, batch_values: FloatArray, weights: FloatArray) -> Figure:
    """As `contrast_interval`, as a share of arm 0's mean; the ratio estimator carries the denominator's scatter too."""
    known = ~np.isnan(seed_values).any(axis=0)
    if not known.any():
        return Figure(None, reason="an arm has no value")
    base = float(seed_values[0, known].mean())
    if base == 0.0:
        return Figure(None, reason="the baseline is zero")
    change = float((weights @ seed_values[:, known]).mean()) / base
    adjusted = weights.copy()
    adjusted[0] -= change
    seeds = np.where(known, adjusted @ np.nan_to_num(seed_values), np.nan)
    found = interval(seeds, np.tensordot(adjusted, batch_values, 1), None)
    if found.low is None or found.high is None:
        return Figure(change, method=found.method, num_replicates=found.num_replicates, reason=found.reason)
    half = 0.5 * (found.high - found.low) / abs(base)
    sign = math.copysign(1.0, base)
    change *= sign
    return Figure(change, change - half, change + half, found.method, found.num_replicates, found.reason)
