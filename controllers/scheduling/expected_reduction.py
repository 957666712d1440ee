"""How many nats the next token of a request is expected to take off its entropy: E[max(0, H_k - H_{k+1})].

An estimator is its own object, so that a scheduler can be tried with each: `init(capacity) -> state` and
`step(state, observation) -> (state, nats [num_slots])`. All of them read raw entropies, start afresh where a request
joins, skip missing measurements and return NaN until they know something (the scheduler then uses its prior for the
request's kind). In a scenario file: `estimator = {kind = "kalman", noise_variance_nats2 = 1.5}`.

    LastDrop   max(0, H_{k-1} - H_k)                              what the paper's words suggest; noisy
    Ewma       m + w (max(0, H_{k-1} - H_k) - m)                  the running mean of drops
    Kalman     E[max(0, D)], D ~ N(H_k - level, spread^2)         entropy is a wandering level plus noise

White noise around a level has large drops after peaks only, and the next value is expected at the level, not at the
last value: that is what `Kalman` uses. `Ewma.fitted` and `Kalman.fitted` take recorded traces.
Source: arXiv 2603.03310 names the quantity, not an estimator; the three are ours.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numba import njit
from pydantic import Field

from workbench.errors import InputError
from workbench.protocols import OrderObservation
from workbench.signals import FloatArray, IntArray


@dataclass(frozen=True)
class DropState:
    entropy_nats: FloatArray  # [capacity] last measured H_raw, NaN before the first
    drop_nats: FloatArray  # [capacity] the estimate, NaN before the second measurement


@dataclass(frozen=True, kw_only=True)
class Ewma:
    """m + w (max(0, H_{k-1} - H_k) - m), with the first drop as the first m. `weight` w in (0, 1]."""

    kind: Literal["ewma"] = "ewma"
    weight: float = 0.1

    def __post_init__(self) -> None:
        if not 0.0 < self.weight <= 1.0:
            raise InputError(f"Ewma.weight must be in (0, 1], got {self.weight:g}; 1 keeps only the last drop")

    @classmethod
    def fitted(cls, traces_nats: Sequence[FloatArray]) -> "Ewma":
        """The weight of least squared error of the next drop over recorded H_raw traces. Needs 10 values in all."""
        from scipy.optimize import minimize_scalar

        flat, starts = _joined_traces("Ewma", traces_nats)
        found: Any = minimize_scalar(
            lambda log_weight: _squared_error(flat, starts, math.exp(log_weight)), bounds=(-7.0, 0.0), method="bounded"
        )
        return cls(weight=math.exp(found.x))

    def init(self, capacity: int) -> DropState:
        return DropState(np.full(capacity, np.nan), np.full(capacity, np.nan))

    def step(self, state: DropState, observation: OrderObservation) -> tuple[DropState, FloatArray]:
        new = DropState(state.entropy_nats.copy(), state.drop_nats.copy())
        mean_drop(
            observation.active,
            observation.joined,
            observation.measured,
            observation.entropy_raw_nats,
            new.entropy_nats,
            new.drop_nats,
            self.weight,
        )
        return new, new.drop_nats


@dataclass(frozen=True, kw_only=True)
class LastDrop:
    """max(0, H_{k-1} - H_k) of the latest two measurements."""

    kind: Literal["last_drop"] = "last_drop"
    weight: ClassVar[float] = 1.0

    def init(self, capacity: int) -> DropState:
        return Ewma(weight=1.0).init(capacity)

    def step(self, state: DropState, observation: OrderObservation) -> tuple[DropState, FloatArray]:
        return _LAST_DROP.step(state, observation)


_LAST_DROP = Ewma(weight=1.0)


@dataclass(frozen=True)
class LevelState:
    entropy_nats: FloatArray  # [capacity] last measured H_raw, NaN before the first
    level_nats: FloatArray  # [capacity] filtered level
    variance_nats2: FloatArray  # [capacity] variance of the level


@dataclass(frozen=True, kw_only=True)
class Kalman:
    """Local level model: level+ = level + N(0, q), H = level + N(0, r).

    E[max(0, D)] = s phi(m/s) + m Phi(m/s), m = H_k - level, s^2 = variance + q + r: the drop from the last value to
    the next. Known from the first measurement on. q `level_variance_nats2`, r `noise_variance_nats2`, both above 0;
    the defaults are of the size seen on SmolLM2 text. Source: ours.
    """

    kind: Literal["kalman"] = "kalman"
    level_variance_nats2: float = 0.01
    noise_variance_nats2: float = 2.0

    def __post_init__(self) -> None:
        for name in ("level_variance_nats2", "noise_variance_nats2"):
            value = getattr(self, name)
            if not 0.0 < value < np.inf:
                raise InputError(f"Kalman.{name} must be in (0, inf), got {value:g}; fit it with Kalman.fitted")

    @classmethod
    def fitted(cls, traces_nats: Sequence[FloatArray]) -> "Kalman":
        """q and r by maximum likelihood over recorded H_raw traces (NaN gaps skipped). Needs 10 values in all."""
        from scipy.optimize import minimize

        flat, starts = _joined_traces("Kalman", traces_nats)
        scale = max(float(np.var(flat)), 1e-6)
        result = minimize(
            lambda logs: _negative_log_likelihood(flat, starts, scale * math.exp(logs[0]), scale * math.exp(logs[1])),
            x0=np.array([-4.0, -0.5]),
            method="Nelder-Mead",
            bounds=[(-14.0, 4.0), (-14.0, 4.0)],
        )
        q, r = scale * np.exp(result.x)
        return cls(level_variance_nats2=float(q), noise_variance_nats2=float(r))

    def init(self, capacity: int) -> LevelState:
        return LevelState(*(np.full(capacity, np.nan) for _ in range(3)))

    def step(self, state: LevelState, observation: OrderObservation) -> tuple[LevelState, FloatArray]:
        new = LevelState(state.entropy_nats.copy(), state.level_nats.copy(), state.variance_nats2.copy())
        expected = _expected_drop(
            observation.active,
            observation.joined,
            observation.measured,
            observation.entropy_raw_nats,
            new.entropy_nats,
            new.level_nats,
            new.variance_nats2,
            self.level_variance_nats2,
            self.noise_variance_nats2,
        )
        return new, expected


ReductionEstimator = Annotated[LastDrop | Ewma | Kalman, Field(discriminator="kind")]


def _joined_traces(name: str, traces_nats: Sequence[FloatArray]) -> tuple[FloatArray, IntArray]:
    """All measured values in one row, and where each trace begins (and the last one ends)."""
    traces = [trace[np.isfinite(trace)] for trace in traces_nats]
    traces = [trace for trace in traces if trace.size >= 2]
    if sum(trace.size for trace in traces) < 10:
        raise InputError(f"{name}.fitted needs at least 10 measured entropies, give longer traces")
    return np.concatenate(traces), np.cumsum([0, *(trace.size for trace in traces)])


@njit(cache=True)
def mean_drop(active, joined, measured, entropy, last, mean, weight):
    for i in range(active.shape[0]):
        if not active[i]:
            continue
        if joined[i]:
            last[i] = np.nan
            mean[i] = np.nan
        if measured[i] and math.isfinite(entropy[i]):
            if math.isfinite(last[i]):
                drop = max(0.0, last[i] - entropy[i])
                mean[i] = mean[i] + weight * (drop - mean[i]) if math.isfinite(mean[i]) else drop
            last[i] = entropy[i]


@njit(cache=True)
def _expected_drop(active, joined, measured, entropy, last, level, variance, q, r):
    expected = np.full(active.shape[0], np.nan)
    for i in range(active.shape[0]):
        if not active[i]:
            continue
        if joined[i]:
            last[i] = np.nan
        if measured[i] and math.isfinite(entropy[i]):
            if math.isfinite(last[i]):
                prior_variance = variance[i] + q
                share = prior_variance / (prior_variance + r)
                level[i] = level[i] + share * (entropy[i] - level[i])
                variance[i] = (1.0 - share) * prior_variance
            else:
                level[i] = entropy[i]
                variance[i] = r
            last[i] = entropy[i]
        if math.isfinite(last[i]):
            m = last[i] - level[i]
            s = math.sqrt(variance[i] + q + r)
            z = m / s
            density = math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
            expected[i] = max(0.0, s * density + m * 0.5 * math.erfc(-z / math.sqrt(2.0)))
    return expected


@njit(cache=True)
def _squared_error(flat, starts, weight):
    total = 0.0
    for t in range(starts.shape[0] - 1):
        mean = np.nan
        for k in range(starts[t] + 1, starts[t + 1]):
            drop = max(0.0, flat[k - 1] - flat[k])
            if math.isfinite(mean):
                total += (drop - mean) ** 2
                mean += weight * (drop - mean)
            else:
                mean = drop
    return total


@njit(cache=True)
def _negative_log_likelihood(flat, starts, q, r):
    total = 0.0
    for t in range(starts.shape[0] - 1):
        level = flat[starts[t]]
        variance = r
        for k in range(starts[t] + 1, starts[t + 1]):
            prior = variance + q
            s = prior + r
            error = flat[k] - level
            total += 0.5 * (math.log(s) + error * error / s)
            level += prior / s * error
            variance = prior * r / s
    return total
