"""The family of logit vectors a simulated token is drawn from, so that H(T), V(T) and the sampled token agree exactly.

n outcomes ranked by logit. The first has logit 0; the others lie on dyadic levels: level j = 1, 2, .. holds the next
2^(j-1) ranks (the last level what is left of n), all with logit

    z_j = -(g + s i + c i^2),   i = j - 1

    g >= 0   gap: nats from the first to the second token
    s >= 0   slope: nats per doubling of the rank (a Zipf tail of exponent s / ln 2)
    c >= 0   curvature: how much faster the far tail falls

With w_j = multiplicity x exp(z_j / T), built by multiplication from three exponentials, one pass of about ln2(n) steps
gives Z, H and V at any T; 0 <= H <= ln n and dH/d ln T = V hold because it *is* a softmax. Ranks, not vocabulary entries,
are the token ids.
Source: ours. A single (H, V) pair does not decide H(T); three numbers fitted at several T do within what
`sims.calibrate` reports.
"""

import math

import numpy as np
from numba import njit

from kernels.laws import SOLVE_ITERATIONS, SOLVE_TEMPERATURE_MAX, SOLVE_TEMPERATURE_MIN, SOLVE_TOLERANCE_NATS
from workbench.signals import FloatArray, IntArray
from workbench.vector_math import exponentials, logarithms

NUM_PARAMETERS = 3  # gap, slope, curvature


def num_levels(num_outcomes: int) -> int:
    """Levels needed for n outcomes: the first alone, then 1, 2, 4, .."""
    return 1 if num_outcomes == 1 else 1 + math.ceil(math.log2(num_outcomes))


def expanded(shape: FloatArray, num_outcomes: int) -> FloatArray:
    """All n logits of one shape [3], for tests and pictures."""
    gap, slope, curve = shape
    level = np.floor(np.log2(np.maximum(np.arange(num_outcomes), 1)))
    return np.where(np.arange(num_outcomes) == 0, 0.0, -(gap + slope * level + curve * level**2))


@njit(cache=True, inline="always")
def multiplicity(level: int, num_outcomes: int) -> float:
    """Outcomes on a level."""
    if level == 0:
        return 1.0
    first = 1 << (level - 1)
    return float(min(first, num_outcomes - first))


@njit(cache=True)
def moments(gap: float, slope: float, curve: float, temperature: float, num_outcomes: int):
    """(ln Z relative to the first outcome, H, V) at T > 0."""
    inverse = 1.0 / temperature
    total, first, second = 1.0, 0.0, 0.0
    weight = math.exp(-gap * inverse)
    ratio = math.exp(-slope * inverse)
    bend = math.exp(-curve * inverse)
    square = bend * bend
    # exp of -(g + s i + c i^2)/T grows from i to i + 1 by ratio * bend^(2 i + 1)
    factor = ratio * bend
    count, placed, i = 1, 1, 0.0
    while placed < num_outcomes:
        here = min(count, num_outcomes - placed)
        y = -(gap + i * (slope + i * curve)) * inverse
        mass = here * weight
        total += mass
        first += mass * y
        second += mass * y * y
        placed += here
        count *= 2
        weight *= factor
        factor *= square
        i += 1.0
    mean = first / total
    log_total = math.log(total)
    return log_total, max(log_total - mean, 0.0), max(second / total - mean * mean, 0.0)


@njit(cache=True)
def level_counts(num_outcomes: int) -> FloatArray:
    """Outcomes on each level."""
    levels, placed = 1, 1
    while placed < num_outcomes:
        placed += min(1 << (levels - 1), num_outcomes - placed)
        levels += 1
    counts = np.empty(levels)
    for level in range(levels):
        counts[level] = multiplicity(level, num_outcomes)
    return counts


@njit(cache=True, error_model="numpy")
def tempered(shape: FloatArray, counts: FloatArray, cumulative: FloatArray, out: FloatArray) -> None:
    """out [3, n]: (ln Z, H, V) as `moments` has them of n shapes [3, n], divided by their T.

    `cumulative` [levels, n] is left with the weight of each level and those before it, for `draw_levels`. Shapes are the
    inner loop, so that the vector unit takes several at a time.
    """
    n = shape.shape[1]
    gap, slope, curve = shape[0], shape[1], shape[2]
    work = np.empty((8, n))
    weight, factor, square, total, first, second, exponent, scratch = (
        work[0], work[1], work[2], work[3], work[4], work[5], work[6], work[7],
    )  # fmt: skip
    for i in range(n):
        exponent[i] = -gap[i]
    exponentials(exponent, weight, scratch)
    for i in range(n):
        exponent[i] = -(slope[i] + curve[i])
    exponentials(exponent, factor, scratch)
    for i in range(n):
        exponent[i] = -2.0 * curve[i]
    exponentials(exponent, square, scratch)
    for i in range(n):
        total[i] = cumulative[0, i] = 1.0
        first[i] = second[i] = 0.0
    for level in range(1, counts.shape[0]):
        x, count, here = level - 1.0, counts[level], cumulative[level]
        for i in range(n):
            y = -(gap[i] + x * (slope[i] + x * curve[i]))
            mass = count * weight[i]
            total[i] += mass
            here[i] = total[i]
            mass *= y
            first[i] += mass
            second[i] += mass * y
            weight[i] *= factor[i]
            factor[i] *= square[i]
    log_total = out[0]
    logarithms(total, log_total, scratch)
    for i in range(n):
        mean = first[i] / total[i]
        out[1, i] = max(log_total[i] - mean, 0.0)
        out[2, i] = max(second[i] / total[i] - mean * mean, 0.0)


@njit(cache=True, error_model="numpy")
def draw_levels(
    cumulative: FloatArray, counts: FloatArray, uniform: FloatArray, rank: IntArray, level: FloatArray
) -> None:
    """Rank [n] and its level [n] where the summed weight of the ranks first exceeds a share `uniform` of all of it."""
    n, last = uniform.shape[0], counts.shape[0] - 1
    work = np.empty((3, n))
    need, below, upto = work[0], work[1], work[2]
    for i in range(n):
        need[i] = uniform[i] * cumulative[last, i]
        below[i], upto[i], level[i] = 0.0, cumulative[0, i], 0.0
    for j in range(last):
        total, more = cumulative[j], cumulative[j + 1]
        for i in range(n):
            passed = need[i] >= total[i]
            level[i] = j + 1.0 if passed else level[i]
            below[i] = total[i] if passed else below[i]
            upto[i] = more[i] if passed else upto[i]
    for i in range(n):
        here, size, mass = int(level[i]), counts[int(level[i])], upto[i] - below[i]
        inside = (need[i] - below[i]) / mass * size if mass > 0.0 else 0.0
        # Level j > 0 begins at rank 2^(j - 1).
        rank[i] = ((1 << here) >> 1) + min(int(inside), int(size) - 1)


@njit(cache=True)
def solve_temperature(
    gap: float, slope: float, curve: float, num_outcomes: int, target: float, start: float, low: float, high: float
) -> float:
    """T in [low, high] with H(T) = target, the nearer end where that is out of reach: Newton in u = ln T with slope V,
    inside a shrinking bracket, bisection where Newton leaves it or stalls."""
    u_low = math.log(low if low > 0.0 else SOLVE_TEMPERATURE_MIN)
    u_high = max(math.log(high) if high < np.inf else math.log(SOLVE_TEMPERATURE_MAX), u_low)
    if moments(gap, slope, curve, math.exp(u_low), num_outcomes)[1] >= target:
        return math.exp(u_low)
    if moments(gap, slope, curve, math.exp(u_high), num_outcomes)[1] <= target:
        return math.exp(u_high)
    u = min(max(math.log(max(start, 1e-30)), u_low), u_high)
    previous = np.inf
    for _ in range(SOLVE_ITERATIONS):
        _, entropy, varentropy = moments(gap, slope, curve, math.exp(u), num_outcomes)
        miss = target - entropy
        if abs(miss) <= SOLVE_TOLERANCE_NATS:
            break
        if miss > 0.0:
            u_low = u
        else:
            u_high = u
        step = u + miss / max(varentropy, 1e-12)
        if not u_low < step < u_high or abs(miss) > 0.5 * previous:
            step = 0.5 * (u_low + u_high)
        previous = abs(miss)
        u = step
    return math.exp(u)


@njit(cache=True)
def kept_outcomes(
    gap: float,
    slope: float,
    curve: float,
    temperature: float,
    num_outcomes: int,
    log_total: float,
    entropy: float,
    min_p: float,
    top_h: float,
    mirostat_mu: float,
) -> int:
    """How many top ranks pass min-p, top-H and Mirostat (NaN: off), at least 1; each judged before truncation.

    All three keep a prefix of the ranks. The entropy of a prefix grows with every rank added, so top-H may search.
    """
    floor = -np.inf
    if min_p == min_p and min_p > 0.0:
        floor = math.log(min_p)
    if mirostat_mu == mirostat_mu:
        floor = max(floor, log_total - mirostat_mu)
    budget = top_h * entropy if top_h == top_h else np.inf
    total, first = 1.0, 0.0
    kept, level, placed = 1, 1, 1
    while placed < num_outcomes:
        i = float(level - 1)
        y = -(gap + i * (slope + i * curve)) / temperature
        if y < floor:
            break
        here = min(1 << (level - 1), num_outcomes - placed)
        weight = math.exp(y)
        whole = total + here * weight
        if math.log(whole) - (first + here * weight * y) / whole > budget:
            low, high = 0, here  # low ranks fit, high do not
            while high - low > 1:
                middle = (low + high) // 2
                part = total + middle * weight
                if math.log(part) - (first + middle * weight * y) / part > budget:
                    high = middle
                else:
                    low = middle
            return kept + low
        total, first = whole, first + here * weight * y
        kept += here
        placed += here
        level += 1
    return kept


@njit(cache=True)
def draw_rank(
    gap: float, slope: float, curve: float, temperature: float, num_outcomes: int, total: float, kept: int, u: float
):
    """(rank, its logit) by inverse distribution over the first `kept` ranks; `total` is their summed weight."""
    need = u * total - 1.0
    if need < 0.0 or kept == 1:
        return 0, 0.0
    inverse = 1.0 / temperature
    weight = math.exp(-gap * inverse)
    factor = math.exp(-(slope + curve) * inverse)
    square = math.exp(-2.0 * curve * inverse)
    count, placed, i = 1, 1, 0.0
    while True:
        here = min(count, kept - placed)
        mass = here * weight
        last = placed + here >= kept
        if need < mass or last:
            inside = int(need / weight) if weight > 0.0 else 0
            rank = placed + min(inside, here - 1)
            return rank, -(gap + i * (slope + i * curve))
        need -= mass
        placed += here
        count *= 2
        weight *= factor
        factor *= square
        i += 1.0


@njit(cache=True)
def prefix_weight(gap: float, slope: float, curve: float, temperature: float, kept: int) -> float:
    """Summed weight of the first `kept` ranks, relative to the first."""
    total, placed, level = 1.0, 1, 1
    while placed < kept:
        i = float(level - 1)
        here = min(1 << (level - 1), kept - placed)
        total += here * math.exp(-(gap + i * (slope + i * curve)) / temperature)
        placed += here
        level += 1
    return total


@njit(cache=True)
def raw_moments(shapes: FloatArray, num_outcomes: int) -> FloatArray:
    """[m, 3] shapes -> [m, 3] of ln Z, H, V at T = 1."""
    out = np.empty((shapes.shape[0], 3))
    for i in range(shapes.shape[0]):
        out[i, 0], out[i, 1], out[i, 2] = moments(shapes[i, 0], shapes[i, 1], shapes[i, 2], 1.0, num_outcomes)
    return out
