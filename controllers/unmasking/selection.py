"""Building a `RevealAction`: ranks from scores, costs made finite, rows that take no part left blank."""

import numpy as np

from workbench.protocols import RevealAction, RevealObservation
from workbench.signals import BoolArray, FloatArray, IntArray

# What a masked position costs whose entropy was not measured: more than any real distribution (ln n < 23 for n < 10^10).
UNKNOWN_NATS = 100.0


def eligible(observation: RevealObservation) -> BoolArray:
    """[num_slots, length] masked positions of active rows."""
    return observation.masked & observation.active[:, None]


def rank_ascending(score: FloatArray, among: BoolArray) -> IntArray:
    """[num_slots, length] 0 for the smallest score among the given positions; ties by position, missing scores last."""
    key = np.where(among, np.where(np.isnan(score), np.finfo(np.float64).max, score), np.inf)
    order = np.argsort(key, axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(score.shape[1]), order.shape), axis=1)
    return np.where(among, rank, 0)


def known_entropy(observation: RevealObservation) -> FloatArray:
    """Marginal entropies with `UNKNOWN_NATS` where there is none to read."""
    entropy = observation.entropy_nats
    return np.where(entropy >= 0.0, entropy, UNKNOWN_NATS)  # NaN is not at least 0


def cumulative_excess(entropy_nats: FloatArray, rank: IntArray, among: BoolArray) -> FloatArray:
    """[num_slots, length] what taking a position adds to sum H - max H of the positions before it in `rank`.

    sum H - max H bounds the total correlation of a batch, so its running value is a valid price list: increments are
    min(H, largest H so far) >= 0 and zero for the first position.
    """
    order = np.argsort(np.where(among, rank, np.iinfo(np.int64).max), axis=1, kind="stable")
    ordered = np.take_along_axis(np.where(among, entropy_nats, 0.0), order, axis=1)
    largest = np.maximum.accumulate(ordered, axis=1)
    step = np.zeros_like(ordered)
    step[:, 1:] = np.minimum(ordered[:, 1:], largest[:, :-1])
    cost = np.empty_like(step)
    np.put_along_axis(cost, order, step, axis=1)
    return cost


def reveal(
    observation: RevealObservation,
    *,
    rank: IntArray,
    cost: FloatArray | None = None,
    budget: FloatArray | float = np.inf,
    include_crossing: bool = False,
    max_count: IntArray | None = None,
) -> RevealAction:
    """The action, blank in inactive rows. Without a cost only counts decide; the op reads masked positions only."""
    num_slots, length = observation.masked.shape
    active = observation.active
    if cost is None:
        cost = np.zeros((num_slots, length))
    if not active.all():
        rank, cost = np.where(active[:, None], rank, 0), np.where(active[:, None], cost, 0.0)
    limit = np.full(num_slots, length, dtype=np.int64) if max_count is None else max_count
    return RevealAction(
        rank=rank,
        cost=cost,
        budget=np.where(active, budget, 0.0),
        include_crossing=active & include_crossing,
        min_count=np.ones(num_slots, dtype=np.int64),
        max_count=np.where(active, np.maximum(limit, 1), 1),
    )
