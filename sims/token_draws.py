"""The next token of each sequence of a batch, drawn from the laws of `sims.entropy_process`.

Each stage is one loop over the rows, so that the vector unit takes several tokens at a time and what cannot be vectorised (a new
request, a new regime, a truncated row) stays apart: uniform draws, latent levels, shapes, H and V at each row's temperature,
ranks.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from sims import streams
from sims.entropy_process import (
    AMPLITUDE,
    CENTER,
    CONVERGENT,
    CURVE,
    DIVERGENT,
    END_INTERCEPT,
    END_SLOPE,
    FEEDBACK,
    GAP,
    GUIDE_PER_UNIT,
    GUIDE_REACH,
    KICK,
    OSCILLATING,
    OWN_WEIGHT,
    PERIOD,
    PHI,
    PRUNING,
    RAW_H,
    RAW_LOG_Z,
    RAW_V,
    SCALE,
    SETTLE,
    SHARED,
    SLOPE,
    SWITCH,
    LawTable,
)
from sims.latent_shapes import draw_levels, draw_rank, kept_outcomes, prefix_weight, solve_temperature, tempered
from sims.scalar_philox import normal_quantile, normal_quantiles, philox_words, unit, unit_fine
from workbench.signals import BoolArray, FloatArray, IntArray

GREEDY_BELOW = 1e-6  # a temperature below this is greedy


class ProcessState(NamedTuple):
    """Latent state per slot, changed in place by `draw_tokens`. A fresh slot starts anew at its first token."""

    values: FloatArray  # [4, slots] X, OWN, TREND, LAST_T
    counts: IntArray  # [3, slots] REGIME, SINCE, FRESH

    def begin(self, slot: int) -> None:
        """A new request takes the slot."""
        self.counts[FRESH, slot] = 1


X, OWN, TREND, LAST_T = range(4)  # x_k, a_r, m_k, T of the last token
REGIME, SINCE, FRESH = range(3)  # which, tokens since it began, nothing drawn yet


def new_state(num_slots: int) -> ProcessState:
    state = ProcessState(np.zeros((4, num_slots)), np.zeros((3, num_slots), np.int64))
    state.values[LAST_T] = 1.0
    state.counts[FRESH] = 1
    return state


(
    ENTROPY_RAW, VARENTROPY_RAW, ENTROPY, VARENTROPY, SURPRISAL, SURPRISAL_RAW, TEMPERATURE,
) = range(7)  # fmt: skip
TOKEN_ID, SHAPE_INDEX = range(2)


class TokenDraws(NamedTuple):
    """Results per row, NaN (-1, False) where the row draws no token. Names as in `StepResult`."""

    measured: FloatArray  # [7, rows]
    chosen: IntArray  # [2, rows]
    ended: BoolArray

    @property
    def entropy_raw_nats(self) -> FloatArray:
        return self.measured[ENTROPY_RAW]

    @property
    def varentropy_raw_nats2(self) -> FloatArray:
        return self.measured[VARENTROPY_RAW]

    @property
    def entropy_nats(self) -> FloatArray:
        return self.measured[ENTROPY]

    @property
    def varentropy_nats2(self) -> FloatArray:
        return self.measured[VARENTROPY]

    @property
    def surprisal_nats(self) -> FloatArray:
        return self.measured[SURPRISAL]

    @property
    def surprisal_raw_nats(self) -> FloatArray:
        return self.measured[SURPRISAL_RAW]

    @property
    def temperature_applied(self) -> FloatArray:
        return self.measured[TEMPERATURE]

    @property
    def token_id(self) -> IntArray:
        return self.chosen[TOKEN_ID]

    @property
    def shape_index(self) -> IntArray:
        return self.chosen[SHAPE_INDEX]


def new_draws(rows: int) -> TokenDraws:
    return TokenDraws(np.empty((7, rows)), np.empty((2, rows), np.int64), np.empty(rows, np.bool_))


@njit(cache=True)
def draw_uniforms(seed: int, request_id: IntArray, token_index: IntArray, out: FloatArray) -> None:
    """Uniform draws of each row's token, out [3, rows]: its innovation, whether the regime ends, which token."""
    for i in range(request_id.shape[0]):
        w0, w1, _, w3 = philox_words(seed, streams.LATENT, request_id[i], token_index[i], 0)
        out[0, i] = unit_fine(w0, w1)
        out[1, i] = unit(w3)
    for i in range(request_id.shape[0]):
        w0, w1, _, _ = philox_words(seed, streams.TOKEN, request_id[i], token_index[i], 0)
        out[2, i] = unit_fine(w0, w1)


# Compiled loops take arrays one by one: reading them out of a tuple at every use would count references.


@njit(cache=True, error_model="numpy")
def next_scores(
    numbers: FloatArray, regimes: FloatArray, values: FloatArray, counts: IntArray, seed: int, slot: IntArray,
    request_id: IntArray, token: IntArray, kind: IntArray, dropped: FloatArray, uniform: FloatArray, out: FloatArray,
) -> None:  # fmt: skip
    """Advance the slots [rows] by one token each: out [rows], their latent levels as normal scores (y - center) / scale.

    `uniform` begins with the first two rows of `draw_uniforms`.
    """
    normal_quantiles(uniform[0], out)
    x, own, trend, last_t = values[X], values[OWN], values[TREND], values[LAST_T]
    regime, since, fresh, switch = counts[REGIME], counts[SINCE], counts[FRESH], uniform[1]
    for i in range(slot.shape[0]):
        s, k = slot[i], kind[i]
        if fresh[s]:
            t0, t1, t2, t3 = philox_words(seed, streams.TRAIT, request_id[i], 0, 0)
            own[s] = normal_quantile(unit_fine(t0, t1))
            x[s], trend[s], last_t[s], fresh[s] = out[i], 0.0, 1.0, 0
            regime[s] = _regime(regimes, k, unit(t2))
            # An oscillation starts anywhere in its period.
            since[s] = int(unit(t3) * 2.0 * math.pi / numbers[k, PERIOD])
        else:
            x[s] = numbers[k, PHI] * x[s] + numbers[k, KICK] * out[i]
            if switch[i] < numbers[k, SWITCH]:
                r0, _, _, _ = philox_words(seed, streams.REGIME, request_id[i], token[i], 0)
                regime[s], since[s] = _regime(regimes, k, unit(r0)), 0
        if regime[s] == OSCILLATING:  # its own path; the others are approached
            trend[s] = numbers[k, AMPLITUDE] * math.sin(numbers[k, PERIOD] * since[s])
        else:
            sign = 1.0 if regime[s] == DIVERGENT else (-1.0 if regime[s] == CONVERGENT else 0.0)
            trend[s] += numbers[k, SETTLE] * (sign * numbers[k, AMPLITUDE] - trend[s])
        since[s] += 1
        level = numbers[k, OWN_WEIGHT] * x[s] + numbers[k, SHARED] * own[s] + trend[s]
        heat = min(last_t[s], 2.0) - 1.0
        level = level + numbers[k, FEEDBACK] * heat + numbers[k, PRUNING] * dropped[i]
        out[i] = (level - numbers[k, CENTER]) * numbers[k, SCALE]


@njit(cache=True, inline="always")
def shape_at(score: float, edges: FloatArray, guide: IntArray) -> int:
    """Index in a cloud of the shape at a normal score: how many edges lie at or below it."""
    step = (min(max(score, -GUIDE_REACH), GUIDE_REACH) + GUIDE_REACH) * GUIDE_PER_UNIT
    index = int(guide[int(step)])
    while index < edges.shape[0] and edges[index] <= score:
        index += 1
    return index


@njit(cache=True, inline="always")
def _regime(cumulative: FloatArray, kind: int, u: float) -> int:
    for r in range(3):
        if u < cumulative[kind, r]:
            return r
    return 3


@njit(cache=True, error_model="numpy")
def draw_tokens(
    law: LawTable,
    num_outcomes: int,
    state: ProcessState,
    seed: int,
    slot: IntArray,
    request_id: IntArray,
    token_index: IntArray,
    kind: IntArray,
    samples: BoolArray,
    dropped: FloatArray,
    temperature: FloatArray,  # [slots], as the four below
    target: FloatArray,
    min_p: FloatArray,
    top_h: FloatArray,
    mirostat_mu: FloatArray,
    low: float,
    high: float,
    out: TokenDraws,
) -> None:
    """Draw the next token of every row that samples. Laws in the order of `SamplingAction`."""
    cloud, numbers, regimes, level_sizes, edges, guide = law
    measured, chosen, has_ended = out
    rows = np.flatnonzero(samples)
    if rows.shape[0] < slot.shape[0]:
        chosen[:], has_ended[:], measured[:] = -1, False, np.nan
    n, slots, requests, tokens, kinds = rows.shape[0], slot[rows], request_id[rows], token_index[rows], kind[rows]
    uniform, score = np.empty((3, n)), np.empty(n)
    draw_uniforms(seed, requests, tokens, uniform)
    next_scores(
        numbers, regimes, state.values, state.counts, seed, slots, requests, tokens, kinds, dropped[rows], uniform, score
    )  # fmt: skip
    last_t = state.values[LAST_T]
    pick, heat, shape, scaled = np.empty(n, np.int64), np.empty(n), np.empty((3, n)), np.empty((3, n))
    for i in range(n):
        s, k = slots[i], kinds[i]
        pick[i] = shape_at(score[i], edges, guide)
        gap, slope, curve = cloud[k, pick[i], GAP], cloud[k, pick[i], SLOPE], cloud[k, pick[i], CURVE]
        t = min(max(temperature[s], low), high)
        if target[s] == target[s]:
            t = solve_temperature(gap, slope, curve, num_outcomes, target[s], t, low, high)
        heat[i] = last_t[s] = t
        shape[GAP, i], shape[SLOPE, i], shape[CURVE, i] = gap, slope, curve
        cooled = 1.0 / t if t >= GREEDY_BELOW else 1.0
        scaled[GAP, i], scaled[SLOPE, i], scaled[CURVE, i] = gap * cooled, slope * cooled, curve * cooled
    cumulative, moments_of = np.empty((level_sizes.shape[0], n)), np.empty((3, n))
    rank, level = np.empty(n, np.int64), score  # scores are not needed any more
    tempered(scaled, level_sizes, cumulative, moments_of)
    draw_levels(cumulative, level_sizes, uniform[2], rank, level)
    for i in range(n):
        s, k, t = slots[i], kinds[i], heat[i]
        gap, slope, curve, j = shape[GAP, i], shape[SLOPE, i], shape[CURVE, i], level[i] - 1.0
        logit = -(gap + j * (slope + j * curve)) if level[i] > 0.0 else 0.0
        log_total, h, v = moments_of[0, i], moments_of[1, i], moments_of[2, i]
        if t < GREEDY_BELOW:
            rank[i], logit, log_total, h, v = 0, 0.0, 0.0, 0.0, 0.0
        elif min_p[s] == min_p[s] or top_h[s] == top_h[s] or mirostat_mu[s] == mirostat_mu[s]:
            kept = kept_outcomes(gap, slope, curve, t, num_outcomes, log_total, h, min_p[s], top_h[s], mirostat_mu[s])
            total = prefix_weight(gap, slope, curve, t, kept)
            rank[i], logit = draw_rank(gap, slope, curve, t, num_outcomes, total, kept, uniform[2, i])
        surprisal = log_total - logit / t if t >= GREEDY_BELOW else 0.0
        h_raw, ended, end_slope = cloud[k, pick[i], RAW_H], False, numbers[k, END_SLOPE]
        if end_slope == end_slope:
            e0, e1, _, _ = philox_words(seed, streams.END, requests[i], tokens[i], 0)
            ended = unit_fine(e0, e1) * (1.0 + math.exp(-(numbers[k, END_INTERCEPT] + end_slope * h_raw))) < 1.0
        r = rows[i]
        chosen[TOKEN_ID, r], chosen[SHAPE_INDEX, r], has_ended[r] = rank[i], pick[i], ended
        measured[ENTROPY_RAW, r], measured[VARENTROPY_RAW, r] = h_raw, cloud[k, pick[i], RAW_V]
        measured[ENTROPY, r], measured[VARENTROPY, r] = h, v
        measured[SURPRISAL, r], measured[SURPRISAL_RAW, r] = surprisal, cloud[k, pick[i], RAW_LOG_Z] - logit
        measured[TEMPERATURE, r] = t
