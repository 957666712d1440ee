"""Entropy of a distribution when only its most probable outcomes are known.

A server often shows the top k log-probabilities only. With p_1 >= ... >= p_k of mass 1 - r, H_k = -sum p ln p over them and n
outcomes in all,

    H_k + r ln(1/p_k)  <=  H  <=  H_k + r ln((n - k) / r)                                           `Bracket`

for the lower end the tail is as spiky as p_k allows, for the upper end it is uniform. Point estimates:

    Exact           all n outcomes
    TopK            entropy of the top k renormalised: never above H, nor above the lower end of the bracket
    TailCorrected   the tail continues the power law of the upper half of the top k, rescaled to mass r and cut at p_k;
                    can err either way, and is kept within the bracket
    Bracket         the middle of the bracket

`estimate` takes log-probabilities of the *whole* distribution's scale (ln p, not renormalised), at the temperature they
were drawn with; anything processed (truncated, divided by T) is not a distribution's logarithm and is refused.
Source: bracket ours, `workbench prove entropy-bracket`.
"""

from dataclasses import dataclass

import numpy as np

from workbench.errors import InputError
from workbench.signals import FloatArray


@dataclass(frozen=True)
class EntropyEstimate:
    """Arrays [rows], nats. lower <= H <= upper always; `entropy_nats` is the point value a law is fed with."""

    entropy_nats: FloatArray
    lower_nats: FloatArray
    upper_nats: FloatArray
    varentropy_nats2: FloatArray  # of the same distribution the point value belongs to


def log_probabilities(logits: FloatArray, temperature: FloatArray | float = 1.0) -> FloatArray:
    """ln softmax(logits / T) along the last axis in float64; T > 0, scalar or [rows]."""
    z = np.asarray(logits, dtype=np.float64) / np.asarray(temperature, dtype=np.float64)[..., None]
    z = z - z.max(axis=-1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=-1, keepdims=True))


def top_log_probabilities(logits: FloatArray, k: int, temperature: FloatArray | float = 1.0) -> FloatArray:
    """The k largest ln p [rows, min(k, n)], falling: what a server with a logprobs option returns."""
    logp = log_probabilities(logits, temperature)
    return -np.sort(-logp, axis=-1)[..., : max(k, 1)]


def _bracket(top: FloatArray, num_outcomes: int) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """(H_k, r, lower, upper) of checked top log-probabilities [rows, k]."""
    top = np.asarray(top, dtype=np.float64)
    rows, k = top.shape
    if not 1 <= k <= num_outcomes:
        raise InputError(f"top log-probabilities need 1 <= k <= n = {num_outcomes}, got {k}; clip k to the vocabulary")
    p = np.exp(top)
    mass = p.sum(axis=1)
    if np.isnan(top).any() or np.any(top > 1e-9) or np.any(mass > 1.0 + 1e-6):
        worst = float(np.nanmax(mass)) if rows else 0.0
        raise InputError(
            f"top log-probabilities must be ln p of one distribution, mass at most 1, got {worst:.6g}; "
            "use raw log-probabilities, not processed ones"
        )
    h_k = -(p * np.where(p > 0.0, top, 0.0)).sum(axis=1)
    r = np.zeros(rows) if k == num_outcomes else np.clip(1.0 - mass, 0.0, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        lower = h_k + np.where(r > 0.0, -r * top[:, -1], 0.0)
        upper = h_k + np.where(r > 0.0, r * np.log((num_outcomes - k) / r), 0.0)
    # Rounding of r must not turn the ends round.
    return h_k, r, np.minimum(lower, upper), np.maximum(lower, upper)


def _varentropy(p: FloatArray, logp: FloatArray, mean: FloatArray) -> FloatArray:
    logp = np.where(p > 0.0, logp, 0.0)
    return np.maximum((p * (logp + mean[:, None]) ** 2).sum(axis=1), 0.0)


@dataclass(frozen=True)
class Exact:
    """All outcomes: k = n."""

    name: str = "exact"

    def estimate(self, logp: FloatArray, num_outcomes: int) -> EntropyEstimate:
        """logp: [rows, n]."""
        if logp.shape[1] != num_outcomes:
            raise InputError(f"Exact needs all {num_outcomes} log-probabilities, got {logp.shape[1]}; use Bracket")
        h, _, _, _ = _bracket(logp, num_outcomes)
        return EntropyEstimate(h, h, h, _varentropy(np.exp(logp), logp, h))


@dataclass(frozen=True)
class TopK:
    """Renormalised top k: H_k / (1 - r) + ln(1 - r)."""

    k: int = 20
    name: str = "top-k"

    def __post_init__(self) -> None:
        _check_k(self)

    def estimate(self, logp: FloatArray, num_outcomes: int) -> EntropyEstimate:
        """logp: [rows, m], falling; the first k are used."""
        top = logp[:, : self.k]
        _, r, lower, upper = _bracket(top, num_outcomes)
        q = np.exp(top - np.log1p(-np.minimum(r, 1.0 - 1e-300))[:, None])
        q /= q.sum(axis=1, keepdims=True)
        logq = np.log(np.maximum(q, 1e-300))
        h = -(q * logq).sum(axis=1)
        return EntropyEstimate(np.maximum(h, 0.0), lower, upper, _varentropy(q, logq, h))


@dataclass(frozen=True)
class TailCorrected:
    """Tail as a power law: fitted to ranks k/2 .. k, continued to rank n, cut at p_k, rescaled to mass r."""

    k: int = 20
    name: str = "tail-corrected"

    def __post_init__(self) -> None:
        _check_k(self)

    def estimate(self, logp: FloatArray, num_outcomes: int) -> EntropyEstimate:
        """logp: [rows, m], falling; the first k are used."""
        top = logp[:, : self.k]
        h_k, r, lower, upper = _bracket(top, num_outcomes)
        k = top.shape[1]
        p = np.exp(top)
        second_moment = (p * np.where(p > 0.0, top, 0.0) ** 2).sum(axis=1)
        if k == num_outcomes:
            return EntropyEstimate(h_k, lower, upper, np.maximum(second_moment - h_k**2, 0.0))
        x = np.log(np.arange(1, k + 1))[k // 2 :]
        y = np.maximum(top[:, k // 2 :], -700.0)
        centred = x - x.mean()
        slope = (y @ centred) / (centred @ centred) if x.size > 1 else np.full(top.shape[0], -1.0)
        exponent = np.clip(-slope, 0.0, 20.0)[:, None]
        # Ranks beyond k, grouped geometrically: `count` ranks of about the same probability each.
        edges = np.unique(np.geomspace(k, num_outcomes, 200).astype(np.int64))
        count = np.diff(edges).astype(np.float64)
        rank = np.sqrt((edges[:-1] + 1.0) * edges[1:])
        shape = np.exp(-exponent * np.log(rank / k))
        with np.errstate(divide="ignore", invalid="ignore"):
            tail = np.minimum(r[:, None] * shape / (shape * count).sum(axis=1, keepdims=True), p[:, -1:])
            tail *= np.where(r > 0.0, r / np.maximum((tail * count).sum(axis=1), 1e-300), 0.0)[:, None]
            log_tail = np.where(tail > 0.0, np.log(np.maximum(tail, 1e-300)), 0.0)
        h = np.clip(h_k - (count * tail * log_tail).sum(axis=1), lower, upper)
        moment = second_moment + (count * tail * log_tail**2).sum(axis=1)
        return EntropyEstimate(h, lower, upper, np.maximum(moment - h**2, 0.0))


@dataclass(frozen=True)
class Bracket:
    """The middle of the bracket as point value; half its width bounds the error."""

    k: int = 20
    name: str = "bracket"

    def __post_init__(self) -> None:
        _check_k(self)

    def estimate(self, logp: FloatArray, num_outcomes: int) -> EntropyEstimate:
        """logp: [rows, m], falling; the first k are used."""
        top = logp[:, : self.k]
        h_k, r, lower, upper = _bracket(top, num_outcomes)
        p = np.exp(top)
        h = 0.5 * (lower + upper)
        # The tail as equal outcomes of the probability that gives it the middle entropy.
        with np.errstate(divide="ignore", invalid="ignore"):
            log_tail = np.where(r > 0.0, -(h - h_k) / r, 0.0)
        moment = (p * np.where(p > 0.0, top, 0.0) ** 2).sum(axis=1) + r * log_tail**2
        return EntropyEstimate(h, lower, upper, np.maximum(moment - h**2, 0.0))


def _check_k(estimator: TopK | TailCorrected | Bracket) -> None:
    if estimator.k < 1:
        raise InputError(f"{type(estimator).__name__}.k must be at least 1, got {estimator.k}; servers offer 20")


Estimator = Exact | TopK | TailCorrected | Bracket
