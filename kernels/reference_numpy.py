"""NumPy twins of the laws on logits, for the simulator and the controllers: float64, torch-free.

Each has the signature and the meaning of its torch twin in `reference.py`; tests hold the two together.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernels.laws import (
    SOLVE_ITERATIONS,
    SOLVE_TOLERANCE_NATS,
    LogitStats,
    TopkEntropy,
    check_sampling,
    check_topk,
    solve_bracket,
)
from kernels.philox import uniform, uniform_fine

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]


class _Moments(NamedTuple):
    """At one temperature: ln sum e^y, entropy, varentropy, with y = (z - max) / T."""

    log_total: Float
    entropy: Float
    varentropy: Float


def _moments(x: Float, temperature: Float) -> _Moments:
    """x: [rows, n] logits minus their row maximum, -inf allowed; temperature: [rows] > 0."""
    with np.errstate(over="ignore"):
        y = np.maximum(x / temperature[:, None], -800.0)  # e**-800 is exactly 0 in float64
    e = np.exp(y)
    total = e.sum(axis=1)
    mean = (e * y).sum(axis=1) / total
    spread = y - mean[:, None]
    varentropy = (e * spread * spread).sum(axis=1) / total
    log_total = np.log(total)
    return _Moments(log_total, np.clip(log_total - mean, 0.0, np.log(x.shape[1])) + 0.0, varentropy)


def _solve_temperature(x: Float, start: Float, target: Float, low: float, high: float) -> Float:
    """T with H(T) = target per row: Newton in u = ln T with slope V, safeguarded by a bracket (see `laws`)."""
    u_low, u_high = (np.full(x.shape[0], v) for v in solve_bracket(low, high))
    u = np.clip(np.log(np.maximum(start, 1e-30)), u_low, u_high)
    previous = np.full(x.shape[0], np.inf)
    ends = np.zeros(x.shape[0], dtype=bool)
    first, last = u_low.copy(), u_high.copy()
    for _ in range(SOLVE_ITERATIONS):
        moments = _moments(x, np.exp(u))
        gap = target - moments.entropy
        ends |= ((u >= last) & (gap >= 0.0)) | ((u <= first) & (gap <= 0.0))
        todo = ~ends & (np.abs(gap) > SOLVE_TOLERANCE_NATS)
        if not todo.any():
            break
        u_low = np.where(todo & (gap > 0.0), u, u_low)
        u_high = np.where(todo & (gap < 0.0), u, u_high)
        newton = u + gap / np.maximum(moments.varentropy, 1e-12)
        stalled = np.abs(gap) > 0.5 * previous
        # A step that leaves the bracket goes to its end while that end is still the clamp, else to the middle.
        newton = np.where((newton >= u_high) & (u_high == last) & ~stalled, last, newton)
        newton = np.where((newton <= u_low) & (u_low == first) & ~stalled, first, newton)
        inside = ((newton > u_low) & (newton < u_high)) | (newton == last) | (newton == first)
        step = np.where(inside & ~stalled, newton, 0.5 * (u_low + u_high))
        previous = np.abs(gap)
        u = np.where(todo, step, u)
    return np.exp(u)


def _truncate(y: Float, entropy: Float, log_total: Float, min_p, top_h, mu) -> Bool:
    """Tokens kept by min-p, top-H and Mirostat, each judged on the tempered distribution before any truncation.

    y: [rows, n] tempered logits, maximum 0. All three keep a prefix of the tokens in falling probability (ties by
    index), so together they keep the shortest of the three, and at least the most likely token.
    """
    rows, n = y.shape
    order = np.argsort(-y, axis=1, kind="stable")
    sorted_y = np.take_along_axis(y, order, axis=1)
    count = np.full(rows, n, dtype=np.int64)
    if min_p is not None:
        with np.errstate(divide="ignore"):
            floor = np.where(np.isnan(min_p), -np.inf, np.log(np.where(np.isnan(min_p), 1.0, min_p)))
        count = np.minimum(count, (sorted_y >= floor[:, None]).sum(axis=1))
    if mu is not None:
        limit = np.where(np.isnan(mu), np.inf, mu)
        count = np.minimum(count, (log_total[:, None] - sorted_y <= limit[:, None]).sum(axis=1))
    if top_h is not None:
        finite = np.maximum(sorted_y, -800.0)
        e = np.exp(finite)
        total, weighted = np.cumsum(e, axis=1), np.cumsum(e * finite, axis=1)
        prefix_entropy = np.log(total) - weighted / total
        limit = np.where(np.isnan(top_h), np.inf, np.where(np.isnan(top_h), 1.0, top_h) * entropy)
        count = np.minimum(count, (prefix_entropy <= limit[:, None] + 1e-12).sum(axis=1))
    kept = np.zeros((rows, n), dtype=bool)
    np.put_along_axis(kept, order, np.arange(n)[None, :] < np.maximum(count, 1)[:, None], axis=1)
    return kept


def logit_stats(
    logits: ArrayLike,
    temperature: ArrayLike,
    *,
    seed: int,
    request_id: ArrayLike,
    token_index: ArrayLike,
    stream: int = 0,
    target_entropy_nats: ArrayLike | None = None,
    temperature_min: float = 0.0,
    temperature_max: float = float("inf"),
    min_p: ArrayLike | None = None,
    top_h: ArrayLike | None = None,
    mirostat_mu_nats: ArrayLike | None = None,
    sampler: str = "gumbel",
) -> LogitStats:
    """Statistics and one sample per row of logits [rows, n]; see `laws.LogitStats` for fields and laws."""
    z = np.asarray(logits, dtype=np.float64)
    if z.ndim != 2 or z.shape[1] < 1:
        raise ValueError(f"logits must have shape [rows, n] with n >= 1, got {list(z.shape)}")
    rows, n = z.shape

    def per_row(values, dtype=np.float64):
        return None if values is None else np.broadcast_to(np.asarray(values, dtype=dtype), (rows,))

    t, target = per_row(temperature), per_row(target_entropy_nats)
    min_p, top_h, mu = per_row(min_p), per_row(top_h), per_row(mirostat_mu_nats)
    request, token = per_row(request_id, np.int64), per_row(token_index, np.int64)
    assert t is not None
    check_sampling(t, target, temperature_min, temperature_max, min_p, top_h, sampler)

    top = z.max(axis=1) if rows else np.zeros(0)
    bad = ~np.isfinite(top)
    with np.errstate(invalid="ignore"):
        x = np.where(bad[:, None], 0.0, z - top[:, None])
    raw = _moments(x, np.ones(rows))
    applied = np.clip(t, temperature_min, temperature_max)
    applied = np.where(applied > 0.0, np.maximum(applied, 1e-30), 0.0)
    if target is not None:
        solve = ~np.isnan(target) & ~bad
        if solve.any():
            applied = applied.copy()
            applied[solve] = _solve_temperature(
                x[solve], np.where(applied > 0.0, applied, 1.0)[solve], target[solve], temperature_min, temperature_max
            )
    greedy = applied == 0.0
    positive = np.where(greedy, 1.0, applied)
    tempered = _moments(x, positive)
    with np.errstate(over="ignore"):
        y = x / positive[:, None]
    best = np.argmax(x, axis=1) if rows else np.zeros(0, np.int64)
    if min_p is None and top_h is None and mu is None:
        weights_y = y
    else:
        weights_y = np.where(_truncate(y, tempered.entropy, tempered.log_total, min_p, top_h, mu), y, -np.inf)
    if sampler == "gumbel":
        lanes = uniform(seed, stream, request[:, None], token[:, None], np.arange(n)[None, :])
        drawn = np.argmax(weights_y - np.log(-np.log(lanes)), axis=1) if rows else best
    else:
        cumulative = np.cumsum(np.exp(weights_y), axis=1)
        point = uniform_fine(seed, stream, request, token) * cumulative[:, -1]
        drawn = np.argmax(cumulative > point[:, None], axis=1) if rows else best
    choice = np.where(greedy, best, drawn)
    x_choice = np.take_along_axis(x, choice[:, None], axis=1)[:, 0]
    y_choice = np.where(greedy, 0.0, x_choice / positive)
    nan = np.where(bad, np.nan, 0.0)
    return LogitStats(
        log_sum_exp=np.where(bad, 0.0, top) + raw.log_total + nan,
        entropy_raw_nats=raw.entropy + nan,
        varentropy_raw_nats2=raw.varentropy + nan,
        entropy_nats=np.where(greedy, 0.0, tempered.entropy) + nan,
        varentropy_nats2=np.where(greedy, 0.0, tempered.varentropy) + nan,
        max_probability=np.exp(-raw.log_total) + nan,
        token_id=np.where(bad, -1, choice).astype(np.int64),
        surprisal_nats=np.where(greedy, 0.0, np.maximum(tempered.log_total - y_choice, 0.0)) + nan,
        surprisal_raw_nats=np.maximum(raw.log_total - x_choice, 0.0) + nan,
        temperature_applied=applied,
    )


def topk_entropy(logits: ArrayLike, k: int) -> TopkEntropy:
    """Entropy of each row of logits [rows, n] from its k largest probabilities; see `laws.TopkEntropy`."""
    z = np.asarray(logits, dtype=np.float64)
    n = z.shape[1]
    k = check_topk(k, n)
    top = z.max(axis=1)
    bad = ~np.isfinite(top)
    with np.errstate(invalid="ignore"):
        x = np.maximum(np.where(bad[:, None], 0.0, z - top[:, None]), -800.0)
    log_total = np.log(np.exp(x).sum(axis=1))
    split = np.partition(x, n - k, axis=1)
    log_p = split[:, n - k :] - log_total[:, None]
    p = np.exp(log_p)
    rest = np.exp(split[:, : n - k] - log_total[:, None]).sum(axis=1)
    head = np.maximum(-(p * log_p).sum(axis=1), 0.0)
    nan = np.where(bad, np.nan, 0.0)
    smallest = log_p[:, 0] if k else np.zeros_like(rest)
    with np.errstate(divide="ignore", invalid="ignore"):
        lower = head + np.where(rest > 0.0, -rest * smallest, 0.0)
        upper = head + np.where(rest > 0.0, rest * (np.log(max(n - k, 1)) - np.log(rest)), 0.0)
    kept = p.sum(axis=1)
    return TopkEntropy(
        entropy_topk_nats=head + nan,
        entropy_renormalised_nats=np.maximum(head / kept + np.log(kept), 0.0) + nan,
        entropy_corrected_nats=0.5 * (lower + np.maximum(lower, upper)) + nan,
        lower_nats=lower + nan,
        upper_nats=np.maximum(lower, upper) + nan,
        tail_mass=rest + nan,
    )
