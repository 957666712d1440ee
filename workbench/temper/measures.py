"""What is read off a run of a temperature law: pure functions of arrays [prompts, tokens].

Entropy is tempered and measured before truncation. Settling and overshoot belong to a step of H* at token `step_token`:
take the ensemble over prompts of the 16-token trailing mean of H; it is settled once it stays within 0.25 nats of its
last-64 mean, and overshoots by what it runs beyond that mean in the direction of the step. A law that does nothing
settles at once, so the distance of the last-64 mean from H* always stands beside it.
Intervals are percentile bootstrap intervals over prompts, 95 %.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from workbench.signals import FloatArray, IntArray

WINDOW_TOKENS, LAST_TOKENS, BAND_NATS = 16, 64, 0.25
NUM_RESAMPLES = 2000


@dataclass(frozen=True)
class Estimate:
    value: float
    low: float
    high: float


def trailing_mean(entropy_nats: FloatArray, window: int = WINDOW_TOKENS) -> FloatArray:
    """Mean over prompts and the last `window` tokens (fewer at the start) [tokens]."""
    mean = np.nanmean(entropy_nats, axis=0)
    total = np.concatenate([[0.0], np.cumsum(mean)])
    end = np.arange(1, mean.size + 1)
    start = np.maximum(end - window, 0)
    return (total[end] - total[start]) / (end - start)


@dataclass(frozen=True)
class StepResponse:
    settle_tokens: float  # NaN: never
    overshoot_nats: float
    final_error_nats: float  # last-64 mean minus H*


def step_response(entropy_nats: FloatArray, step_token: int, before_nats: float, after_nats: float) -> StepResponse:
    """Of the ensemble, for H* = `before_nats` up to `step_token` and `after_nats` from there."""
    curve = trailing_mean(entropy_nats)
    last = min(LAST_TOKENS, curve.size - step_token)
    final = float(np.nanmean(entropy_nats[:, -last:]))
    tail = curve[step_token:]
    outside = np.flatnonzero(np.abs(tail - final) > BAND_NATS)
    settle = 0.0 if outside.size == 0 else float(outside[-1] + 1)
    direction = 1.0 if after_nats >= before_nats else -1.0
    # Before the step arrives the curve is on the other side of the final value, so only the far side counts.
    overshoot = float(max(0.0, np.max(direction * (tail - final))))
    return StepResponse(settle if settle < tail.size else np.nan, overshoot, final - after_nats)


def tracking_nats(entropy_nats: FloatArray, target_nats: float) -> FloatArray:
    """Mean |H - H*| of each prompt [prompts]."""
    return np.nanmean(np.abs(entropy_nats - target_nats), axis=1)


def variation_nats(entropy_nats: FloatArray) -> FloatArray:
    """Total variation of H per token [prompts]."""
    return np.nanmean(np.abs(np.diff(entropy_nats, axis=1)), axis=1)


def drift_nats(entropy_nats: FloatArray) -> FloatArray:
    """Least-squares slope of H in nats per 100 tokens [prompts]."""
    k = np.arange(entropy_nats.shape[1], dtype=np.float64)
    centred = k - k.mean()
    return 100.0 * (entropy_nats - np.nanmean(entropy_nats, axis=1, keepdims=True)) @ centred / (centred @ centred)


def distinct_3(token_ids: IntArray) -> FloatArray:
    """Share of different trigrams among all trigrams of each text [prompts]."""
    shares = []
    for ids in token_ids:
        trigrams = list(zip(ids[:-2], ids[1:-1], ids[2:], strict=True))
        shares.append(len(set(trigrams)) / len(trigrams))
    return np.array(shares)


def bootstrap_indices(num_prompts: int, seed: int = 0) -> IntArray:
    """[resamples, prompts], the same for every figure of a study, so that differences are paired."""
    return np.random.default_rng(seed).integers(0, num_prompts, (NUM_RESAMPLES, num_prompts))


def interval(value: float, resampled: Sequence[float] | FloatArray) -> Estimate:
    known = np.asarray(resampled, dtype=np.float64)
    known = known[np.isfinite(known)]
    if known.size == 0:
        return Estimate(value, np.nan, np.nan)
    low, high = np.quantile(known, [0.025, 0.975])
    return Estimate(value, float(low), float(high))


def mean_interval(per_prompt: FloatArray, indices: IntArray) -> Estimate:
    return interval(float(per_prompt.mean()), per_prompt[indices].mean(axis=1))


def spread_interval(per_prompt: FloatArray, indices: IntArray) -> Estimate:
    """Standard deviation between prompts."""
    return interval(float(per_prompt.std(ddof=1)), per_prompt[indices].std(axis=1, ddof=1))


def whole_interval(statistic: Callable[[IntArray], float], indices: IntArray, resamples: int = 400) -> Estimate:
    """Of any statistic of a set of prompts, given as their indices."""
    everyone = np.arange(indices.shape[1])
    return interval(statistic(everyone), [statistic(chosen) for chosen in indices[:resamples]])


@dataclass(frozen=True)
class ConstantGrid:
    """Runs at constant temperatures, rising: what a constant T gives, by interpolation in u = ln T."""

    log_temperature: FloatArray  # [grid]
    entropy_nats: FloatArray  # [grid, prompts] mean H of each text

    def matched(self, entropy_nats: FloatArray, chosen: IntArray) -> float:
        """ln T of the constant with the same mean H over the chosen prompts; NaN outside the grid."""
        curve = np.maximum.accumulate(self.entropy_nats[:, chosen].mean(axis=1))
        mean = float(entropy_nats[chosen].mean())
        if not curve[0] <= mean <= curve[-1]:
            return np.nan
        return float(np.interp(mean, curve, self.log_temperature))

    def difference(
        self, law_values: FloatArray, grid_values: FloatArray, law_entropy_nats: FloatArray, indices: IntArray
    ) -> Estimate:
        """Law minus matched constant, of a per-prompt figure: values [prompts], grid_values [grid, prompts]."""

        def one(chosen: IntArray) -> float:
            u = self.matched(law_entropy_nats, chosen)
            if np.isnan(u):
                return np.nan
            constant = np.interp(u, self.log_temperature, grid_values[:, chosen].mean(axis=1))
            return float(law_values[chosen].mean() - constant)

        return whole_interval(one, indices)

    def spread_difference(self, law_values: FloatArray, law_entropy_nats: FloatArray, indices: IntArray) -> Estimate:
        """Law minus matched constant, of the standard deviation of mean H between prompts."""

        def one(chosen: IntArray) -> float:
            u = self.matched(law_entropy_nats, chosen)
            if np.isnan(u):
                return np.nan
            constant = np.interp(u, self.log_temperature, self.entropy_nats[:, chosen].std(axis=1, ddof=1))
            return float(law_values[chosen].std(ddof=1) - constant)

        return whole_interval(one, indices)
