"""Rules that end a running chain of thought: two controllers on the entropies of the thought so far.

They see a `ThoughtObservation` every few tokens and answer, per row, whether to stop thinking and give the answer now.

`EATStop`, entropy after the end-of-thought marker: let E_n be the entropy of the next token if the marker were appended now.
    m_n = (1 - a) m_{n-1} + a E_n        v_n = (1 - a) v_{n-1} + a (E_n - m_n)^2        v^_n = v_n / (1 - (1 - a)^n)
    stop when v^_n < `variance_nats2` for n >= `min_checks`
Source: EAT (arXiv 2509.26522). Deviates: a model without such a marker is asked with an answer cue instead.

`SlopeStop`: b_n is the least-squares slope of the last `window_tokens` raw token entropies (nats a token).
    stop when |b_n| < `slope_nats` for `patience` checks in a row: the entropy has stopped falling (or rising)
Source: ours.

`workbench/routing/early_stopping.py` runs either on recorded thoughts.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from workbench.errors import InputError
from workbench.protocols import DecisionPoint, Observation
from workbench.signals import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, kw_only=True)
class ThoughtObservation(Observation):
    """While a chain of thought runs. Arrays have shape [num_slots] unless said otherwise."""

    point = DecisionPoint.ROUTE
    thought_tokens: IntArray
    entropy_after_marker_nats: FloatArray  # E_n, NaN where it was not asked for
    recent_entropy_nats: FloatArray  # [num_slots, width] raw entropies, the newest last; NaN before the first


@dataclass(frozen=True, kw_only=True)
class StopAction:
    point = DecisionPoint.ROUTE
    stop: BoolArray


@dataclass(frozen=True)
class EATState:
    mean_nats: FloatArray
    variance_nats2: FloatArray
    num_checks: IntArray


@dataclass(frozen=True, kw_only=True)
class EATStop:
    point: ClassVar[DecisionPoint] = DecisionPoint.ROUTE
    smoothing: float = 0.2  # a
    variance_nats2: float = 0.01
    min_checks: int = 4

    def __post_init__(self) -> None:
        if not 0.0 < self.smoothing <= 1.0:
            raise InputError(f"EATStop.smoothing must be in (0, 1], got {self.smoothing!r}; try 0.2")
        if not self.variance_nats2 >= 0.0:
            raise InputError(f"EATStop.variance_nats2 must be at least 0, got {self.variance_nats2!r}; 0 never stops")
        if self.min_checks < 2:
            raise InputError(
                f"EATStop.min_checks must be at least 2, got {self.min_checks!r}; one value has no variance"
            )

    def init(self, capacity: int) -> EATState:
        return EATState(np.zeros(capacity), np.zeros(capacity), np.zeros(capacity, dtype=np.int64))

    def step(self, state: EATState, observation: ThoughtObservation) -> tuple[EATState, StopAction]:
        fresh = observation.joined & observation.active
        count = np.where(fresh, 0, state.num_checks)
        mean = np.where(fresh, 0.0, state.mean_nats)
        variance = np.where(fresh, 0.0, state.variance_nats2)
        value = observation.entropy_after_marker_nats
        use = observation.active & np.isfinite(value)
        value = np.where(use, value, 0.0)
        a = self.smoothing
        # The first value starts the mean: from 0 the start itself would count as variance.
        new_mean = np.where(count == 0, value, (1.0 - a) * mean + a * value)
        new_variance = (1.0 - a) * variance + a * (value - new_mean) ** 2
        mean = np.where(use, new_mean, mean)
        variance = np.where(use, new_variance, variance)
        count = count + use
        debiased = variance / np.where(count > 0, 1.0 - (1.0 - a) ** np.maximum(count, 1), 1.0)
        stop = use & (count >= self.min_checks) & (debiased < self.variance_nats2)
        return EATState(mean, variance, count), StopAction(stop=stop)


@dataclass(frozen=True)
class SlopeState:
    num_flat: IntArray


@dataclass(frozen=True, kw_only=True)
class SlopeStop:
    point: ClassVar[DecisionPoint] = DecisionPoint.ROUTE
    window_tokens: int = 32
    slope_nats: float = 0.005
    patience: int = 2

    def __post_init__(self) -> None:
        if self.window_tokens < 3:
            raise InputError(f"SlopeStop.window_tokens must be at least 3, got {self.window_tokens!r}; try 32")
        if not self.slope_nats >= 0.0:
            raise InputError(f"SlopeStop.slope_nats must be at least 0, got {self.slope_nats!r}; 0 never stops")
        if self.patience < 1:
            raise InputError(f"SlopeStop.patience must be at least 1, got {self.patience!r}")

    def init(self, capacity: int) -> SlopeState:
        return SlopeState(np.zeros(capacity, dtype=np.int64))

    def step(self, state: SlopeState, observation: ThoughtObservation) -> tuple[SlopeState, StopAction]:
        flat = np.where(observation.joined & observation.active, 0, state.num_flat)
        recent = observation.recent_entropy_nats[:, -self.window_tokens :]
        slope = trailing_slope(recent, self.window_tokens)
        measured = observation.active & np.isfinite(slope)
        with np.errstate(invalid="ignore"):
            is_flat = measured & (np.abs(slope) < self.slope_nats)
        flat = np.where(is_flat, flat + 1, np.where(measured, 0, flat))
        return replace(state, num_flat=flat), StopAction(stop=is_flat & (flat >= self.patience))


def trailing_slope(recent_nats: FloatArray, window_tokens: int) -> FloatArray:
    """[rows] least-squares slope of the measured entries; NaN where fewer than `window_tokens` are measured."""
    mask = np.isfinite(recent_nats)
    count = np.maximum(mask.sum(axis=1), 1)
    index = np.where(mask, np.arange(recent_nats.shape[1]), 0.0)
    centred = np.where(mask, index - (index.sum(axis=1) / count)[:, None], 0.0)
    value = np.where(mask, recent_nats, 0.0)
    spread = (centred**2).sum(axis=1)
    full = mask.sum(axis=1) >= window_tokens
    return np.where(full, (centred * value).sum(axis=1) / np.where(spread > 0.0, spread, 1.0), np.nan)
