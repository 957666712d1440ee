"""How many output tokens a request still has before it, predicted from the trend of its entropy.

    ln R = ln prior[kind] + b_level (fast - level0) + b_trend (fast - slow) + b_age ln(1 + g / prior[kind])

fast and slow are running means of H_raw with weights `fast_weight` > `slow_weight`, g the tokens generated so far.
Before the first measurement R is the prior. Whether entropy says anything about length is an empirical question: `fitted`
returns coefficients for recorded traces, and `explained` the share of the variance of ln R they explain there.
Source: ours.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numba import njit

from workbench.errors import InputError
from workbench.protocols import OrderObservation
from workbench.signals import FloatArray


@dataclass(frozen=True)
class TrendState:
    fast_nats: FloatArray  # [capacity] NaN before the first measurement
    slow_nats: FloatArray  # [capacity]


@dataclass(frozen=True, kw_only=True)
class EntropyTrend:
    """Predictor of remaining output tokens, in [1, `tokens_max`]. Raises InputError for numbers outside their range."""

    prior_tokens: tuple[float, ...] = (200.0,)
    level_nats: float = 1.5
    b_level: float = 0.0
    b_trend: float = 0.0
    b_age: float = 0.0
    fast_weight: float = 0.2
    slow_weight: float = 0.02
    tokens_max: float = 100_000.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior_tokens", tuple(float(x) for x in self.prior_tokens))
        if not self.prior_tokens or not all(1.0 <= x < np.inf for x in self.prior_tokens):
            raise InputError(f"EntropyTrend.prior_tokens needs a value of at least 1, got {list(self.prior_tokens)}")
        if not 0.0 < self.slow_weight < self.fast_weight <= 1.0:
            raise InputError(
                "EntropyTrend needs 0 < slow_weight < fast_weight <= 1, "
                f"got {self.slow_weight:g} and {self.fast_weight:g}"
            )
        for name in ("level_nats", "b_level", "b_trend", "b_age"):
            if not np.isfinite(getattr(self, name)):
                raise InputError(f"EntropyTrend.{name} must be finite, got {getattr(self, name):g}")
        if not 1.0 <= self.tokens_max < np.inf:
            raise InputError(f"EntropyTrend.tokens_max must be in [1, inf), got {self.tokens_max:g}")

    @cached_property
    def _prior(self) -> FloatArray:
        return np.array(self.prior_tokens)

    def init(self, capacity: int) -> TrendState:
        return TrendState(np.full(capacity, np.nan), np.full(capacity, np.nan))

    def step(self, state: TrendState, observation: OrderObservation) -> tuple[TrendState, FloatArray]:
        """New state and predicted remaining tokens [num_slots], NaN on inactive rows."""
        new = TrendState(state.fast_nats.copy(), state.slow_nats.copy())
        remaining = _predict(
            observation.active,
            observation.joined,
            observation.measured,
            observation.entropy_raw_nats,
            observation.generated_tokens,
            observation.kind,
            new.fast_nats,
            new.slow_nats,
            self._prior,
            self.level_nats,
            self.b_level,
            self.b_trend,
            self.b_age,
            self.fast_weight,
            self.slow_weight,
            self.tokens_max,
        )
        return new, remaining

    def _rows(self, traces_nats: Sequence[FloatArray], kinds: Sequence[int]) -> tuple[FloatArray, FloatArray]:
        """Features [rows, 3] and ln(R / prior) [rows] at every token of traces that ran to their own end."""
        features, outcome = [], []
        for trace, kind in zip(traces_nats, kinds, strict=True):
            prior = self.prior_tokens[min(max(kind, 0), len(self.prior_tokens) - 1)]
            fast = slow = math.nan
            for k, h in enumerate(trace[:-1]):
                if math.isfinite(h):
                    fast = h if math.isnan(fast) else fast + self.fast_weight * (h - fast)
                    slow = h if math.isnan(slow) else slow + self.slow_weight * (h - slow)
                if math.isfinite(fast):
                    features.append((fast - self.level_nats, fast - slow, math.log1p((k + 1) / prior)))
                    outcome.append(math.log((len(trace) - 1 - k) / prior))
        return np.array(features), np.array(outcome)

    def fitted(self, traces_nats: Sequence[FloatArray], kinds: Sequence[int]) -> "EntropyTrend":
        """Least squares on recorded complete traces [tokens]; the priors stay as they are."""
        features, outcome = self._rows(traces_nats, kinds)
        if outcome.size < 10:
            raise InputError("EntropyTrend.fitted needs at least 10 tokens of complete traces, give more")
        b = np.linalg.lstsq(features, outcome, rcond=None)[0]
        return replace(self, b_level=float(b[0]), b_trend=float(b[1]), b_age=float(b[2]))

    def explained(self, traces_nats: Sequence[FloatArray], kinds: Sequence[int]) -> float:
        """1 - (mean squared error of ln R) / (variance of ln R) on these traces; at most 1, below 0 is worse than a mean."""
        features, outcome = self._rows(traces_nats, kinds)
        error = outcome - features @ np.array([self.b_level, self.b_trend, self.b_age])
        return float(1.0 - np.mean(error**2) / np.var(outcome))


@njit(cache=True)
def _predict(
    active,
    joined,
    measured,
    entropy,
    generated,
    kind,
    fast,
    slow,
    prior,
    level,
    b_level,
    b_trend,
    b_age,
    fast_weight,
    slow_weight,
    tokens_max,
):
    remaining = np.full(active.shape[0], np.nan)
    for i in range(active.shape[0]):
        if not active[i]:
            continue
        if joined[i]:
            fast[i] = np.nan
            slow[i] = np.nan
        if measured[i] and math.isfinite(entropy[i]):
            if math.isfinite(fast[i]):
                fast[i] += fast_weight * (entropy[i] - fast[i])
                slow[i] += slow_weight * (entropy[i] - slow[i])
            else:
                fast[i] = entropy[i]
                slow[i] = entropy[i]
        expected = prior[min(max(kind[i], 0), prior.shape[0] - 1)]
        log_ratio = b_age * math.log1p(max(generated[i], 0) / expected)
        if math.isfinite(fast[i]):
            log_ratio += b_level * (fast[i] - level) + b_trend * (fast[i] - slow[i])
        remaining[i] = min(max(expected * math.exp(min(max(log_ratio, -50.0), 50.0)), 1.0), tokens_max)
    return remaining
