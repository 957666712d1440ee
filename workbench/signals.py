"""The signals everything here is steered by. Read this file first.

A language model gives one logit vector z per token, over n outcomes. At temperature T the next token is drawn
from p = softmax(z / T). All quantities are in nats. With u = ln T:

    entropy        H = -sum p ln p                  0 <= H <= ln n
    varentropy     V = Var_p(ln p)                  V >= 0, zero exactly when p is uniform on its support
    surprisal      -ln p[token] of the sampled token
    plant gain     dH/du = V                        so H never falls when T rises

*Raw* means T = 1 and no truncation; *tempered* means at the T used, before truncation. Only the temperature loop
regulates tempered H; scheduler, pruning, router and entropic time read raw H, so that no controller moves its
own yardstick. A missing measurement is NaN, never a number.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def entropy_and_varentropy(logits: FloatArray, temperature: FloatArray | float = 1.0) -> tuple[FloatArray, FloatArray]:
    """Entropy (nats) and varentropy (nats^2) of softmax(logits / temperature) along the last axis, in float64.

    logits: [..., n], -inf allowed (probability zero). temperature: scalar or [...], at least 0; 0 means greedy,
    H = V = 0. A row that holds NaN, +inf, or only -inf has no distribution: both results are NaN there.
    """
    z = np.asarray(logits, dtype=np.float64)
    t = np.broadcast_to(np.asarray(temperature, dtype=np.float64), z.shape[:-1])
    if np.any(~(t >= 0.0)) or np.any(np.isinf(t)):
        raise ValueError(f"temperature must be in [0, inf), got {temperature!r}; 0 means greedy")
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        top = z.max(axis=-1, keepdims=True)
        bad = ~np.isfinite(top[..., 0]) | np.isnan(z).any(axis=-1)
        x = (z - top) / np.where(t > 0.0, t, 1.0)[..., None]
        e = np.exp(x)
        total = e.sum(axis=-1)
        # A term with probability zero contributes zero: 0 * -inf is taken out before it can become NaN.
        ex = np.where(e > 0.0, e * np.where(e > 0.0, x, 0.0), 0.0)
        mean = ex.sum(axis=-1) / total
        centred = np.where(e > 0.0, x, 0.0) - mean[..., None]
        varentropy = (e * centred * centred).sum(axis=-1) / total
        entropy = np.log(total) - mean
    entropy = np.where(t == 0.0, 0.0, np.maximum(entropy, 0.0))
    varentropy = np.where(t == 0.0, 0.0, varentropy)
    return np.where(bad, np.nan, entropy + 0.0), np.where(bad, np.nan, varentropy + 0.0)


@dataclass(frozen=True)
class EntropicTime:
    """Entropic time of one entropy trace H_0 .. H_t, always shown with what it hides (all in nats).

    tau = sum max(0, H_{s-1} - H_s) = (net_drop + total_variation) / 2 exactly, so tau rewards oscillation:
    a trace that goes nowhere can score high. Source: arXiv 2603.03310 for tau; the identity is ours.
    """

    tau_nats: float
    net_drop_nats: float
    total_variation_nats: float


def entropic_time(entropy_raw_nats: FloatArray) -> EntropicTime:
    """`EntropicTime` of a trace [t]. Missing values are bridged: a drop is taken between measured neighbours."""
    trace = np.asarray(entropy_raw_nats, dtype=np.float64)
    trace = trace[~np.isnan(trace)]
    if trace.size < 2:
        return EntropicTime(0.0, 0.0, 0.0)
    steps = np.diff(trace)
    return EntropicTime(
        tau_nats=float(np.maximum(-steps, 0.0).sum()),
        net_drop_nats=float(trace[0] - trace[-1]),
        total_variation_nats=float(np.abs(steps).sum()),
    )


def max_varentropy(num_outcomes: int) -> float:
    """The largest varentropy (nats^2) any distribution over n outcomes can have.

    max over p of p (1 - p) (ln((n - 1) p / (1 - p)))^2: one atom of probability p against n - 1 equal ones. It is
    below ln^2(n - 1) / 4 + 1 for every n >= 2. With x = logit p and a = ln(n - 1), the maximum solves
    tanh(x / 2) (a + x) = 2, which has one root x > 0.
    Source: ours; the ball-arithmetic certificate is `workbench prove max-varentropy`.
    """
    if num_outcomes < 2:
        raise ValueError(f"num_outcomes must be at least 2, got {num_outcomes}")
    a = float(np.log(num_outcomes - 1.0))
    # tanh(x / 2) - 2 / (a + x) rises on x > 0, so bisection cannot fail.
    x, low, high = 0.0, 0.0, 4.0
    for _ in range(80):
        x = 0.5 * (low + high)
        low, high = (x, high) if np.tanh(x / 2.0) < 2.0 / (a + x) else (low, x)
    return float((a + x) ** 2 / (4.0 * np.cosh(x / 2.0) ** 2))
