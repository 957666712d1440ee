"""Reachable sets of u = ln T by ball arithmetic: any order of token shapes, saturation, the estimator's bracket.

One token takes the interval X of possible u to

    X+ = union over shapes of clip({u + k_i (H* - H) : u in X, H in [H(u) - below, H(u) + above]}),

with H(u) of a logit vector given as (level, multiplicity). On a piece of X, u - k_i H(u) lies in its midpoint value plus
(1 - k_i V) (X - midpoint) with V enclosed on the whole piece, so the result is rigorous at any gain; where
k_i V_max <= 1 the step is increasing and the two ends are enough.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import flint

from workbench.analysis.ball import ball, level_statistics

Levels = Sequence[tuple[Fraction, int]]
Interval = tuple[flint.arb, flint.arb]


@dataclass(frozen=True)
class BoundedLoop:
    """The I law with a clamp and a bracketed measurement; all numbers rational."""

    k_i: Fraction
    target_nats: Fraction
    log_temperature_min: Fraction
    log_temperature_max: Fraction
    bracket_below_nats: Fraction = Fraction(0)
    bracket_above_nats: Fraction = Fraction(0)


def varentropy_bound(levels: Levels) -> flint.arb:
    """ln^2(n - 1)/4 + 1, above every varentropy over n outcomes (certificate `max-varentropy`)."""
    return flint.arb(max(sum(count for _, count in levels) - 1, 1)).log() ** 2 / 4 + 1


def statistics_at(levels: Levels, u: flint.arb) -> tuple[flint.arb, flint.arb]:
    """(H, V) at ln T = u, a ball when u is one. Levels are shifted exactly first, so that a wide u costs little."""
    inverse, top = (-u).exp(), max(z for z, _ in levels)
    return level_statistics([(ball(z - top) * inverse, count) for z, count in levels])


def _hull(parts: list[flint.arb]) -> Interval:
    lower, upper = parts[0].lower(), parts[0].upper()
    for part in parts[1:]:
        lower, upper = lower.min(part.lower()), upper.max(part.upper())
    return lower.lower(), upper.upper()


def step(loop: BoundedLoop, levels: Levels, interval: Interval, pieces: int = 16) -> Interval:
    """One token of one shape."""
    low, high = interval
    k, images = ball(loop.k_i), []
    bracket = (-ball(loop.bracket_below_nats)).union(ball(loop.bracket_above_nats))
    most = varentropy_bound(levels)
    monotone = bool(k * most <= 1)
    width = (high - low) / pieces
    parts = (
        [(low, low), (high, high)] if monotone else [(low + width * i, low + width * (i + 1)) for i in range(pieces)]
    )
    for left, right in parts:
        piece = left.union(right)
        middle = piece.mid()
        entropy, _ = statistics_at(levels, middle)
        _, varentropy = statistics_at(levels, piece)
        slope = 1 - k * varentropy.max(flint.arb(0)).min(most)
        image = middle - k * entropy + slope * (piece - middle) + k * (ball(loop.target_nats) - bracket)
        images.append(image.max(ball(loop.log_temperature_min)).min(ball(loop.log_temperature_max)))
    return _hull(images)


def reach(loop: BoundedLoop, shapes: Sequence[Levels], tokens: int, pieces: int = 16) -> list[Interval]:
    """X_0 = the whole clamp, then one interval a token, whatever the order of shapes. Each lies in the one before."""
    intervals: list[Interval] = [(ball(loop.log_temperature_min), ball(loop.log_temperature_max))]
    for _ in range(tokens):
        parts = [step(loop, levels, intervals[-1], pieces) for levels in shapes]
        hull = _hull([end for part in parts for end in part])
        intervals.append((hull[0].max(intervals[-1][0]), hull[1].min(intervals[-1][1])))
    return intervals
