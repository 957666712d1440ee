"""From a trace or a generator to the requests of a run: when they come, how long they are, of which kind.

A trace is sliced, then its times are scaled; lengths stay as recorded. Where no trace is at hand `azure_like` draws
requests from the quantiles of the Azure 2023 traces (`azure_2023.json`); its name says so and reports repeat it.

Every draw is Philox of (seed, stream, index of the request), so asking for more requests never changes the first ones.
"""

import json
import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import gamma, rankdata

from kernels.philox import uniform, uniform_fine
from sims import streams
from sims.traces import Trace
from workbench.engine.requests import RequestSpec
from workbench.errors import InputError, unknown_name
from workbench.signals import FloatArray, IntArray

GENERATORS = ("azure-code", "azure-conversation")


@dataclass(frozen=True, kw_only=True)
class KindMix:
    """Kinds of requests, in rising typical entropy, with the share of each.

    length_coupling rho in [-1, 1]: the rank correlation, through a Gaussian copula, between a request's output length and
    the place of its kind in this list. 0: kinds do not depend on length.
    """

    names: tuple[str, ...] = ("any",)
    weights: tuple[float, ...] = (1.0,)
    length_coupling: float = 0.0

    def __post_init__(self) -> None:
        if not self.names or len(self.names) != len(self.weights) or len(set(self.names)) != len(self.names):
            raise InputError(f"KindMix needs one weight a kind and distinct names, got {self.names} and {self.weights}")
        if not all(0.0 <= w < math.inf for w in self.weights) or sum(self.weights) <= 0.0:
            raise InputError(f"KindMix.weights must be in [0, inf) with a positive sum, got {self.weights}")
        if not -1.0 <= self.length_coupling <= 1.0:
            raise InputError(f"KindMix.length_coupling must be in [-1, 1], got {self.length_coupling}")

    def draw(self, seed: int, output_tokens: IntArray) -> IntArray:
        """Kind index of each request."""
        n = output_tokens.shape[0]
        noise = ndtri(uniform(seed, streams.KIND, np.arange(n), 0))
        rho = self.length_coupling
        rank = ndtri((rankdata(output_tokens) - 0.5) / n) if rho else 0.0
        level = rho * rank + math.sqrt(1.0 - rho * rho) * noise
        edges = ndtri(np.clip(np.cumsum(self.weights)[:-1] / sum(self.weights), 0.0, 1.0))
        return np.searchsorted(edges, level).astype(np.int64)


ANY_KIND = KindMix()


def requests_from_trace(
    trace: Trace,
    *,
    first: int = 0,
    count: int | None = None,
    rate_multiplier: float = 1.0,
    rate_per_s: float | None = None,
    kinds: KindMix = ANY_KIND,
    seed: int = 0,
) -> RequestSpec:
    """`count` requests from index `first`, times scaled by 1 / rate_multiplier or to a mean rate.

    Raises `InputError` for an empty slice or a rate that is not positive.
    """
    last = len(trace) if count is None else first + count
    if not 0 <= first < len(trace) or last <= first:
        raise InputError(f"slice [{first}, {last}) of {trace.name} is empty; it has {len(trace):,} requests")
    rows = slice(first, min(last, len(trace)))
    arrival = trace.arrival_s[rows] - trace.arrival_s[first]
    return _spec(
        _rescaled(arrival, rate_multiplier, rate_per_s),
        trace.prompt_tokens[rows],
        trace.output_tokens[rows],
        kinds,
        seed,
    )


def _rescaled(arrival_s: FloatArray, rate_multiplier: float, rate_per_s: float | None) -> FloatArray:
    if not 0.0 < rate_multiplier < math.inf:
        raise InputError(f"rate_multiplier must be in (0, inf), got {rate_multiplier}")
    if rate_per_s is None:
        return arrival_s / rate_multiplier
    if not 0.0 < rate_per_s < math.inf:
        raise InputError(f"rate_per_s must be in (0, inf), got {rate_per_s}")
    span = float(arrival_s[-1])
    if span == 0.0:
        raise InputError("all requests of the slice arrive at once; it has no rate to scale")
    return arrival_s * ((arrival_s.size - 1) / span / (rate_per_s * rate_multiplier))


def _spec(arrival_s: FloatArray, prompt: IntArray, output: IntArray, kinds: KindMix, seed: int) -> RequestSpec:
    return RequestSpec(
        arrival_s=np.ascontiguousarray(arrival_s),
        prompt_tokens=np.ascontiguousarray(prompt),
        output_tokens=np.ascontiguousarray(output),
        kind=kinds.draw(seed, output),
        priority=np.zeros(output.shape[0], np.int64),
        kind_names=kinds.names,
    )


# Arrival times: [n] seconds from 0.


def poisson_arrivals(count: int, rate_per_s: float, seed: int) -> FloatArray:
    """Independent exponential gaps of mean 1 / rate."""
    return gamma_arrivals(count, rate_per_s, 1.0, seed)


def gamma_arrivals(count: int, rate_per_s: float, gap_cv: float, seed: int) -> FloatArray:
    """Independent gamma gaps of mean 1 / rate and coefficient of variation `gap_cv`: below 1 smooth, above 1 bursty."""
    _check(count, rate_per_s)
    if not 0.0 < gap_cv < math.inf:
        raise InputError(f"gap_cv must be in (0, inf), got {gap_cv}")
    draws = uniform_fine(seed, streams.ARRIVAL, np.arange(count), 0)
    if gap_cv == 1.0:
        gaps = -np.log1p(-draws)
    else:
        shape = 1.0 / gap_cv**2
        gaps = gamma.ppf(draws, shape, scale=1.0 / shape)
    return np.cumsum(gaps) / rate_per_s


def modulated_arrivals(count: int, rates_per_s: tuple[float, ...], dwell_s: float, seed: int) -> FloatArray:
    """Markov-modulated Poisson: a rate holds for an exponential time of mean `dwell_s`, then another is drawn evenly.

    Each arrival needs a unit-mean exponential amount of integrated rate, so time is the inverse of that integral.
    """
    _check(count, max(rates_per_s, default=0.0))
    if len(rates_per_s) < 2 or min(rates_per_s) < 0.0 or not 0.0 < dwell_s < math.inf:
        raise InputError(
            f"modulated arrivals need two rates of at least 0 and a dwell time above 0, got {rates_per_s}, {dwell_s}"
        )
    rates = np.array(rates_per_s)
    need = np.cumsum(-np.log1p(-uniform_fine(seed, streams.ARRIVAL, np.arange(count), 0)))
    phases = int(4 * need[-1] / (rates.mean() * dwell_s)) + 64
    while True:
        stay = -dwell_s * np.log1p(-uniform_fine(seed, streams.ARRIVAL, np.arange(phases), 1))
        jump = uniform(seed, streams.ARRIVAL, np.arange(phases), 2)
        # The next rate is any of the others: step 1 .. k - 1 places on.
        state = np.cumsum(1 + (jump * (rates.size - 1)).astype(np.int64)) % rates.size
        mass = np.concatenate([[0.0], np.cumsum(stay * rates[state])])
        if mass[-1] >= need[-1]:
            break
        phases *= 2
    edge = np.concatenate([[0.0], np.cumsum(stay)])
    phase = np.searchsorted(mass, need, side="left") - 1
    return edge[phase] + (need - mass[phase]) / rates[state[phase]]


def _check(count: int, rate_per_s: float) -> None:
    if count < 1:
        raise InputError(f"count must be at least 1, got {count}")
    if not 0.0 < rate_per_s < math.inf:
        raise InputError(f"rate_per_s must be in (0, inf), got {rate_per_s}")


# Requests like those of a published trace.


@cache
def _quantiles() -> dict:
    return json.loads((files("sims") / "azure_2023.json").read_text())


def _quantile_draw(levels: FloatArray, values: FloatArray, u: FloatArray, mean: float) -> FloatArray:
    """Inverse of the tabulated quantile function, scaled to the published mean."""
    table = np.interp(u, levels, values)
    dense = np.interp(np.linspace(0.0, 1.0, 200_001), levels, values)
    return table * (mean / dense.mean())


def azure_lengths(name: str, count: int, seed: int) -> tuple[IntArray, IntArray]:
    """Prompt and output tokens like the named Azure trace: its quantiles, its rank correlation (Gaussian copula)."""
    if name not in GENERATORS:
        raise unknown_name("generator", name, GENERATORS)
    table, index = _quantiles()[name], np.arange(count)
    levels = np.array(_quantiles()["levels"])
    first = ndtri(uniform_fine(seed, streams.LENGTH, index, 0))
    rho = 2.0 * math.sin(math.pi / 6.0 * table["rank_correlation"])  # Pearson of the copula from Spearman
    second = rho * first + math.sqrt(1.0 - rho * rho) * ndtri(uniform_fine(seed, streams.LENGTH, index, 1))
    lengths = [
        _quantile_draw(levels, np.array(table[f"{part}_tokens"]), ndtr(z), table[f"{part}_mean"])
        for part, z in (("prompt", first), ("output", second))
    ]
    prompt, output = (np.maximum(np.rint(v), 1.0).astype(np.int64) for v in lengths)
    return prompt, output


def azure_arrivals(name: str, count: int, seed: int) -> FloatArray:
    """Independent gaps with the quantiles of the named trace. Its runs of bursts are not reproduced: gaps of the code
    trace correlate (rank correlation 0.15), these do not."""
    if name not in GENERATORS:
        raise unknown_name("generator", name, GENERATORS)
    table, levels = _quantiles()[name], np.array(_quantiles()["levels"])
    u = uniform_fine(seed, streams.ARRIVAL, np.arange(count), 0)
    gaps = _quantile_draw(levels, np.array(table["gap_s"]), u, table["gap_mean_s"])
    return np.cumsum(gaps) - gaps[0]


def azure_like(
    name: str,
    count: int,
    *,
    rate_multiplier: float = 1.0,
    rate_per_s: float | None = None,
    kinds: KindMix = ANY_KIND,
    seed: int = 0,
) -> RequestSpec:
    """Requests like the named Azure trace, for machines without it. Raises `InputError`."""
    _check(count, 1.0)
    prompt, output = azure_lengths(name, count, seed)
    arrival = _rescaled(azure_arrivals(name, count, seed), rate_multiplier, rate_per_s if count > 1 else None)
    return _spec(arrival, prompt, output, kinds, seed)


def requests_at(
    arrival_s: FloatArray, prompt_tokens: IntArray, output_tokens: IntArray, *, kinds: KindMix = ANY_KIND, seed: int = 0
) -> RequestSpec:
    """Requests from given times and lengths. Raises `InputError` for unsorted or negative times, lengths below 1."""
    if not (arrival_s.shape == prompt_tokens.shape == output_tokens.shape) or arrival_s.size == 0:
        raise InputError("arrival times and lengths must be nonempty and of one shape")
    if np.any(np.diff(arrival_s) < 0.0) or arrival_s[0] < 0.0 or not np.all(np.isfinite(arrival_s)):
        raise InputError("arrival times must be finite, sorted and at least 0")
    if prompt_tokens.min() < 1 or output_tokens.min() < 1:
        raise InputError("prompt and output lengths must be at least 1 token")
    return _spec(arrival_s, prompt_tokens, output_tokens, kinds, seed)
