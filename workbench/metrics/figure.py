"""One figure and why it may be missing: a value, an interval with its method, or a reason. Never NaN.

Place in the data path: record -> metrics -> report. Everything in `workbench.metrics` is a pure function of records.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Undefined:
    """A figure that does not exist, with the reason in words (nothing completed, no power model, ...)."""

    reason: str


Value = float | Undefined


@dataclass(frozen=True)
class Figure:
    """A value with a two-sided 95 % interval. `value` None means undefined and `reason` says why.

    `reason` beside a value is a remark: why there is no interval, or what the value hides.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    method: str = ""
    num_replicates: int = 0
    reason: str | None = None

    @property
    def covers_zero(self) -> bool | None:
        """Whether the interval covers zero; None without an interval."""
        if self.low is None or self.high is None:
            return None
        return self.low <= 0.0 <= self.high


def defined(value: float) -> Value:
    """`value` itself where finite, else `Undefined`: the last net under arithmetic on records."""
    return float(value) if math.isfinite(value) else Undefined("not finite")


def ratio(numerator: float, denominator: float, reason: str) -> Value:
    """numerator / denominator; `Undefined(reason)` where either is not finite or the denominator is not positive."""
    if not (math.isfinite(numerator) and math.isfinite(denominator)) or denominator <= 0.0:
        return Undefined(reason)
    return defined(numerator / denominator)


def mean(values: NDArray[np.float64], reason: str) -> Value:
    """Mean of the measured (non-NaN) values."""
    measured = values[~np.isnan(values)]
    return defined(float(measured.mean())) if measured.size else Undefined(reason)


def quantile(values: NDArray[np.float64], q: float, reason: str) -> Value:
    """q-quantile of the measured values, linear between order statistics (Hyndman and Fan's type 7)."""
    measured = values[~np.isnan(values)]
    return defined(float(np.quantile(measured, q))) if measured.size else Undefined(reason)
