"""Torch twins of the ops that choose: blocks to keep, positions to reveal, and the top-k entropy bracket."""

import math

import torch
from torch import Tensor

from kernels.laws import (
    KEEP_ALL,
    KEEP_LEAST_MASS,
    KEEP_TOP_BLOCKS,
    KEEP_WINDOW,
    TopkEntropy,
    check_keep_rules,
    check_reveal,
    check_topk,
)


def _per_row(values, rows: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.as_tensor(values, device=device).to(dtype).expand(rows)


def topk_entropy(logits: Tensor, k: int) -> TopkEntropy:
    """Entropy of each row of logits [rows, n] from its k largest probabilities; see `laws.TopkEntropy`. float32."""
    if logits.ndim != 2 or not logits.is_floating_point():
        raise ValueError(f"logits must be floats of shape [rows, n], got {logits.dtype} {list(logits.shape)}")
    n = logits.shape[1]
    k = check_topk(k, n)
    z = logits.float()
    largest, where = z.topk(k, dim=1)
    top = z.amax(dim=1)
    bad = ~top.isfinite()
    x = torch.where(bad[:, None], 0.0, z - top[:, None]).clamp_min(-120.0)
    e = x.exp().double()
    log_total = e.sum(dim=1).log()
    rest = e.scatter(1, where, 0.0).sum(dim=1) / log_total.exp()
    log_p = torch.where(bad[:, None], 0.0, largest - top[:, None]).clamp_min(-120.0).double() - log_total[:, None]
    p = log_p.exp()
    head = -(p * log_p).sum(dim=1)
    some = rest > 0.0
    lower = head + torch.where(some, -rest * log_p[:, -1], 0.0)
    upper = head + torch.where(some, rest * (math.log(max(n - k, 1)) - rest.clamp_min(1e-300).log()), 0.0)
    upper = torch.maximum(lower, upper)
    kept = p.sum(dim=1)
    nan = torch.where(bad, float("nan"), 0.0)
    columns = (
        head.clamp_min(0.0),
        (head / kept + kept.log()).clamp_min(0.0),
        0.5 * (lower + upper),
        lower,
        upper,
        rest,
    )
    return TopkEntropy(*((column + nan).float() for column in columns))


def keep_blocks(
    score: Tensor,
    mass: Tensor | None,
    num_blocks: Tensor,
    *,
    rule: Tensor,
    mass_budget: Tensor,
    block_budget_frac: Tensor,
    sink_blocks: Tensor,
    recent_blocks: Tensor,
) -> Tensor:
    """Which KV blocks each row keeps: bool [rows, max_blocks], False beyond `num_blocks`; see `laws.KEEP_*`.

    score: [rows, max_blocks], decides the order; mass: what a dropped block spends (None: its score). The rest: [rows].
    """
    score = score.double()
    mass = score if mass is None else mass.double()
    rows, max_blocks = score.shape
    device = score.device
    rule, filled, sinks, recent = (
        _per_row(v, rows, torch.int64, device) for v in (rule, num_blocks, sink_blocks, recent_blocks)
    )
    budget, frac = (_per_row(v, rows, torch.float64, device) for v in (mass_budget, block_budget_frac))
    check_keep_rules(score.shape, mass.shape, filled, rule, budget, frac, sinks, recent)
    index = torch.arange(max_blocks, device=device)[None, :]
    inside = index < filled[:, None]
    middle = (index >= sinks[:, None]) & (index < (filled - recent)[:, None])
    free = middle & ~score.isnan() & ~mass.isnan()
    order = torch.where(free, score, float("inf")).sort(dim=1, stable=True).indices
    # Blocks that may not go sort behind those that may, also where a score is +inf.
    order = order.gather(1, (~free).gather(1, order).to(torch.int8).sort(dim=1, stable=True).indices)
    place = index < free.sum(dim=1)[:, None]
    spent = torch.where(place, mass.gather(1, order), 0.0).cumsum(dim=1)
    surplus = (filled - (frac * filled - 1e-9).ceil().to(torch.int64)).clamp_min(0)
    least = place & (spent > budget[:, None]).cumsum(dim=1).eq(0) & (rule == KEEP_LEAST_MASS)[:, None]
    worst = place & (index < surplus[:, None]) & (rule == KEEP_TOP_BLOCKS)[:, None]
    dropped = torch.zeros_like(free).scatter(1, order, least | worst)
    dropped |= middle & (rule == KEEP_WINDOW)[:, None]
    return inside & ~(dropped & (rule != KEEP_ALL)[:, None])


def reveal_prefix(
    rank: Tensor,
    cost: Tensor,
    masked: Tensor,
    budget: Tensor,
    include_crossing: Tensor,
    min_count: Tensor,
    max_count: Tensor,
) -> Tensor:
    """Positions to reveal, bool [rows, length]; the law is in `laws.check_reveal`. rank, cost, masked: [rows, length]."""
    rows, length = masked.shape
    device = masked.device
    cost, budget = cost.double(), _per_row(budget, rows, torch.float64, device)
    crossing = _per_row(include_crossing, rows, torch.bool, device)
    low, high = _per_row(min_count, rows, torch.int64, device), _per_row(max_count, rows, torch.int64, device)
    check_reveal(rank.shape, cost, masked, budget, low, high)
    order = torch.where(masked, rank.to(torch.int64), torch.iinfo(torch.int64).max).sort(dim=1, stable=True).indices
    num_masked = masked.sum(dim=1)
    index = torch.arange(length, device=device)[None, :]
    place = index < num_masked[:, None]
    spent = torch.where(place, cost.gather(1, order), 0.0).cumsum(dim=1)
    count = (place & (spent <= budget[:, None])).sum(dim=1) + crossing
    count = torch.minimum(torch.minimum(torch.maximum(count, low), high), num_masked)
    return torch.zeros_like(masked).scatter(1, order, index < count[:, None])
