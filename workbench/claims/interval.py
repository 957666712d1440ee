"""99 % intervals of claims, each over independent replicates: Student's t of paired seeds, a jackknife, a paired bootstrap."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.special import betaincinv, stdtrit

from workbench.claims.claim import Measured
from workbench.signals import FloatArray, IntArray

CONFIDENCE = 0.99
MIN_REPLICATES = 3
NUM_RESAMPLES = 20000


def exact(value: float, method: str) -> Measured:
    return Measured(float(value), float(value), float(value), method)


def over_seeds(values: FloatArray, transform: Callable[[float], float] = float) -> Measured:
    """mean +- t(K - 1) sd / sqrt K of independent replicates, carried through a monotone `transform`.

    Fewer than three replicates give an interval without ends.
    """
    x = np.asarray(values, dtype=np.float64)
    center, n = float(x.mean()), x.size
    if n < MIN_REPLICATES or not np.isfinite(x).all():
        return Measured(transform(center) if math.isfinite(center) else 0.0, -math.inf, math.inf, "too few seeds", n)
    half = float(stdtrit(n - 1, 0.5 + CONFIDENCE / 2)) * float(x.std(ddof=1)) / math.sqrt(n)
    ends = sorted((transform(center - half), transform(center + half)))
    return Measured(transform(center), ends[0], ends[1], f"t over {n} paired seeds", n)


def bootstrap(statistic: Callable[[FloatArray], FloatArray], num_units: int, seed: int) -> Measured:
    """Percentile bootstrap over units. `statistic` maps weights [resamples, units] (rows of counts) to [resamples]."""
    generator = np.random.default_rng(seed)
    counts = generator.multinomial(num_units, np.full(num_units, 1.0 / num_units), NUM_RESAMPLES).astype(np.float64)
    drawn = statistic(counts)
    low, high = np.quantile(drawn[np.isfinite(drawn)], [0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2])
    value = float(statistic(np.ones((1, num_units)))[0])
    return Measured(value, float(low), float(high), f"paired bootstrap over {num_units} questions", num_units)


def jackknife(statistic: Callable[[IntArray], float], num_units: int, what: str) -> Measured:
    """t interval of the pseudo-values n s - (n - 1) s_without_i of a smooth statistic of a set of units, given as indices.

    For few units, where a percentile bootstrap is too narrow. Source: Tukey 1958.
    """
    everyone = np.arange(num_units)
    whole = statistic(everyone)
    parts = np.array([statistic(np.delete(everyone, i)) for i in everyone])
    found = over_seeds(num_units * whole - (num_units - 1) * parts)
    return replace(found, value=whole, method=f"jackknife over {num_units} {what}")


def share_difference(lost: int, gained: int, total: int, what: str) -> Measured:
    """(lost - gained) / total of paired yes-or-no outcomes: each share by Clopper and Pearson at 99.5 %, so 99 % together.

    Has width where no pair differs, which a bootstrap has not.
    """
    ends = []
    tail = (1.0 - CONFIDENCE) / 4.0
    for count in (lost, gained):
        low = 0.0 if count == 0 else float(betaincinv(count, total - count + 1, tail))
        high = 1.0 if count == total else float(betaincinv(count + 1, total - count, 1.0 - tail))
        ends.append((low, high))
    method = f"exact, {total} paired {what}"
    return Measured((lost - gained) / total, ends[0][0] - ends[1][1], ends[0][1] - ends[1][0], method, total)
