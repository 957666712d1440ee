"""Entropy laws by kind from recorded tokens: cloud of shapes, autocorrelation, request share, trends, feedback, hazard.

With y the normal scores of H_raw within a kind (ranks to normal quantiles), a text of t tokens has

    y ~ N(0, (1 - share) phi^|i - j| + share)

and phi and share are the maximum of that likelihood over texts, exactly. Regimes are told from the fitted law's own
noise: a text is convergent or divergent when its rank correlation of y with time lies beyond the 5 % or 95 % quantile
of that law's simulated texts, oscillating when its largest spectral peak does; what noise alone would give (5 %) is taken off.
Feedback of temperature and pruning is the regression of y_k - phi y_{k-1} on T_{k-1} and dropped mass, where they
varied; the end hazard is a logistic regression of ending on H_raw.
Source: ours.
"""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtri
from scipy.stats import rankdata

from sims.entropy_process import REGIMES, KindLaw, law_table
from sims.recorded import RecordedTokens
from sims.shape_fit import fit_shapes, shape_errors
from sims.token_draws import draw_uniforms, new_state, next_scores
from workbench.errors import InputError
from workbench.signals import FloatArray, IntArray

MIN_TOKENS = 50  # of a kind, below which it has no law of its own
MIN_TEXT = 24  # tokens of a text, below which its trend is not judged
TAIL = 0.05


@dataclass(frozen=True)
class EntropyFit:
    laws: tuple[KindLaw, ...]
    shares: tuple[float, ...]  # of tokens, in the order of `laws`
    figures: dict[str, float]


def fit_entropy(tokens: RecordedTokens, vocab: int, *, max_shapes: int = 512, seed: int = 0) -> EntropyFit:
    """Raises `InputError` where there are too few tokens. Kinds come in rising mean entropy, then "any" for all."""
    if len(tokens) < MIN_TOKENS:
        raise InputError(
            f"{len(tokens)} recorded tokens are too few to fit entropies; at least {MIN_TOKENS} are needed"
        )
    shapes = fit_shapes(tokens.entropy_at, tokens.varentropy_at, tokens.temperatures, vocab)
    sound = np.isfinite(shapes).all(axis=1)
    tokens, shapes = tokens.where(sound), shapes[sound]
    errors = np.abs(shape_errors(shapes, tokens.entropy_at, tokens.temperatures, vocab))
    figures = {
        f"shape_error_mean_nats_at_{t:g}": float(e) for t, e in zip(tokens.temperatures, errors.mean(0), strict=True)
    }
    figures["shape_error_p99_nats"] = float(np.quantile(errors, 0.99))
    figures["tokens"] = float(len(tokens))
    names = [str(n) for n in np.unique(tokens.kind) if np.count_nonzero(tokens.kind == n) >= MIN_TOKENS and n != "any"]
    means = {n: float(tokens.entropy_raw_nats[tokens.kind == n].mean()) for n in names}
    names = sorted(names, key=means.__getitem__)
    feedback = _feedback(tokens)
    laws = []
    for name in [*names, "any"]:
        rows = np.ones(len(tokens), bool) if name == "any" else tokens.kind == name
        laws.append(replace(_fit_kind(name, tokens.where(rows), shapes[rows], max_shapes, seed), **feedback))
    counts = np.array([np.count_nonzero(tokens.kind == n) for n in names] or [1.0], float)
    shares = tuple((counts / counts.sum()).tolist())
    return EntropyFit(tuple(laws), shares, figures)


def _fit_kind(name: str, tokens: RecordedTokens, shapes: FloatArray, max_shapes: int, seed: int) -> KindLaw:
    y = normal_scores(tokens.entropy_raw_nats)
    texts = split_texts(tokens.text, y)
    phi, share = fit_copula(texts)
    # The cloud: evenly spaced quantiles of H_raw, so that a few hundred shapes carry the marginal.
    order = np.argsort(tokens.entropy_raw_nats, kind="stable")
    pick = order[
        ((np.arange(min(max_shapes, len(order))) + 0.5) / min(max_shapes, len(order)) * len(order)).astype(int)
    ]
    law = KindLaw(name=name, shapes=shapes[pick], autocorrelation=phi, request_share=share)
    weights, amplitude, trends = _regimes(texts, phi, share, law.settle_tokens, seed)
    # Trends told apart, what is left decides autocorrelation and share.
    phi, share = fit_copula([y - trend for y, trend in zip(texts, trends, strict=True)])
    intercept, slope = _hazard(tokens)
    law = replace(
        law, autocorrelation=phi, request_share=share, regime_weights=weights, amplitude=amplitude,
        end_intercept=intercept, end_slope=slope,
    )  # fmt: skip
    levels = simulated_levels(law, 2000, int(np.median([y.size for y in texts])), seed)
    return replace(law, center=float(levels.mean()), scale=float(levels.std()))


def simulated_levels(law: KindLaw, texts: int, tokens: int, seed: int) -> FloatArray:
    """[texts, tokens] latent levels y of the law at T = 1 without pruning, before center and scale."""
    table = law_table((replace(law, center=0.0, scale=1.0),), 2)
    state, rows = new_state(texts), np.arange(texts)
    kind, dropped = np.zeros(texts, np.int64), np.zeros(texts)
    uniform, out = np.empty((3, texts)), np.empty((tokens, texts))
    for k in range(tokens):
        token = np.full(texts, k)
        draw_uniforms(seed, rows, token, uniform)
        next_scores(
            table.numbers, table.regimes, state.values, state.counts, seed, rows, rows, token, kind, dropped, uniform, out[k]
        )  # fmt: skip
    return out.T


def normal_scores(values: FloatArray) -> FloatArray:
    return ndtri((rankdata(values) - 0.5) / values.size)


def split_texts(text: IntArray, values: FloatArray) -> list[FloatArray]:
    """Values of each text, in token order."""
    edges = np.flatnonzero(np.diff(text)) + 1
    return np.split(values, edges)


def log_likelihood(texts: list[FloatArray], phi: float, share: float) -> float:
    """Exact Gaussian log likelihood. The AR(1) part is whitened, the shared level added by the matrix determinant lemma."""
    own = 1.0 - share
    total = 0.0
    for y in texts:
        one = np.ones_like(y)
        white, ones = (np.concatenate([v[:1], (v[1:] - phi * v[:-1]) / np.sqrt(1.0 - phi * phi)]) for v in (y, one))
        quadratic, cross, gram = white @ white / own, white @ ones / own, ones @ ones / own
        log_det = y.size * np.log(own) + (y.size - 1) * np.log(1.0 - phi * phi)
        if share > 0.0:
            quadratic -= share * cross**2 / (1.0 + share * gram)
            log_det += np.log1p(share * gram)
        total -= 0.5 * (quadratic + log_det + y.size * np.log(2.0 * np.pi))
    return float(total)


def fit_copula(texts: list[FloatArray]) -> tuple[float, float]:
    """(phi, share) of maximum likelihood, phi in (-0.95, 0.95), share in [0, 0.95]."""

    def loss(x: FloatArray) -> float:
        return -log_likelihood(texts, 0.95 * np.tanh(x[0]), 0.95 / (1.0 + np.exp(-x[1])))

    starts = [np.array([0.3, -2.0]), np.array([0.8, 0.0])]
    best = min((minimize(loss, x, method="Nelder-Mead") for x in starts), key=lambda r: r.fun)
    return float(0.95 * np.tanh(best.x[0])), float(0.95 / (1.0 + np.exp(-best.x[1])))


def _statistics(y: FloatArray) -> tuple[float, float]:
    """(rank correlation with time, largest share of the spectrum in one frequency between 2 and t / 4 periods)."""
    ranks = rankdata(y)
    trend = float(np.corrcoef(np.arange(y.size), ranks)[0, 1]) if np.ptp(y) > 0.0 else 0.0
    power = np.abs(np.fft.rfft(y - y.mean())) ** 2
    band = power[2 : max(3, y.size // 4)]
    return trend, float(band.max() / max(power[1:].sum(), 1e-300))


def _regimes(
    texts: list[FloatArray], phi: float, share: float, settle: float, seed: int
) -> tuple[tuple[float, float, float, float], float, list[FloatArray]]:
    """(weights, amplitude, the trend of each text): see the module. Trends are 0 where none was found."""
    long = [i for i, y in enumerate(texts) if y.size >= MIN_TEXT]
    trends = [np.zeros_like(y) for y in texts]
    if len(long) < 5:
        return (1.0, 0.0, 0.0, 0.0), 0.5, trends
    found = np.zeros(4)
    drifts: list[tuple[int, int, float]] = []  # text, sign, move from its first to its last third
    for i in long:
        y = texts[i]
        low, high, peak = _noise_limits(y.size, round(phi, 3), seed)
        trend, power = _statistics(y)
        third = y.size // 3
        if trend < low or trend > high:
            found[1 if trend < low else 2] += 1.0
            drifts.append((i, -1 if trend < low else 1, abs(y[-third:].mean() - y[:third].mean())))
        elif power > peak:
            found[3] += 1.0
    frac = np.maximum(found / len(long) - TAIL, 0.0)
    frac[0] = max(1.0 - frac[1:].sum(), 0.0)
    amplitude = 0.5
    if drifts:
        # The approach 1 - exp(-k / settle) covers this share of the amplitude between the thirds of a typical text.
        size = int(np.median([texts[i].size for i, _, _ in drifts]))
        path = 1.0 - np.exp(-np.arange(1, size + 1) / settle)
        covered = path[-(size // 3) :].mean() - path[: size // 3].mean()
        amplitude = float(np.clip(np.median([move for _, _, move in drifts]) / covered, 0.2, 2.5))
        for i, sign, _ in drifts:
            trends[i] = sign * amplitude * (1.0 - np.exp(-np.arange(1, texts[i].size + 1) / settle))
    return (float(frac[0]), float(frac[1]), float(frac[2]), float(frac[3])), amplitude, trends


@cache
def _noise_limits(size: int, phi: float, seed: int) -> tuple[float, float, float]:
    """What an AR(1) text of `size` tokens shows by chance: trend quantiles at TAIL and 1 - TAIL, peak at 1 - TAIL."""
    kicks = np.random.default_rng(seed).normal(size=(400, size))
    noise = np.empty_like(kicks)
    noise[:, 0] = kicks[:, 0]
    for k in range(1, size):
        noise[:, k] = phi * noise[:, k - 1] + np.sqrt(1.0 - phi * phi) * kicks[:, k]
    both = np.array([_statistics(row) for row in noise])
    low, high = np.quantile(both[:, 0], [TAIL, 1.0 - TAIL])
    return float(low), float(high), float(np.quantile(both[:, 1], 1.0 - TAIL))


def _feedback(tokens: RecordedTokens) -> dict[str, float]:
    """Regression on what varied; the default where nothing did."""
    y = normal_scores(tokens.entropy_raw_nats)
    same = np.concatenate([[False], np.diff(tokens.text) == 0])
    now, before = np.flatnonzero(same), np.flatnonzero(same) - 1
    t = np.minimum(np.nan_to_num(tokens.temperature_applied[before], nan=1.0), 2.0) - 1.0
    dropped = np.nan_to_num(tokens.dropped_mass[now])
    columns, names = [np.ones(now.size), y[before]], []
    if t.std() > 0.05:
        columns.append(t)
        names.append("temperature_feedback")
    if dropped.std() > 0.002:
        columns.append(dropped)
        names.append("pruning_feedback")
    if not names:
        return {}
    design = np.column_stack(columns)
    coefficients = np.linalg.lstsq(design, y[now], rcond=None)[0]
    # A standing shift f gives y a lift f, of which the recursion already carries phi f.
    carry = 1.0 - np.clip(coefficients[1], 0.0, 0.9)
    return {name: float(np.clip(c / carry, -5.0, 5.0)) for name, c in zip(names, coefficients[2:], strict=True)}


def _hazard(tokens: RecordedTokens) -> tuple[float, float]:
    """Logistic regression of ending on H_raw; NaN where too few texts ended by themselves."""
    ended = tokens.ended.astype(float)
    if ended.sum() < 8:
        return float("nan"), float("nan")
    x = np.column_stack([np.ones(len(tokens)), tokens.entropy_raw_nats])

    def loss(b: FloatArray) -> float:
        z = x @ b
        return float(np.sum(np.logaddexp(0.0, z) - ended * z) + 0.005 * b[1] ** 2)

    b = minimize(loss, np.array([np.log(ended.mean()), 0.0]), method="BFGS").x
    return float(b[0]), float(b[1])


__all__ = ["REGIMES", "EntropyFit", "fit_copula", "fit_entropy", "log_likelihood", "normal_scores", "split_texts"]
