"""What the three numbers can be when each entropy is known only to lie between two bounds.

A server that returns the top k log-probabilities brackets the entropy of each token, lower_i <= H_i <= upper_i. Then

    S_H   lies in [sum lower, sum upper]                                                            exact
    V_sp  rank R_i lies between 1 + #{j: upper_j < lower_i} and N - #{j: lower_j > upper_i}; sum_i i R_i is largest
          over these boxes with sum R = N (N + 1) / 2 by filling the latest positions first          outer bound
    avnr  extreme squared steps over extreme variances, each taken by itself                        outer bound

Ties need no case of their own: breaking ties in favour of a trend never weakens it. `certain_strategy` says which
strategy a `HeuristicRouter` must take whatever the true entropies are, or None when the bracket leaves it open.
Source: ours.
"""

from dataclasses import dataclass

import numpy as np

from controllers.routing.heuristic import HeuristicRouter
from workbench.errors import InputError
from workbench.protocols import Strategy
from workbench.signals import FloatArray


@dataclass(frozen=True, kw_only=True)
class DescriptorBracket:
    """(lower, upper) of each number for one probe; NaN where the number is undefined."""

    num_measured: int
    sum_nats: tuple[float, float]
    trend: tuple[float, float]
    avnr: tuple[float, float]


def bracket(lower_nats: FloatArray, upper_nats: FloatArray) -> DescriptorBracket:
    """`DescriptorBracket` of one probe, arrays [N]; a token with a non-finite bound is left out."""
    low, high = np.asarray(lower_nats, dtype=np.float64), np.asarray(upper_nats, dtype=np.float64)
    keep = np.isfinite(low) & np.isfinite(high)
    low, high = low[keep], high[keep]
    if np.any(low > high):
        at = int(np.flatnonzero(low > high)[0])
        raise InputError(f"entropy bracket {at} has lower {low[at]:g} above upper {high[at]:g}; swap the bounds")
    n = low.size
    sums = (float(low.sum()), float(high.sum()))
    if n < 3:
        return DescriptorBracket(num_measured=n, sum_nats=sums, trend=(np.nan, np.nan), avnr=(np.nan, np.nan))
    rank_low = 1.0 + (high[None, :] < low[:, None]).sum(axis=1)
    rank_high = n - (low[None, :] > high[:, None]).sum(axis=1)
    index = np.arange(1.0, n + 1.0) - 0.5 * (n + 1.0)
    trend = (-_largest_trend(rank_low, rank_high, -index), _largest_trend(rank_low, rank_high, index))

    step_low = np.maximum(0.0, np.maximum(low[1:] - high[:-1], low[:-1] - high[1:]))
    step_high = np.maximum(high[1:] - low[:-1], high[:-1] - low[1:])
    # Whatever the common centre c, Var(H) <= mean (H - c)^2; and Var(H) >= min over c of mean distance^2 to the interval.
    centres = np.linspace(low.min(), high.max(), 257)[:, None]
    far = np.maximum(high - centres, centres - low)
    near = np.maximum(0.0, np.maximum(low - centres, centres - high))
    spacing = float(centres[1, 0] - centres[0, 0])
    variance_high = float((far**2).mean(axis=1).min())
    variance_low = max(0.0, float(np.sqrt((near**2).mean(axis=1)).min()) - spacing) ** 2
    avnr_high = float((step_high**2).mean()) / variance_low if variance_low > 0.0 else np.inf
    avnr_low = float((step_low**2).mean()) / variance_high if variance_high > 0.0 else 0.0
    return DescriptorBracket(
        num_measured=n, sum_nats=sums, trend=trend, avnr=(avnr_low, min(avnr_high, 4.0 * n / (n - 1)))
    )


def _largest_trend(rank_low: FloatArray, rank_high: FloatArray, index: FloatArray) -> float:
    """Largest sum index_i R_i over the rank boxes with the sum of ranks fixed, as a correlation in [-1, 1]."""
    n = index.size
    room = rank_high - rank_low
    spare = 0.5 * n * (n + 1) - rank_low.sum()
    order = np.argsort(-index, kind="stable")
    given = np.clip(spare - (np.cumsum(room[order]) - room[order]), 0.0, room[order])
    rank = rank_low.copy()
    rank[order] += given
    return float(np.clip((index * rank).sum() / (index**2).sum(), -1.0, 1.0))


def certain_strategy(router: HeuristicRouter, bounds: DescriptorBracket) -> Strategy | None:
    """The strategy every trace inside the bracket gets, or None if they differ."""
    if bounds.sum_nats[0] > router.overload_nats:
        return Strategy.DIRECT
    overload_open = bounds.sum_nats[1] > router.overload_nats
    if bounds.num_measured < router.min_tokens or np.isnan(bounds.trend[0]):
        return None if overload_open else Strategy.STANDARD
    (trend_low, trend_high), (avnr_low, avnr_high) = bounds.trend, bounds.avnr
    if trend_low > router.k * avnr_high:
        return Strategy.DIRECT
    if overload_open:
        return None
    if trend_high < -router.k * avnr_high:
        return Strategy.COT
    if max(-trend_low, trend_high) <= router.k * avnr_low:
        return Strategy.STANDARD
    return None
