"""One figure and why it may be missing: a value, an interval with its method, or a reason. Never NaN.

Place in the data path: record -> metrics -> report. Everything in `workbench.metrics` is a pure function of records.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

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


def plain(value: Any) -> Any:
    """`value` in the types strict JSON knows: dataclasses and mappings become objects, NaN and infinity become null."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int | bool):
        return value
    return str(value)


def strict_json(value: Any, indent: int | None = None) -> str:
    """JSON that a parser rejecting NaN and Infinity reads; ASCII only, so that any terminal can print it."""
    return json.dumps(plain(value), allow_nan=False, indent=indent)
