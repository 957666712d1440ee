"""What one engine step costs in seconds, joules, operations and bytes.

A `StepCost` is a table of dense time against tokens and a handful of rates, whoever made it: `sims.roofline` computes
one from a GPU and a model shape, `sims.calibrate` fits one to the recorded steps of a live run. With N tokens in the
batch, S rows that draw a token, P rows of prefill, and for row i c_i cached KV tokens read and q_i (query, key) pairs,

    t = host + S row + dense[N] + output[S] + P chunk + sum_i (c_i kv + max(0, q_i - c_i) pair)

A row's first pass over its keys is bound by memory, the further pairs of a prefill chunk by compute; a decode row has
one pair a key. dense[N] is a staircase (tiles, graph buckets) that never falls; beyond its last entry it grows with the slope of
its last half, so time is at least linear far out, and `outside` says that a step lay there.

Energy (ours): idle power all the time, plus the rest of the board power for the time that compute or memory, whichever
is longer, would take at its reachable rate: E = P_idle t + (P_peak - P_idle) min(t, max(flops / F, bytes / B)).
Source: ours; the roofline is Williams, Waterman, Patterson, CACM 52(4), 2009.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numba import njit

from kernels.philox import uniform
from sims import streams
from workbench.errors import InputError
from workbench.signals import FloatArray, IntArray


class StepRates(NamedTuple):
    """The numbers of a `StepCost` as compiled code reads them."""

    dense_s: FloatArray
    output_s: FloatArray
    host_s: float
    row_s: float
    kv_s_per_token: float
    pair_s: float
    dense_flop_per_token: float
    output_flop_per_sample: float
    attention_flop_per_pair: float
    weight_bytes: float
    kv_bytes_per_token: float
    power_idle_w: float
    power_peak_w: float
    flop_per_s: float
    bytes_per_s: float
    window_tokens: int
    chunk_s: float


@dataclass(frozen=True, kw_only=True)
class StepCost:
    """One model on one machine (a tensor-parallel group counts as one).

    dense_s[N]        layers, norms, collectives for N tokens, N = 0 .. max, padding to graph sizes included
    output_s[S]       output layer and sampling kernels for S rows
    host_s, row_s     scheduler, launch and detokenisation: a step, a row that draws a token
    kv_s_per_token    attention bound by memory: a cached token of KV read, all layers
    pair_s            attention bound by compute: a further query-key pair, all layers and heads
    flop_per_s, bytes_per_s   rates really reachable, used for energy only; power NaN: no power model
    window_tokens     sliding window, 0: full attention
    chunk_s           a row of prefill in a batch: kernels of its own
    mass_s            measuring attention masses, a step that decodes (where a keep rule asks for them)
    noise             quantiles of measured over predicted time, evenly spaced, mean 1; None: every step takes its mean
    source            how the numbers were come by, for reports
    """

    name: str
    dense_s: FloatArray
    output_s: FloatArray
    host_s: float
    row_s: float
    kv_s_per_token: float
    pair_s: float
    dense_flop_per_token: float
    output_flop_per_sample: float
    attention_flop_per_pair: float
    weight_bytes: float
    kv_bytes_per_token: float
    power_idle_w: float = np.nan
    power_peak_w: float = np.nan
    flop_per_s: float = np.inf
    bytes_per_s: float = np.inf
    window_tokens: int = 0
    chunk_s: float = 0.0
    mass_s: float = 0.0
    noise: FloatArray | None = None
    source: str = ""

    def __post_init__(self) -> None:
        for name in ("dense_s", "output_s"):
            table = getattr(self, name)
            if table.ndim != 1 or table.size < 2 or not np.all(np.isfinite(table)) or np.any(table < 0.0):
                raise InputError(f"StepCost.{name} must be a finite nonnegative table of at least 2 entries")
            if np.any(np.diff(table) < 0.0):
                raise InputError(f"StepCost.{name} falls with its argument; a step never gets cheaper by more tokens")
        if self.noise is not None and (self.noise.ndim != 1 or not self.noise.size or np.any(self.noise <= 0.0)):
            raise InputError("StepCost.noise must be a table of factors above 0")
        for name in ("host_s", "row_s", "kv_s_per_token", "pair_s", "chunk_s", "mass_s"):
            if not 0.0 <= getattr(self, name) < np.inf:
                raise InputError(f"StepCost.{name} must be in [0, inf), got {getattr(self, name)}")

    @cached_property
    def rates(self) -> StepRates:
        return StepRates(**{name: getattr(self, name) for name in StepRates._fields})

    def slowed(self, seed: int, step: int) -> float:
        """The factor by which step `step` of a run takes longer than its mean."""
        if self.noise is None:
            return 1.0
        return float(self.noise[int(uniform(seed, streams.STEP_NOISE, step, 0, 0) * self.noise.size)])

    @property
    def max_tokens(self) -> int:
        """The largest batch the table was made for."""
        return self.dense_s.size - 1

    def outside(self, num_tokens: IntArray) -> float:
        """Share of steps whose token count lay beyond the table."""
        tokens = np.asarray(num_tokens)
        return float(np.mean(tokens > self.max_tokens)) if tokens.size else 0.0

    def step_s(self, start: IntArray, num_tokens: IntArray, samples: np.ndarray) -> float:
        """Seconds of a step that reads every cached token. Shapes [rows]."""
        return float(step_totals(self.rates, start, num_tokens, samples, np.full(start.shape, -1.0))[0])


@njit(cache=True, inline="always")
def looked_up(table: FloatArray, index: int) -> float:
    """table[index], continued with the slope of its last half."""
    last = table.shape[0] - 1
    if index <= last:
        return table[index]
    half = last // 2
    return table[last] + (index - last) * (table[last] - table[half]) / (last - half)


@njit(cache=True, inline="always")
def attention_s(
    window: int, kv_s_per_token: float, pair_s: float, start: int, tokens: int, kv_read: float
) -> tuple[float, float, float]:
    """(seconds, pairs, KV tokens a dense pass reads) of one row. `kv_read` cached tokens; negative: all of them."""
    end = start + tokens
    if window > 0:
        first = start if start < window else window - 1
        dense = float(first + tokens)
        ramp = max(0, min(tokens, window - start))
        pairs = ramp * start + 0.5 * ramp * (ramp + 1) + (tokens - ramp) * float(window)
    else:
        dense = float(end)
        pairs = float(tokens) * start + 0.5 * tokens * (tokens + 1)
    read = dense if kv_read < 0.0 else min(kv_read, dense)
    if tokens == 1:
        pairs = read
    return read * kv_s_per_token + max(0.0, pairs - read) * pair_s, pairs, dense


@njit(cache=True)
def step_totals(
    rates: StepRates, start: IntArray, num_tokens: IntArray, samples: np.ndarray, kv_read_tokens: FloatArray
) -> tuple[float, float, float, float, float]:
    """(elapsed_s, energy_j, flops, kv_bytes_read, kv_bytes_dense). `kv_read_tokens` [rows]: negative means all.

    KV tokens of decode rows are summed before they are multiplied, so that a leap over many steps, which adds whole
    numbers to that sum, gets the same bits.
    """
    tokens, drawn = 0, 0
    # Read out of the tuple once: at every use it would count references.
    window, kv_s_per_token, pair_s, chunk_s = rates.window_tokens, rates.kv_s_per_token, rates.pair_s, rates.chunk_s
    decode_read, chunks_s, pairs, read, dense = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(start.shape[0]):
        tokens += num_tokens[i]
        drawn += samples[i]
        seconds, row_pairs, row_dense = attention_s(
            window, kv_s_per_token, pair_s, start[i], num_tokens[i], kv_read_tokens[i]
        )
        row_read = row_dense if kv_read_tokens[i] < 0.0 else min(kv_read_tokens[i], row_dense)
        if num_tokens[i] == 1:
            decode_read += row_read
        else:
            chunks_s += seconds + chunk_s
        pairs += row_pairs
        dense += row_dense
        read += row_read
    return totals_of(rates, tokens, drawn, decode_read, chunks_s, pairs, read, dense)


@njit(cache=True, inline="always")
def totals_of(
    rates: StepRates, tokens: int, drawn: int, decode_read: float, chunks_s: float, pairs: float, read: float,
    dense: float,
) -> tuple[float, float, float, float, float]:  # fmt: skip
    """`step_totals` from the sums over rows."""
    elapsed = (
        rates.host_s
        + drawn * rates.row_s
        + looked_up(rates.dense_s, tokens)
        + looked_up(rates.output_s, drawn)
        + (decode_read * rates.kv_s_per_token + chunks_s)
    )
    flops = (
        tokens * rates.dense_flop_per_token
        + drawn * rates.output_flop_per_sample
        + pairs * rates.attention_flop_per_pair
    )
    kv_read, kv_dense = read * rates.kv_bytes_per_token, dense * rates.kv_bytes_per_token
    busy = min(elapsed, max(flops / rates.flop_per_s, (rates.weight_bytes + kv_read) / rates.bytes_per_s))
    energy = rates.power_idle_w * elapsed + (rates.power_peak_w - rates.power_idle_w) * busy
    return elapsed, energy, flops, kv_read, kv_dense
