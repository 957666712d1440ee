"""Paired bootstrap intervals and the area under the ROC curve.

One set of resampled questions serves every quantity of a comparison, so a difference between two routers is taken on the
same questions (paired). Intervals are percentile intervals at 95 %.
AUROC = P(score of a positive > score of a negative) + P(equal) / 2, from average ranks.
Source: ours; standard methods.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from workbench.signals import BoolArray, FloatArray, IntArray

NUM_RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    value: float | None
    low: float | None = None
    high: float | None = None


def resamples(num_questions: int, seed: int, num_resamples: int = NUM_RESAMPLES) -> IntArray:
    """[num_resamples, num_questions] question indices, drawn with replacement."""
    return np.random.default_rng((seed, num_questions)).integers(0, num_questions, (num_resamples, num_questions))


def interval(statistic: Callable[[IntArray], FloatArray | float], draws: IntArray) -> Interval:
    """`statistic` takes question indices [..., Q] and gives its value over them, on the sample and on each resample."""
    everything = np.arange(draws.shape[1])
    values = np.array([statistic(row) for row in draws], dtype=np.float64)
    value = float(statistic(everything))
    finite = values[np.isfinite(values)]
    if not np.isfinite(value) or finite.size < 0.9 * len(values):
        return Interval(None)
    low, high = np.percentile(finite, [2.5, 97.5])
    return Interval(value, float(low), float(high))


def mean_interval(per_question: FloatArray, draws: IntArray) -> Interval:
    """Interval of a mean over questions, all resamples at once."""
    x = np.asarray(per_question, dtype=np.float64)
    low, high = np.percentile(x[draws].mean(axis=1), [2.5, 97.5])
    return Interval(float(x.mean()), float(low), float(high))


def auroc(score: FloatArray, positive: BoolArray) -> float:
    """NaN where there is only one class, or no usable score."""
    usable = np.isfinite(score)
    score, positive = np.asarray(score)[usable], np.asarray(positive)[usable]
    ups, downs = int(positive.sum()), int((~positive).sum())
    if ups == 0 or downs == 0:
        return float("nan")
    return float((rankdata(score)[positive].sum() - 0.5 * ups * (ups + 1)) / (ups * downs))


def auroc_interval(score: FloatArray, positive: BoolArray, draws: IntArray) -> Interval:
    """Interval of `auroc` over resampled questions [num_resamples, Q], all at once; unusable scores are left out."""
    usable = np.isfinite(score)
    ranks = rankdata(np.where(usable, score, -np.inf)[draws], axis=1)  # what is left out ranks below all else
    kept, hit = usable[draws], (positive & usable)[draws]
    ups, downs = hit.sum(axis=1), (kept & ~hit).sum(axis=1)
    below = (~kept).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        values = ((ranks * hit).sum(axis=1) - ups * below - 0.5 * ups * (ups + 1)) / (ups * downs)
    value, finite = auroc(score, positive), values[np.isfinite(values)]
    if not np.isfinite(value) or finite.size < 0.9 * len(values):
        return Interval(None)
    low, high = np.percentile(finite, [2.5, 97.5])
    return Interval(value, float(low), float(high))
