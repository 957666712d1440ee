"""The three numbers of a probe: summed entropy, trend and roughness. First stop of the routing data path.

With H_i, i = 1 .. N, the raw entropies of a probe:

    S_H   sum_i H_i                                              `sum_nats`
    V_sp  Spearman's rank correlation of i and H_i               `trend`, in [-1, 1]; falling entropy gives V_sp < 0
    avnr  [sum_i (H_{i+1} - H_i)^2 / (N - 1)] / Var(H)           `avnr`, about 2 (1 - phi) for an AR(1) trace

Tied entropies share their average rank. Var(H) is the population variance (divisor N) in `avnr` and the sample variance
(divisor N - 1) in `avnr_sample`; the second equals the Durbin-Watson statistic of H - mean(H) and is smaller by the
factor (N - 1) / N. A change of unit scales S_H and leaves the other two alone.

Defined where a textbook is not: a non-finite entropy is a missing measurement and is left out (the trend ranks what is
left; a difference is taken only between two measured neighbours, and averaged over those). Fewer than 3 measured
tokens, or a constant trace, have no trend and no roughness: both are NaN. S_H of an empty probe is 0.
Source: EDRM (arXiv 2605.22873) for the three numbers; missing values, ties and short probes are ours.
"""

from dataclasses import dataclass

import numpy as np

from workbench.signals import BoolArray, FloatArray, IntArray

MIN_TREND_TOKENS = 3  # two points always correlate perfectly


@dataclass(frozen=True, kw_only=True)
class Descriptors:
    """One row per probe, shape [rows]."""

    num_measured: IntArray
    sum_nats: FloatArray  # S_H
    trend: FloatArray  # V_sp, NaN where undefined
    avnr: FloatArray  # population variance, NaN where undefined
    avnr_sample: FloatArray  # sample variance

    def features(self) -> FloatArray:
        """[rows, 3]: S_H, V_sp, avnr, with 0 for an undefined trend and 2 (white noise) for an undefined roughness."""
        return np.stack([self.sum_nats, np.nan_to_num(self.trend), np.nan_to_num(self.avnr, nan=2.0)], axis=-1)


def measured_tokens(probe_entropy_nats: FloatArray, num_tokens: IntArray) -> BoolArray:
    """[rows, length] which entries are real, finite measurements."""
    real = np.arange(probe_entropy_nats.shape[1]) < np.asarray(num_tokens)[:, None]
    return real & np.isfinite(probe_entropy_nats)


def average_ranks(values: FloatArray, mask: BoolArray) -> FloatArray:
    """[rows, length] ranks 1 .. count among the masked entries of each row, ties averaged; NaN where not masked."""
    rows, length = values.shape
    keyed = np.where(mask, values, np.nan)
    order = np.argsort(keyed, axis=1, kind="stable")  # NaN last
    ordered = np.take_along_axis(keyed, order, axis=1)
    index = np.broadcast_to(np.arange(length), (rows, length))
    new_group = np.ones((rows, length), dtype=bool)
    new_group[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first = np.maximum.accumulate(np.where(new_group, index, 0), axis=1)
    ends = np.ones((rows, length), dtype=bool)
    ends[:, :-1] = new_group[:, 1:]
    last = np.minimum.accumulate(np.where(ends, index, length)[:, ::-1], axis=1)[:, ::-1]
    ranks = np.empty((rows, length))
    np.put_along_axis(ranks, order, 0.5 * (first + last) + 1.0, axis=1)
    return np.where(mask, ranks, np.nan)


def describe(probe_entropy_nats: FloatArray, num_tokens: IntArray | None = None) -> Descriptors:
    """`Descriptors` of probes [rows, length] whose first `num_tokens` [rows] entries are real (default: all)."""
    h = np.atleast_2d(np.asarray(probe_entropy_nats, dtype=np.float64))
    rows, length = h.shape
    tokens = np.full(rows, length) if num_tokens is None else np.asarray(num_tokens)
    mask = measured_tokens(h, tokens)
    count = mask.sum(axis=1)
    value = np.where(mask, h, 0.0)
    total = value.sum(axis=1)

    constant = np.where(mask, h, -np.inf).max(axis=1, initial=-np.inf) == np.where(mask, h, np.inf).min(
        axis=1, initial=np.inf
    )
    defined = (count >= MIN_TREND_TOKENS) & ~constant
    n = np.maximum(count, 1)

    # Spearman: both rank vectors have mean (n + 1) / 2, so centring is exact in halves.
    centre = 0.5 * (n + 1)[:, None]
    rank_h = np.where(mask, average_ranks(h, mask) - centre, 0.0)
    rank_i = np.where(mask, np.cumsum(mask, axis=1) - centre, 0.0)
    spread = np.sqrt((rank_h**2).sum(axis=1) * (rank_i**2).sum(axis=1))
    trend = (rank_h * rank_i).sum(axis=1) / np.where(defined, spread, 1.0)

    pair = mask[:, 1:] & mask[:, :-1]
    square = np.where(pair, np.diff(value, axis=1), 0.0) ** 2
    num_pairs = pair.sum(axis=1)
    mean_square = square.sum(axis=1) / np.maximum(num_pairs, 1)
    deviation = np.where(mask, value - (total / n)[:, None], 0.0)
    variance = (deviation**2).sum(axis=1) / n
    rough = defined & (num_pairs > 0) & (variance > 0.0)
    avnr = np.where(rough, mean_square / np.where(rough, variance, 1.0), np.nan)
    return Descriptors(
        num_measured=count.astype(np.int64),
        sum_nats=total,
        trend=np.where(defined, np.clip(trend, -1.0, 1.0), np.nan),
        avnr=avnr,
        avnr_sample=avnr * (n - 1) / n,
    )
