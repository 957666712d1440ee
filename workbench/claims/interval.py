"""99 % intervals of claims, each over independent replicates: Student's t of paired seeds, or a paired bootstrap."""

import math
from collections.abc import Callable

import numpy as np
from scipy.special import stdtrit

from workbench.claims.claim import Measured
from workbench.signals import FloatArray

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
