"""NumPy twins of the ops that choose, for the simulator and the controllers: blocks to keep, positions to reveal; torch-free.

Each has the signature and the meaning of its torch twin in `reference`; tests hold the two together.
"""

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernels.laws import KEEP_ALL, KEEP_LEAST_MASS, KEEP_TOP_BLOCKS, KEEP_WINDOW, check_keep_rules, check_reveal

Bool = NDArray[np.bool_]


@numba.njit(cache=True)
def _keep_rows(score, mass, num_blocks, rule, budget, frac, sinks, recent, keep):  # pragma: no cover - compiled
    for row in range(score.shape[0]):
        filled = min(num_blocks[row], score.shape[1])
        free = np.empty(filled, np.int64)  # blocks that may be dropped
        num_free = 0
        for b in range(filled):
            keep[row, b] = True
            if b >= sinks[row] and b < filled - recent[row]:
                if rule[row] == KEEP_WINDOW:
                    keep[row, b] = False
                elif rule[row] != KEEP_ALL and not np.isnan(score[row, b]) and not np.isnan(mass[row, b]):
                    free[num_free] = b
                    num_free += 1
        if num_free == 0:
            continue
        values = np.empty(num_free, np.float64)
        for i in range(num_free):
            values[i] = score[row, free[i]]
        order = np.argsort(values, kind="mergesort")  # lowest score first, the older block first among ties
        if rule[row] == KEEP_LEAST_MASS:
            dropped = 0.0
            for i in order:
                dropped += mass[row, free[i]]
                if dropped > budget[row]:
                    break
                keep[row, free[i]] = False
        elif rule[row] == KEEP_TOP_BLOCKS:
            target = int(np.ceil(frac[row] * filled - 1e-9))
            for i in range(min(num_free, max(0, filled - target))):
                keep[row, free[order[i]]] = False


def keep_blocks(
    score: ArrayLike,
    mass: ArrayLike | None,
    num_blocks: ArrayLike,
    *,
    rule: ArrayLike,
    mass_budget: ArrayLike,
    block_budget_frac: ArrayLike,
    sink_blocks: ArrayLike,
    recent_blocks: ArrayLike,
) -> Bool:
    """Which KV blocks each row keeps: bool [rows, max_blocks], False beyond `num_blocks`; see `laws.KEEP_*`."""
    s = np.ascontiguousarray(score, dtype=np.float64)
    m = s if mass is None else np.ascontiguousarray(mass, dtype=np.float64)
    rows = s.shape[0]

    def per_row(values, dtype):
        return np.ascontiguousarray(np.broadcast_to(np.asarray(values, dtype=dtype), (rows,)))

    numbers = per_row(rule, np.int64), per_row(mass_budget, np.float64), per_row(block_budget_frac, np.float64)
    ends = per_row(sink_blocks, np.int64), per_row(recent_blocks, np.int64)
    filled = per_row(num_blocks, np.int64)
    check_keep_rules(s.shape, m.shape, filled, *numbers, *ends)
    keep = np.zeros(s.shape, dtype=np.bool_)
    _keep_rows(s, m, filled, *numbers, *ends, keep)
    return keep


@numba.njit(cache=True)
def _reveal_rows(rank, cost, masked, budget, crossing, low, high, chosen):  # pragma: no cover - compiled
    rows, length = masked.shape
    at_rank = np.empty(length, np.int64)
    for row in range(rows):
        # Ranks that are distinct numbers below `length` order themselves; any others are sorted, ties by index.
        at_rank[:] = -1
        num_masked = 0
        plain = True
        for i in range(length):
            if masked[row, i]:
                num_masked += 1
                r = rank[row, i]
                if r < 0 or r >= length or at_rank[r] >= 0:
                    plain = False
                else:
                    at_rank[r] = i
        if not plain:
            positions = np.flatnonzero(masked[row])
            at_rank[:] = -1
            at_rank[:num_masked] = positions[np.argsort(rank[row][positions], kind="mergesort")]
        most = min(max(high[row], low[row]), num_masked)
        least = min(low[row], most)
        total = 0.0
        taken = 0
        for r in range(length):
            if taken >= most:
                break
            i = at_rank[r]
            if i < 0:
                continue
            total += cost[row, i]
            within = total <= budget[row]
            if not within and not crossing[row] and taken >= least:
                break
            chosen[row, i] = True
            taken += 1
            if not within and taken >= least:
                break


def reveal_prefix(
    rank: ArrayLike,
    cost: ArrayLike,
    masked: ArrayLike,
    budget: ArrayLike,
    include_crossing: ArrayLike,
    min_count: ArrayLike,
    max_count: ArrayLike,
) -> Bool:
    """Positions to reveal: bool [rows, length]; see `laws.check_reveal` for the law."""
    rank, cost, masked = np.asarray(rank, np.int64), np.asarray(cost, np.float64), np.asarray(masked, bool)
    rows, length = masked.shape

    def per_row(values, dtype):
        return np.broadcast_to(np.asarray(values, dtype=dtype), (rows,))

    budget, crossing = per_row(budget, np.float64), per_row(include_crossing, bool)
    low, high = per_row(min_count, np.int64), per_row(max_count, np.int64)
    check_reveal(rank.shape, cost, masked, budget, low, high)
    chosen = np.zeros((rows, length), dtype=bool)
    numbers = budget.copy(), crossing.copy(), low.copy(), high.copy()
    _reveal_rows(np.ascontiguousarray(rank), np.ascontiguousarray(cost), np.ascontiguousarray(masked), *numbers, chosen)
    return chosen
