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
from workbench.signals import FloatArray

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


@njit(cache=True, inline="always")
def tempered(gap: float, slope: float, curve: float, temperature: float, counts: FloatArray, mass: FloatArray):
    """(Z, ln Z, H, V) at T > 0 as `moments` has them; `mass` [levels] is left with the weight of each level, for `draw_level`."""
    inverse = 1.0 / temperature
    weight = math.exp(-gap * inverse)
    bend = math.exp(-curve * inverse)
    factor = math.exp(-slope * inverse) * bend
    square = bend * bend
    total, first, second, i = 1.0, 0.0, 0.0, 0.0
    mass[0] = 1.0
    for level in range(1, counts.shape[0]):
        y = -(gap + i * (slope + i * curve)) * inverse
        here = counts[level] * weight
        mass[level] = here
        total += here
        first += here * y
        second += here * y * y
        weight *= factor
        factor *= square
        i += 1.0
    mean, log_total = first / total, math.log(total)
    return total, log_total, max(log_total - mean, 0.0), max(second / total - mean * mean, 0.0)


@njit(cache=True, inline="always")
def draw_level(gap: float, slope: float, curve: float, counts: FloatArray, mass: FloatArray, need: float):
    """(rank, its logit) where the summed weight of the ranks first exceeds `need`, from the masses of the levels."""
    if need < 1.0 or counts.shape[0] == 1:
        return 0, 0.0
    need -= 1.0
    level, placed = 1, 1
    while level < counts.shape[0] - 1 and need >= mass[level]:
        need -= mass[level]
        placed += int(counts[level])
        level += 1
    inside = int(need / mass[level] * counts[level]) if mass[level] > 0.0 else 0
    i = float(level - 1)
    return placed + min(inside, int(counts[level]) - 1), -(gap + i * (slope + i * curve))


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
