"""The gain of the loop as measured on the model: inside a token, and from one token to the next.

Inside a token dH/du = V is a theorem; `gain_check` asks whether the numbers of this model and these kernels obey it. Between
tokens nothing is proven: a higher T draws rarer tokens, and those change the next logits. `outer_slope` measures that by
a seeded dither of u, independent of everything else, so that regression on it is causal.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kernels.philox import uniform
from workbench.errors import InputError
from workbench.protocols import Controller, DecisionPoint, SamplingAction, TemperatureObservation
from workbench.signals import FloatArray, IntArray, entropy_and_varentropy
from workbench.temper.measures import Estimate, bootstrap_indices, interval

STREAM = 7
MAX_LAG = 8


@dataclass(frozen=True)
class GainCheck:
    """(H(u + d) - H(u - d)) / 2 d against V(u) on recorded logits."""

    ratio: float  # of the sums over rows
    within_frac: float  # share of rows within 1 %
    worst: float  # largest relative difference of any row
    num_rows: int


def gain_check(logits: FloatArray, temperature: float = 1.0, half_step: float = 0.01) -> GainCheck:
    """logits: [rows, n]. Rows with V < 1e-6 nats^2 carry no information and are left out."""
    u = np.log(temperature)
    _, v = entropy_and_varentropy(logits, temperature)
    above, _ = entropy_and_varentropy(logits, np.exp(u + half_step))
    below, _ = entropy_and_varentropy(logits, np.exp(u - half_step))
    slope = (above - below) / (2.0 * half_step)
    known = v > 1e-6
    relative = np.abs(slope[known] / v[known] - 1.0)
    return GainCheck(
        ratio=float(slope[known].sum() / v[known].sum()),
        within_frac=float((relative <= 0.01).mean()),
        worst=float(relative.max()),
        num_rows=int(known.sum()),
    )


def dither_sign(seed: int, request_id: IntArray, token_index: IntArray) -> FloatArray:
    """+1 or -1, independent for every request and token, the same in every run with this seed."""
    return np.where(uniform(seed, STREAM, request_id, token_index) < 0.5, -1.0, 1.0)


@dataclass(frozen=True)
class Dithered:
    """u + amplitude s, s = +-1 drawn by request and token: an experiment, not a law.

    Source: ours; identification by a binary test signal as in Ljung, System Identification, chapter 13.
    """

    inner: Controller[TemperatureObservation, Any, SamplingAction]
    amplitude: float = 0.2
    seed: int = 0
    point: ClassVar[DecisionPoint] = DecisionPoint.TEMPERATURE

    def __post_init__(self) -> None:
        if not 0.0 < self.amplitude <= 1.0:
            raise InputError(f"Dithered.amplitude must be in (0, 1] nepers, got {self.amplitude:g}")

    def init(self, capacity: int) -> Any:
        return self.inner.init(capacity)

    def step(self, state: Any, observation: TemperatureObservation) -> tuple[Any, SamplingAction]:
        state, action = self.inner.step(state, observation)
        sign = dither_sign(self.seed, np.maximum(observation.request_id, 0), observation.token_index)
        return state, SamplingAction(temperature=action.temperature * np.exp(self.amplitude * sign))


@dataclass(frozen=True)
class OuterSlope:
    """Effect of u at token k, in nats of entropy per neper."""

    inner: Estimate  # on tempered H of token k itself: the mean varentropy
    mean_varentropy: float
    lags: tuple[Estimate, ...]  # on raw H of tokens k + 1 .. k + MAX_LAG
    total: Estimate  # sum over the lags


def outer_slope(
    entropy_nats: FloatArray, entropy_raw_nats: FloatArray, varentropy_nats2: FloatArray, sign: FloatArray, amplitude: float
) -> OuterSlope:  # fmt: skip
    """Arrays [prompts, tokens] of a dithered run. Intervals resample prompts."""
    indices = bootstrap_indices(sign.shape[0])

    def slope(response: FloatArray, cause: FloatArray) -> FloatArray:
        """Numerator and denominator of the regression through each prompt's mean [prompts, 2]."""
        s = cause - cause.mean(axis=1, keepdims=True)
        h = response - response.mean(axis=1, keepdims=True)
        return np.stack([(h * s).sum(axis=1), amplitude * (s * s).sum(axis=1)], axis=1)

    def estimate(parts: FloatArray) -> tuple[float, FloatArray]:
        sums = parts[indices].sum(axis=1)
        return float(parts[:, 0].sum() / parts[:, 1].sum()), sums[:, 0] / sums[:, 1]

    inner = interval(*estimate(slope(entropy_nats, sign)))
    lags, values, resampled = [], 0.0, np.zeros(indices.shape[0])
    for lag in range(1, MAX_LAG + 1):
        value, draws = estimate(slope(entropy_raw_nats[:, lag:], sign[:, :-lag]))
        lags.append(interval(value, draws))
        values, resampled = values + value, resampled + draws
    return OuterSlope(inner, float(varentropy_nats2.mean()), tuple(lags), interval(values, resampled))
