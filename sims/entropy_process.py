"""What the simulated model believes about each next token: a latent logit shape per token, correlated in time.

Token k of request r has a standard normal latent level

    y_k = sqrt(1 - share) x_k + sqrt(share) a_r + m_k + f (T_{k-1} - 1) + p dropped_k
    x_k = phi x_{k-1} + sqrt(1 - phi^2) e_k          autocorrelation within a request
    a_r                                              the request's own level, `share` of the variance
    m_k = m_{k-1} + (M_k - m_{k-1}) / settle         trend towards the regime's M_k:
          flat 0, convergent -amplitude, divergent +amplitude, oscillating amplitude sin(2 pi j / period)
    f, p                                             answer of the text to temperature (the outer loop) and to pruning

and the quantile Phi((y_k - center) / scale) picks a shape from the kind's cloud, which is sorted by H_raw. A regime holds for a geometric
time of mean `dwell_tokens`, then another is drawn from `regime_weights`. Given the shape, H and V at any temperature, every
truncation and the sampled rank are exact (`sims.latent_shapes`). With `end_slope` not NaN a token ends the request with
probability 1 / (1 + exp(-(end_intercept + end_slope H_raw))); otherwise lengths come from the trace.

Every draw is Philox of (seed, stream, request, token): it does not depend on slot, batch, order or arm. The recursion
makes y_k a function of the request's own past only, preemption included.
Source: ours; Gaussian copula over an empirical marginal. Deviates from life: texts do not exist, so H_raw answers to
temperature and pruning only through f and p.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit
from scipy.special import ndtri

from sims import streams
from sims.latent_shapes import (
    NUM_PARAMETERS,
    draw_level,
    draw_rank,
    kept_outcomes,
    level_counts,
    prefix_weight,
    raw_moments,
    solve_temperature,
    tempered,
)
from sims.scalar_philox import normal_quantile, philox_words, unit, unit_fine
from workbench.errors import InputError
from workbench.signals import BoolArray, FloatArray, IntArray

FLAT, CONVERGENT, DIVERGENT, OSCILLATING = range(4)
REGIMES = ("flat", "convergent", "divergent", "oscillating")
CLOUD = 1024  # shapes a kind is resampled to
GUIDE_REACH, GUIDE_PER_UNIT = 4.0, 128.0  # the outermost of the cloud's edges lie at 3.1
GREEDY_BELOW = 1e-6  # a temperature below this is greedy


@dataclass(frozen=True, kw_only=True)
class KindLaw:
    """The law of one request kind; the symbols are those of the module.

    shapes [m, 3]   cloud of latent shapes (gap, slope, curvature), any order: sorted by H_raw here
    """

    name: str
    shapes: FloatArray
    autocorrelation: float = 0.25
    request_share: float = 0.1
    regime_weights: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 0.0)
    amplitude: float = 0.5
    settle_tokens: float = 24.0
    dwell_tokens: float = 128.0
    period_tokens: float = 32.0
    temperature_feedback: float = 0.6
    pruning_feedback: float = 0.5
    center: float = (
        0.0  # mean and deviation of y over recorded texts: trends move y, the cloud already holds their effect
    )
    scale: float = 1.0
    end_intercept: float = math.nan
    end_slope: float = math.nan

    def __post_init__(self) -> None:
        where = f"KindLaw {self.name!r}"
        shapes = np.asarray(self.shapes)
        if shapes.ndim != 2 or shapes.shape[1] != NUM_PARAMETERS or not len(shapes):
            raise InputError(f"{where}: shapes must be [m, {NUM_PARAMETERS}], got {list(shapes.shape)}")
        if not np.all(np.isfinite(shapes)) or np.any(shapes < 0.0):
            raise InputError(f"{where}: gap, slope and curvature must be finite and at least 0")
        for name, low, high in (("autocorrelation", -1.0, 1.0), ("request_share", -1e-300, 1.0 + 1e-12)):
            if not low < getattr(self, name) < high:
                raise InputError(f"{where}: {name} must be in [{max(low, -1):g}, {high:g}), got {getattr(self, name)}")
        for name in ("settle_tokens", "dwell_tokens", "period_tokens"):
            if not 1.0 <= getattr(self, name) <= math.inf:
                raise InputError(f"{where}: {name} must be at least 1, got {getattr(self, name)}")
        weights = self.regime_weights
        if len(weights) != 4 or not all(w >= 0.0 for w in weights) or not 0.0 < sum(weights) < math.inf:
            raise InputError(f"{where}: regime_weights must be four numbers of at least 0, one of them above 0")
        for name in ("amplitude", "temperature_feedback", "pruning_feedback", "center"):
            if not math.isfinite(getattr(self, name)):
                raise InputError(f"{where}: {name} must be finite, got {getattr(self, name)}")


class LawTable(NamedTuple):
    """`KindLaw`s as compiled code reads them; first axis the kind."""

    cloud: FloatArray  # [kinds, CLOUD, 6] gap, slope, curvature; ln Z, H, V at T = 1; sorted by H
    numbers: FloatArray  # [kinds, NUMBERS]
    regimes: FloatArray  # [kinds, 4] cumulative weights
    counts: FloatArray  # [levels] outcomes on each level of a shape
    edges: FloatArray  # [CLOUD - 1] normal quantiles that part the cloud
    guide: IntArray  # where to begin among them, by `GUIDE_PER_UNIT` steps a unit from -GUIDE_REACH on


GAP, SLOPE, CURVE, RAW_LOG_Z, RAW_H, RAW_V = range(6)
(
    PHI, KICK, OWN_WEIGHT, SHARED, AMPLITUDE, SETTLE, SWITCH, PERIOD, FEEDBACK, PRUNING, END_INTERCEPT, END_SLOPE, CENTER, SCALE,
) = range(14)  # fmt: skip


def law_table(laws: tuple[KindLaw, ...], num_outcomes: int) -> LawTable:
    clouds, numbers, regimes = [], [], []
    for law in laws:
        cloud = np.ascontiguousarray(law.shapes, dtype=float)
        cloud = cloud[np.argsort(raw_moments(cloud, num_outcomes)[:, 1], kind="stable")]
        # Resampled to one size by nearest quantile, so that clouds of any size share a table.
        cloud = cloud[((np.arange(CLOUD) + 0.5) / CLOUD * len(cloud)).astype(np.int64)]
        clouds.append(np.column_stack([cloud, raw_moments(cloud, num_outcomes)]))
        phi, share = law.autocorrelation, law.request_share
        numbers.append([
            phi, math.sqrt(1.0 - phi * phi), math.sqrt(max(0.0, 1.0 - share)), math.sqrt(max(0.0, share)),
            law.amplitude, 1.0 / law.settle_tokens, 1.0 / law.dwell_tokens, 2.0 * math.pi / law.period_tokens,
            law.temperature_feedback, law.pruning_feedback, law.end_intercept, law.end_slope, law.center,
            1.0 / law.scale,
        ])  # fmt: skip
        regimes.append(np.cumsum(law.regime_weights) / sum(law.regime_weights))
    edges = ndtri(np.arange(1, CLOUD) / CLOUD)
    steps = np.arange(int(2 * GUIDE_REACH * GUIDE_PER_UNIT) + 1) / GUIDE_PER_UNIT - GUIDE_REACH
    return LawTable(
        np.array(clouds), np.array(numbers), np.array(regimes), level_counts(num_outcomes), edges,
        np.searchsorted(edges, steps),
    )  # fmt: skip


class ProcessState(NamedTuple):
    """Latent state per slot, changed in place by `draw_tokens`. A fresh slot starts anew at its first token."""

    values: FloatArray  # [slots, 4] X, OWN, TREND, LAST_T
    counts: IntArray  # [slots, 3] REGIME, SINCE, FRESH

    def begin(self, slot: int) -> None:
        """A new request takes the slot."""
        self.counts[slot, FRESH] = 1


X, OWN, TREND, LAST_T = range(4)  # x_k, a_r, m_k, T of the last token
REGIME, SINCE, FRESH = range(3)  # which, tokens since it began, nothing drawn yet


def new_state(num_slots: int) -> ProcessState:
    state = ProcessState(np.zeros((num_slots, 4)), np.zeros((num_slots, 3), np.int64))
    state.values[:, LAST_T] = 1.0
    state.counts[:, FRESH] = 1
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


@njit(cache=True)
def next_level(
    numbers: FloatArray, regimes: FloatArray, values: FloatArray, counts: IntArray, seed: int, slot: int,
    request_id: int, token: int, kind: int, dropped: float, innovation: float, switch: float,
) -> float:  # fmt: skip
    """Advance a slot by one token and return its latent level y, not yet centred and scaled.

    `innovation` and `switch` are the first two of `draw_uniforms`.
    """
    noise = normal_quantile(innovation)
    if counts[slot, FRESH]:
        t0, t1, t2, t3 = philox_words(seed, streams.TRAIT, request_id, 0, 0)
        values[slot, OWN] = normal_quantile(unit_fine(t0, t1))
        values[slot, X] = noise
        values[slot, TREND] = 0.0
        counts[slot, REGIME] = _regime(regimes, kind, unit(t2))
        # An oscillation starts anywhere in its period.
        counts[slot, SINCE] = int(unit(t3) * 2.0 * math.pi / numbers[kind, PERIOD])
        values[slot, LAST_T] = 1.0
        counts[slot, FRESH] = 0
    else:
        values[slot, X] = numbers[kind, PHI] * values[slot, X] + numbers[kind, KICK] * noise
        if switch < numbers[kind, SWITCH]:
            r0, _, _, _ = philox_words(seed, streams.REGIME, request_id, token, 0)
            counts[slot, REGIME] = _regime(regimes, kind, unit(r0))
            counts[slot, SINCE] = 0
    regime, trend = counts[slot, REGIME], values[slot, TREND]
    if regime == OSCILLATING:  # its own path; the others are approached
        trend = numbers[kind, AMPLITUDE] * math.sin(numbers[kind, PERIOD] * counts[slot, SINCE])
    else:
        aim = 0.0
        if regime == CONVERGENT:
            aim = -numbers[kind, AMPLITUDE]
        elif regime == DIVERGENT:
            aim = numbers[kind, AMPLITUDE]
        trend += numbers[kind, SETTLE] * (aim - trend)
    counts[slot, SINCE] += 1
    values[slot, TREND] = trend
    level = numbers[kind, OWN_WEIGHT] * values[slot, X] + numbers[kind, SHARED] * values[slot, OWN] + trend
    heat = min(values[slot, LAST_T], 2.0) - 1.0
    return level + numbers[kind, FEEDBACK] * heat + numbers[kind, PRUNING] * dropped


@njit(cache=True, inline="always")
def shape_at(score: float, edges: FloatArray, guide: IntArray) -> int:
    """Index in a cloud of the shape at a normal score: how many edges lie at or below it."""
    step = (min(max(score, -GUIDE_REACH), GUIDE_REACH) + GUIDE_REACH) * GUIDE_PER_UNIT
    index = guide[int(step)]
    while index < edges.shape[0] and edges[index] <= score:
        index += 1
    return index


@njit(cache=True, inline="always")
def _regime(cumulative: FloatArray, kind: int, u: float) -> int:
    for r in range(3):
        if u < cumulative[kind, r]:
            return r
    return 3


@njit(cache=True)
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
    values, counts = state
    measured, chosen, has_ended = out
    mass, uniform = np.empty(level_sizes.shape[0]), np.empty((3, slot.shape[0]))
    draw_uniforms(seed, request_id, token_index, uniform)
    for i in range(slot.shape[0]):
        if not samples[i]:
            chosen[TOKEN_ID, i] = chosen[SHAPE_INDEX, i] = -1
            has_ended[i] = False
            for m in range(measured.shape[0]):
                measured[m, i] = np.nan
            continue
        s, k = slot[i], kind[i]
        level = next_level(
            numbers, regimes, values, counts, seed, s, request_id[i], token_index[i], k, dropped[i], uniform[0, i],
            uniform[1, i],
        )  # fmt: skip
        pick = shape_at((level - numbers[k, CENTER]) * numbers[k, SCALE], edges, guide)
        gap, slope, curve = cloud[k, pick, GAP], cloud[k, pick, SLOPE], cloud[k, pick, CURVE]
        log_raw, h_raw, v_raw = cloud[k, pick, RAW_LOG_Z], cloud[k, pick, RAW_H], cloud[k, pick, RAW_V]
        t = min(max(temperature[s], low), high)
        if target[s] == target[s]:
            t = solve_temperature(gap, slope, curve, num_outcomes, target[s], t, low, high)
        if t < GREEDY_BELOW:
            rank, logit, log_total, h, v = 0, 0.0, 0.0, 0.0, 0.0
        else:
            total, log_total, h, v = tempered(gap, slope, curve, t, level_sizes, mass)
            if min_p[s] == min_p[s] or top_h[s] == top_h[s] or mirostat_mu[s] == mirostat_mu[s]:
                kept = kept_outcomes(
                    gap, slope, curve, t, num_outcomes, log_total, h, min_p[s], top_h[s], mirostat_mu[s]
                )
                total = prefix_weight(gap, slope, curve, t, kept)
                rank, logit = draw_rank(gap, slope, curve, t, num_outcomes, total, kept, uniform[2, i])
            else:
                rank, logit = draw_level(gap, slope, curve, level_sizes, mass, uniform[2, i] * total)
            log_total -= logit / t
        values[s, LAST_T] = t
        ended = False
        end_slope = numbers[k, END_SLOPE]
        if end_slope == end_slope:
            e0, e1, _, _ = philox_words(seed, streams.END, request_id[i], token_index[i], 0)
            ended = unit_fine(e0, e1) * (1.0 + math.exp(-(numbers[k, END_INTERCEPT] + end_slope * h_raw))) < 1.0
        chosen[TOKEN_ID, i], chosen[SHAPE_INDEX, i], has_ended[i] = rank, pick, ended
        measured[ENTROPY_RAW, i], measured[VARENTROPY_RAW, i] = h_raw, v_raw
        measured[ENTROPY, i], measured[VARENTROPY, i] = h, v
        measured[SURPRISAL, i], measured[SURPRISAL_RAW, i] = log_total, log_raw - logit
        measured[TEMPERATURE, i] = t


@dataclass(frozen=True, kw_only=True)
class EntropyProcess:
    """The laws of all kinds over one vocabulary. `source` says what they were fitted to."""

    vocab: int
    laws: tuple[KindLaw, ...]
    source: str = ""

    def __post_init__(self) -> None:
        if self.vocab < 2:
            raise InputError(f"EntropyProcess.vocab must be at least 2, got {self.vocab}")
        names = [law.name for law in self.laws]
        if not names or len(set(names)) != len(names):
            raise InputError(f"EntropyProcess needs distinct kinds, got {names}")

    def table_for(self, kind_names: tuple[str, ...]) -> LawTable:
        """The laws in the order of a run's kinds; a kind without a law of its own takes the one called "any"."""
        known = {law.name: law for law in self.laws}
        chosen = []
        for name in kind_names:
            law = known.get(name) or known.get("any")
            if law is None:
                raise InputError(
                    f"no entropy law for request kind {name!r} and none called 'any'; known: {list(known)}"
                )
            chosen.append(law)
        return law_table(tuple(chosen), self.vocab)
