"""Does the fitted entropy process look like texts it has not seen? Quantiles, autocorrelation, dwell times, and a test.

Every held-out recorded text gets a simulated twin of the same kind, length and temperatures. Compared are

    marginal         Wasserstein distance between the entropies of all tokens, nats
    tail             difference of their 99 % quantiles, nats
    autocorrelation  mean difference, over lags 1 to 8, of the rank autocorrelation within texts
    dwell            Wasserstein distance between the lengths of stays above and below the median, tokens

Tokens of one text depend on each other, and so do texts of one prompt, so a test that takes tokens for independent
rejects good models. Here a whole prompt is the unit: under the null hypothesis its recorded texts and their twins may
be swapped, all together, and the p-value is the share of random swaps with a statistic at least as large. That holds its
size whatever the dependence inside. Intervals are a bootstrap over prompts.
Source: ours; permutation of clusters as in Good, Permutation, Parametric and Bootstrap Tests of Hypotheses.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit
from scipy.stats import rankdata, wasserstein_distance

from sims.entropy_process import RAW_H, EntropyProcess, LawTable
from sims.recorded import RecordedTokens
from sims.token_draws import FRESH, LAST_T, ProcessState, draw_uniforms, new_state, next_scores, shape_at
from workbench.errors import InputError
from workbench.signals import FloatArray, IntArray

LAGS = 16
TESTED_LAGS = 8
QUANTILES = np.array([0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99])
MIN_PROMPTS = 6

Texts = Sequence[FloatArray]


@dataclass(frozen=True)
class Comparison:
    """One statistic: its value, and how often chance alone gives as much."""

    name: str
    value: float
    p_value: float


@dataclass(frozen=True)
class GoodnessOfFit:
    """Recorded against simulated, held-out texts only. Bands are 95 % intervals over prompts, [2, ..]."""

    comparisons: tuple[Comparison, ...]
    quantiles: tuple[FloatArray, FloatArray]  # at `QUANTILES`, nats: recorded, simulated
    quantile_band: FloatArray  # of the recorded ones
    autocorrelation: tuple[FloatArray, FloatArray]  # lags 1 .. LAGS
    autocorrelation_band: FloatArray
    dwell: tuple[FloatArray, FloatArray]  # lengths of stays, tokens
    num_prompts: int
    num_texts: int
    num_tokens: int

    @property
    def smallest_p(self) -> float:
        """Of all comparisons together, by Bonferroni."""
        return min(1.0, len(self.comparisons) * min(c.p_value for c in self.comparisons))

    def figures(self) -> dict[str, float]:
        out = {"fit_p_value": self.smallest_p, "fit_prompts": float(self.num_prompts)}
        for c in self.comparisons:
            out |= {f"fit_{c.name}": c.value, f"fit_{c.name}_p": c.p_value}
        return out


def split_by_prompt(tokens: RecordedTokens, share: float, seed: int) -> tuple[RecordedTokens, RecordedTokens]:
    """(to fit, held out): whole prompts, `share` of those of each kind held out."""
    rng, held = np.random.default_rng(seed), []
    for kind in np.unique(tokens.kind):
        prompts = np.unique(tokens.prompt[tokens.kind == kind])
        held.append(rng.permutation(prompts)[: max(1, round(share * prompts.size))])
    out = np.isin(tokens.prompt, np.concatenate(held))
    return tokens.where(~out), tokens.where(out)


def goodness_of_fit(
    held_out: RecordedTokens, process: EntropyProcess, *, swaps: int = 499, seed: int = 0
) -> GoodnessOfFit:
    """Raises `InputError` where there are too few prompts to tell anything."""
    edges = np.flatnonzero(np.diff(held_out.text, prepend=-1))
    prompt = held_out.prompt[edges]
    clusters = [np.flatnonzero(prompt == p) for p in np.unique(prompt)]
    if len(clusters) < MIN_PROMPTS:
        raise InputError(f"{len(clusters)} held-out prompts are too few to judge a fit; {MIN_PROMPTS} are needed")
    recorded = np.split(held_out.entropy_raw_nats, edges[1:])
    simulated = np.split(twins(held_out, process, seed), edges[1:])
    rng = np.random.default_rng(seed)
    compared = {name: compare(recorded, simulated, clusters, test, swaps, rng) for name, test in TESTS.items()}
    median = float(np.median(held_out.entropy_raw_nats))
    draws = [rng.integers(len(clusters), size=len(clusters)) for _ in range(200)]
    again = [[recorded[i] for c in draw for i in clusters[c]] for draw in draws]
    return GoodnessOfFit(
        comparisons=tuple(Comparison(name, *pair) for name, pair in compared.items()),
        quantiles=(_quantiles(recorded), _quantiles(simulated)),
        quantile_band=np.quantile([_quantiles(texts) for texts in again], [0.025, 0.975], axis=0),
        autocorrelation=(autocorrelation(recorded, LAGS), autocorrelation(simulated, LAGS)),
        autocorrelation_band=np.nanquantile([autocorrelation(t, LAGS) for t in again], [0.025, 0.975], axis=0),
        dwell=(dwell_tokens(recorded, median), dwell_tokens(simulated, median)),
        num_prompts=len(clusters),
        num_texts=len(recorded),
        num_tokens=len(held_out),
    )


def twins(tokens: RecordedTokens, process: EntropyProcess, seed: int) -> FloatArray:
    """H_raw of a simulated token for every recorded one: same texts, kinds and temperatures of the tokens before."""
    known = {law.name for law in process.laws}
    names = tuple(dict.fromkeys(str(k) if str(k) in known else "any" for k in tokens.kind))
    kind = np.array([names.index(str(k) if str(k) in known else "any") for k in tokens.kind])
    before = np.concatenate([[1.0], tokens.temperature_applied[:-1]])
    uniform = np.empty((3, len(tokens)))
    draw_uniforms(seed, tokens.text, tokens.token_index, uniform)
    return _twins(
        process.table_for(names), new_state(1), seed, tokens.text, tokens.token_index, kind,
        np.nan_to_num(before, nan=1.0), np.nan_to_num(tokens.dropped_mass), uniform,
    )  # fmt: skip


@njit(cache=True)
def _twins(
    law: LawTable, state: ProcessState, seed: int, text: IntArray, token: IntArray, kind: IntArray, before: FloatArray,
    dropped: FloatArray, uniform: FloatArray,
) -> FloatArray:  # fmt: skip
    out, slot = np.empty(text.shape[0]), np.zeros(1, np.int64)
    for i in range(text.shape[0]):
        if i == 0 or text[i] != text[i - 1]:
            state.counts[FRESH, 0] = 1
        else:
            state.values[LAST_T, 0] = before[i]
        here = slice(i, i + 1)
        next_scores(
            law.numbers, law.regimes, state.values, state.counts, seed, slot, text[here], token[here], kind[here],
            dropped[here], uniform[:, here], out[here],
        )  # fmt: skip
        out[i] = law.cloud[kind[i], shape_at(out[i], law.edges, law.guide), RAW_H]
    return out


def compare(
    recorded: Texts, simulated: Texts, clusters: Sequence[IntArray], statistic: Callable[[Texts, Texts], float],
    swaps: int, rng: np.random.Generator,
) -> tuple[float, float]:  # fmt: skip
    """(statistic, p-value) by swapping whole clusters of texts with their twins."""
    value, as_large = statistic(recorded, simulated), 0
    for _ in range(swaps):
        swapped = np.zeros(len(recorded), bool)
        for c in np.flatnonzero(rng.random(len(clusters)) < 0.5):
            swapped[clusters[c]] = True
        one = [b if s else a for a, b, s in zip(recorded, simulated, swapped, strict=True)]
        two = [a if s else b for a, b, s in zip(recorded, simulated, swapped, strict=True)]
        as_large += statistic(one, two) >= value
    return value, (1 + as_large) / (1 + swaps)


def autocorrelation(texts: Texts, lags: int) -> FloatArray:
    """[lags] rank autocorrelation within texts, pooled; ranks over all tokens."""
    flat = np.concatenate(list(texts))
    ranks = rankdata(flat)
    scores = np.split((ranks - ranks.mean()) / (ranks.std() or 1.0), np.cumsum([t.size for t in texts])[:-1])
    return np.array([
        np.mean(np.concatenate([s[k:] * s[:-k] for s in scores if s.size > k]))
        if any(s.size > k for s in scores) else np.nan
        for k in range(1, lags + 1)
    ])  # fmt: skip


def dwell_tokens(texts: Texts, level: float) -> FloatArray:
    """Lengths of all stays above or below `level`, stays cut by a text's end included."""
    out = []
    for text in texts:
        above = text > level
        turns = np.flatnonzero(above[1:] != above[:-1]) + 1
        out.append(np.diff(np.concatenate([[0], turns, [text.size]])))
    return np.concatenate(out).astype(float)


def _quantiles(texts: Texts) -> FloatArray:
    return np.quantile(np.concatenate(list(texts)), QUANTILES)


def _marginal(one: Texts, two: Texts) -> float:
    return float(wasserstein_distance(np.concatenate(list(one)), np.concatenate(list(two))))


def _tail(one: Texts, two: Texts) -> float:
    return abs(float(np.quantile(np.concatenate(list(one)), 0.99) - np.quantile(np.concatenate(list(two)), 0.99)))


def _autocorrelation(one: Texts, two: Texts) -> float:
    return abs(float(np.nanmean(autocorrelation(one, TESTED_LAGS) - autocorrelation(two, TESTED_LAGS))))


def _dwell(one: Texts, two: Texts) -> float:
    median = float(np.median(np.concatenate([*one, *two])))
    return float(wasserstein_distance(dwell_tokens(one, median), dwell_tokens(two, median)))


TESTS = {"marginal": _marginal, "tail": _tail, "autocorrelation": _autocorrelation, "dwell": _dwell}
