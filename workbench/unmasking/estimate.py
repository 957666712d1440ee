"""A mean with its interval, and nothing else."""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from workbench.signals import FloatArray


@dataclass(frozen=True)
class Estimate:
    """`mean` +- `half_width` at 95 %; 0 where the value is exact, NaN where one draw gives no spread."""

    mean: float
    half_width: float

    @property
    def low(self) -> float:
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        return self.mean + self.half_width

    def __str__(self) -> str:
        if self.half_width == 0.0 or np.isnan(self.half_width):
            return f"{self.mean:.4g}"
        return f"{self.mean:.4g} +- {self.half_width:.2g}"


def estimate(values: FloatArray) -> Estimate:
    """Mean of independent draws with Student's 95 % interval."""
    x = np.asarray(values, dtype=np.float64)
    if x.size < 2:
        return Estimate(float(x.mean()), float("nan"))
    spread = float(x.std(ddof=1))
    if spread <= 1e-13 * float(np.abs(x).max()):
        spread = 0.0  # equal draws, up to the rounding of their sum
    return Estimate(float(x.mean()), float(stats.t.ppf(0.975, x.size - 1) * spread / np.sqrt(x.size)))


def exact(value: float) -> Estimate:
    return Estimate(float(value), 0.0)
