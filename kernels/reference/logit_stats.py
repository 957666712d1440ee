"""Torch twin of `logit_stats`: float32 statistics at T = 1 and at the row's T, in-step laws, and one sample."""

import torch
from torch import Tensor

from kernels.laws import (
    SOLVE_ITERATIONS,
    SOLVE_TOLERANCE_NATS,
    LogitStats,
    check_sampling,
    float32_at_most,
    solve_bracket,
)
from kernels.philox import philox4x32, split_seed

# exp(-120) is exactly 0 in float32, so clamping there changes no term and no -inf is ever multiplied by 0.
FLOOR = -120.0


def philox_uniform(seed: int, stream: int, request_id: Tensor, token_index: Tensor, num_lanes: int) -> Tensor:
    """Uniform draws [rows, num_lanes] in float32: the torch twin of `kernels.philox.uniform` at lanes 0, 1, ..."""
    device = request_id.device
    block = torch.arange((num_lanes + 3) // 4, dtype=torch.int64, device=device)[None, :]
    request, token = (v.to(torch.int64)[:, None] & 0xFFFFFFFF for v in (request_id, token_index))
    zero = torch.zeros((), dtype=torch.int64, device=device)
    words = philox4x32(
        block + zero * token, token + zero * block, request + zero * block, zero + stream, *split_seed(seed)
    )
    x = torch.stack(torch.broadcast_tensors(*words), dim=-1).reshape(request.shape[0], -1)[:, :num_lanes]
    return ((x >> 9).to(torch.float32) + 0.5) * 2.0**-23


def philox_uniform_fine(seed: int, stream: int, request_id: Tensor, token_index: Tensor) -> Tensor:
    """Twin of `kernels.philox.uniform_fine`: float64 [rows] with 46 bits."""
    lanes = philox_uniform(seed, stream, request_id, token_index, 2).to(torch.float64)
    return ((lanes[:, 0] * 2.0**23 - 0.5) + lanes[:, 1]) * 2.0**-23


def _moments(x: Tensor, temperature: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(tempered logits, ln sum exp, H, V) of x = z - max at T (None: 1), float32; V from centred terms."""
    y = x if temperature is None else x / temperature[:, None]
    y = y.clamp_min(FLOOR)
    e = y.exp()
    total = e.sum(dim=1)
    mean = (e * y).sum(dim=1) / total
    spread = y - mean[:, None]
    varentropy = (e * spread.square_()).sum(dim=1) / total
    log_total = total.log()
    entropy = (log_total - mean).clamp(0.0, float32_at_most(float(torch.tensor(float(x.shape[1])).double().log())))
    return y, log_total, entropy, varentropy


def _solve_temperature(x: Tensor, start: Tensor, target: Tensor, low: float, high: float) -> Tensor:
    """T with H(T) = target per row; the law of `laws.SOLVE_*`."""
    first, last = solve_bracket(low, high)
    # float32 ends, so that a step that lands on an end is recognised exactly.
    first, last = float(torch.tensor(first)), float(torch.tensor(last))
    u_low, u_high = torch.full_like(start, first), torch.full_like(start, last)
    u = start.clamp_min(1e-30).log().clamp(first, last)
    previous = torch.full_like(u, float("inf"))
    ended = torch.zeros_like(u, dtype=torch.bool)
    for _ in range(SOLVE_ITERATIONS):
        _, _, entropy, varentropy = _moments(x, u.exp())
        gap = target - entropy
        ended |= ((u >= last) & (gap >= 0.0)) | ((u <= first) & (gap <= 0.0))
        todo = ~ended & (gap.abs() > SOLVE_TOLERANCE_NATS) & (u_high - u_low > 1e-6)
        if not bool(todo.any()):
            break
        u_low = torch.where(todo & (gap > 0.0), u, u_low)
        u_high = torch.where(todo & (gap < 0.0), u, u_high)
        newton = u + gap / varentropy.clamp_min(1e-12)
        stalled = gap.abs() > 0.5 * previous
        newton = torch.where((newton >= u_high) & (u_high == last), last, newton)
        newton = torch.where((newton <= u_low) & (u_low == first), first, newton)
        inside = ((newton > u_low) & (newton < u_high)) | (newton == last) | (newton == first)
        step = torch.where(inside & ~stalled, newton, 0.5 * (u_low + u_high))
        previous = gap.abs()
        u = torch.where(todo, step, u)
    return u.exp().clamp(max(low, 0.0), high)


def _truncate(y: Tensor, entropy: Tensor, log_total: Tensor, min_p, top_h, mu) -> Tensor:
    """Bool [rows, n]: tokens that pass min-p, top-H and Mirostat; a prefix in falling probability, never empty."""
    rows, n = y.shape
    sorted_y, order = y.sort(dim=1, descending=True, stable=True)
    count = torch.full((rows,), n, dtype=torch.int64, device=y.device)
    if min_p is not None:
        floor = torch.where(min_p.isnan(), 0.0, min_p).log()
        count = torch.minimum(count, (sorted_y >= floor[:, None]).sum(dim=1))
    if mu is not None:
        limit = torch.where(mu.isnan(), float("inf"), mu)
        count = torch.minimum(count, (log_total[:, None] - sorted_y <= limit[:, None]).sum(dim=1))
    if top_h is not None:
        wide = sorted_y.double()
        e = wide.exp()
        total, weighted = e.cumsum(dim=1), (e * wide).cumsum(dim=1)
        limit = torch.where(top_h.isnan(), float("inf"), torch.where(top_h.isnan(), 1.0, top_h) * entropy)
        count = torch.minimum(count, (total.log() - weighted / total <= limit.double()[:, None] + 1e-6).sum(dim=1))
    kept = torch.arange(n, device=y.device)[None, :] < count.clamp_min(1)[:, None]
    return torch.zeros_like(kept).scatter_(1, order, kept)


def logit_stats(
    logits: Tensor,
    temperature: Tensor,
    *,
    seed: int,
    request_id: Tensor,
    token_index: Tensor,
    stream: int = 0,
    target_entropy_nats: Tensor | None = None,
    temperature_min: float = 0.0,
    temperature_max: float = float("inf"),
    min_p: Tensor | None = None,
    top_h: Tensor | None = None,
    mirostat_mu_nats: Tensor | None = None,
    sampler: str = "gumbel",
) -> LogitStats:
    """Statistics and one sample per row of logits [rows, n] (float32, bf16 or float16); see `laws.LogitStats`.

    temperature, target_entropy_nats, min_p, top_h, mirostat_mu_nats: [rows] floats. request_id, token_index: [rows]
    integers. Raises ValueError on a shape, a temperature or a law's number outside its range.
    """
    if logits.ndim != 2 or logits.shape[1] < 1 or not logits.is_floating_point():
        raise ValueError(f"logits must be floats of shape [rows, n], n >= 1, got {logits.dtype} {list(logits.shape)}")
    rows, device = logits.shape[0], logits.device

    def per_row(name: str, values, dtype=torch.float32):
        if values is None:
            return None
        values = torch.as_tensor(values, device=device).to(dtype)
        if values.shape not in ((), (rows,)):
            raise ValueError(f"{name} must have shape [rows] = [{rows}], got {list(values.shape)}")
        return values.expand(rows)

    t, target = per_row("temperature", temperature), per_row("target_entropy_nats", target_entropy_nats)
    min_p, top_h = per_row("min_p", min_p), per_row("top_h", top_h)
    mu = per_row("mirostat_mu_nats", mirostat_mu_nats)
    request, token = per_row("request_id", request_id, torch.int64), per_row("token_index", token_index, torch.int64)
    check_sampling(t, target, temperature_min, temperature_max, min_p, top_h, sampler)

    z = logits.to(torch.float32)
    top, best = z.max(dim=1)
    bad = ~top.isfinite()
    x = torch.where(bad[:, None], 0.0, z - top[:, None])
    x_floored, raw_total, raw_entropy, raw_varentropy = _moments(x, None)
    applied = t.clamp(temperature_min, temperature_max)
    applied = torch.where(applied > 0.0, applied.clamp_min(1e-30), 0.0)
    if target is not None:
        solve = ~target.isnan() & ~bad
        if bool(solve.any()):
            start = torch.where(applied > 0.0, applied, 1.0)[solve]
            applied = applied.clone()
            applied[solve] = _solve_temperature(x[solve], start, target[solve], temperature_min, temperature_max)
    greedy = applied == 0.0
    if bool(((applied == 1.0) | greedy).all()):
        y, log_total, entropy, varentropy = x_floored, raw_total, raw_entropy, raw_varentropy
    else:
        y, log_total, entropy, varentropy = _moments(x, torch.where(greedy, 1.0, applied))
    choice = best
    if not bool(greedy.all()):
        # Probability zero must never be drawn: the floor is a finite number, so it is taken out here.
        weights = torch.where(y > FLOOR, y, float("-inf"))
        if min_p is not None or top_h is not None or mu is not None:
            weights = weights.masked_fill(~_truncate(weights, entropy, log_total, min_p, top_h, mu), float("-inf"))
        if sampler == "gumbel":
            lanes = philox_uniform(seed, stream, request, token, z.shape[1])
            drawn = (weights - (-lanes.log()).log()).argmax(dim=1)
        else:
            cumulative = weights.exp().cumsum(dim=1, dtype=torch.float64)
            point = philox_uniform_fine(seed, stream, request, token)[:, None] * cumulative[:, -1:]
            drawn = torch.searchsorted(cumulative, point, right=True)[:, 0].clamp_max(z.shape[1] - 1)
        choice = torch.where(greedy, best, drawn)
    x_choice = x.gather(1, choice[:, None])[:, 0]
    y_choice = y.gather(1, choice[:, None])[:, 0]
    nan = torch.where(bad, float("nan"), 0.0)
    return LogitStats(
        log_sum_exp=torch.where(bad, 0.0, top) + raw_total + nan,
        entropy_raw_nats=raw_entropy + nan,
        varentropy_raw_nats2=raw_varentropy + nan,
        entropy_nats=torch.where(greedy, 0.0, entropy) + nan,
        varentropy_nats2=torch.where(greedy, 0.0, varentropy) + nan,
        max_probability=(-raw_total).exp() + nan,
        token_id=torch.where(bad, -1, choice),
        surprisal_nats=torch.where(greedy, 0.0, (log_total - y_choice).clamp_min(0.0)) + nan,
        surprisal_raw_nats=(raw_total - x_choice).clamp_min(0.0) + nan,
        temperature_applied=applied,
    )
