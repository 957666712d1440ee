"""A key sketch with its bits where they matter: own axes for each KV head, scales shared by groups of blocks, read in levels.

With M an invertible matrix of one KV head, k' = M k and q' = M^-T q have q.k = q'.k'. M is chosen so that the second
moments of k' (about its group's mean) and of q' are one and the same diagonal: then no other axes give a smaller product
of E|q'_d| and spread of k'_d. Within a group of blocks axis d spans [lower_d, lower_d + range_d]; a code of b_d bits leaves

    |q'.k' - q'.khat'| <= sum_d |q'_d| range_d 2^-(b_d + 1)

and the next bit goes to the axis whose term E|q'_d| range_d 2^-b_d is largest. Bits are stored in that order, one plane of
one axis after the other, so that the first p planes of a token are a sketch by themselves: a coarse one for every block, more
planes only for blocks that the coarse one leaves undecided; 0 planes are the box of the group.

Float arithmetic: the bound is widened by `slack`, which covers the rounding of k', q' and of the dot products, and what
M^-T M differs from the identity. Source: ours; reverse water-filling as in Cover and Thomas, 10.3; boxes after Quest.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

MOST_BITS = 8  # of one axis: a code is a byte
COARSE = 0.03  # share of the budget that blocks left out by a coarse level may use up


class SketchAxes(NamedTuple):
    """Of each KV head: axes and the order of bits. Fixed once, from queries and keys seen so far."""

    to_key: Tensor  # [kv_heads, d, d] M
    to_query: Tensor  # [kv_heads, d, d] M^-T
    plane_axis: Tensor  # [kv_heads, max_planes] int64, the axis each plane refines
    mismatch: Tensor  # [kv_heads] |q.k - q'.k'| <= mismatch |q| |k|, rounding included

    def bits(self, planes: int) -> Tensor:
        """[kv_heads, d] bits of each axis in the first `planes` planes."""
        kv_heads, d = self.to_key.shape[:2]
        count = torch.zeros(kv_heads, d, dtype=torch.int64, device=self.to_key.device)
        return count.scatter_add_(1, self.plane_axis[:, :planes], torch.ones_like(self.plane_axis[:, :planes]))


class AxisSketch(NamedTuple):
    """Of every full group of one sequence and layer, [kv_heads, groups, ..]."""

    lower: Tensor  # [kv_heads, groups, d]
    range: Tensor  # [kv_heads, groups, d], rounded up
    codes: Tensor  # [kv_heads, groups, tokens, d] uint8 at all planes; fewer planes are its leading bits
    largest_norm: Tensor  # [kv_heads, groups] max |k|, rounded up


class Scores(NamedTuple):
    """Of full groups, at one number of planes: s q.k lies within middle +- error."""

    middle: Tensor  # [kv_heads, rows, group heads, tokens]
    error: Tensor  # [kv_heads, rows, group heads, groups]


def fit_axes(queries: Tensor, keys: Tensor, group_tokens: int, max_planes: int, dtype: torch.dtype) -> SketchAxes:
    """queries [kv_heads, n, d] and keys [kv_heads, m, d] (m at least one group) seen so far; the result is in `dtype`."""
    kv_heads, m, d = keys.shape
    if m < group_tokens or queries.shape[1] < 1 or queries.shape[0] != kv_heads or queries.shape[2] != d:
        raise ValueError(
            f"axes need queries [kv_heads, n, d] and keys [kv_heads, m, d] with m >= {group_tokens}, got "
            f"{list(queries.shape)} and {list(keys.shape)}"
        )
    if not 1 <= max_planes <= MOST_BITS * d:
        raise ValueError(f"max_planes must be in [1, {MOST_BITS * d}], got {max_planes}")
    q = queries.double()
    k = keys[:, : m - m % group_tokens].double().unflatten(1, (-1, group_tokens))
    away = (k - k.mean(dim=2, keepdim=True)).flatten(1, 2)
    eye = torch.eye(d, dtype=torch.float64)
    second_k = away.mT @ away / away.shape[1]
    second_q = q.mT @ q / q.shape[1]
    for second in (second_k, second_q):  # keeps M well conditioned where a direction is hardly ever used
        second += 1e-4 * second.diagonal(dim1=1, dim2=2).mean(dim=1)[:, None, None].clamp_min(1e-30) * eye
    root = torch.linalg.cholesky(second_k)
    moment, turn = torch.linalg.eigh(root.mT @ second_q @ root)
    quarter = moment.clamp_min(1e-30) ** 0.25
    to_key = quarter[:, :, None] * turn.mT @ torch.linalg.inv(root)
    to_query = ((root @ turn) / quarter[:, None, :]).mT
    spread = (k.flatten(1, 2) @ to_key.mT).unflatten(1, (-1, group_tokens))
    weight = (q @ to_query.mT).abs().mean(dim=1) * (spread.amax(dim=2) - spread.amin(dim=2)).mean(dim=1)
    order = torch.empty(kv_heads, max_planes, dtype=torch.int64)
    left, count = weight.clone(), torch.zeros(kv_heads, d)
    head = torch.arange(kv_heads)
    for plane in range(max_planes):
        axis = torch.where(count < MOST_BITS, left, -1.0).argmax(dim=1)
        order[:, plane] = axis
        left[head, axis] *= 0.5
        count[head, axis] += 1
    to_key, to_query = to_key.to(dtype), to_query.to(dtype)
    off = torch.linalg.matrix_norm(to_query.double().mT @ to_key.double() - eye, ord=2)
    size = torch.linalg.matrix_norm(to_query.double().abs()) * torch.linalg.matrix_norm(to_key.double().abs())
    unit = 2.0**-52 if dtype == torch.float64 else 2.0**-23
    return SketchAxes(to_key, to_query, order, (off + 4.0 * d * unit * size).to(dtype))


def make_sketch(keys: Tensor, axes: SketchAxes, group_tokens: int) -> AxisSketch:
    """keys [kv_heads, tokens, d] of whole groups."""
    kv_heads, tokens, d = keys.shape
    if tokens % group_tokens:
        raise ValueError(f"tokens must be a multiple of the group of {group_tokens}, got {tokens}")
    bits = axes.bits(axes.plane_axis.shape[1])
    k = (keys.to(axes.to_key.dtype) @ axes.to_key.mT).view(kv_heads, -1, group_tokens, d)
    lower, upper = k.amin(dim=2), k.amax(dim=2)
    span = (upper - lower) * (1.0 + 2.0**-20)
    cells = (2.0**bits)[:, None, None, :].to(k.dtype)
    code = ((k - lower[:, :, None]) / torch.where(span > 0.0, span, 1.0)[:, :, None] * cells).floor()
    code = torch.minimum(code.clamp_min(0.0), cells - 1.0).to(torch.uint8)
    norm = keys.to(k.dtype).norm(dim=2).view(kv_heads, -1, group_tokens).amax(dim=2) * (1.0 + 2.0**-20)
    return AxisSketch(lower, span, code, norm)


def sketched_keys(sketch: AxisSketch, axes: SketchAxes, planes: int) -> Tensor:
    """khat' at the first `planes` planes, [kv_heads, tokens, d]."""
    every, some = axes.bits(axes.plane_axis.shape[1]), axes.bits(planes)
    code = sketch.codes >> (every - some).to(torch.uint8)[:, None, None, :]
    width = sketch.range / (2.0**some)[:, None, :].to(sketch.range.dtype)
    return (sketch.lower[:, :, None] + (code.to(width.dtype) + 0.5) * width[:, :, None]).flatten(1, 2)


def sketch_scores(
    q: Tensor, sketch: AxisSketch, axes: SketchAxes, planes: int, *, scale: float, keys: Tensor | None = None
) -> Scores:
    """q [rows, heads, d]; `keys`: what `sketched_keys` gave, where it is kept."""
    kv_heads, d = axes.to_key.shape[:2]
    rows = q.shape[0]
    grouped = q.to(axes.to_key.dtype).view(rows, kv_heads, -1, d).transpose(0, 1)  # [kv_heads, rows, group, d]
    turned = (grouped.flatten(1, 2) @ axes.to_query.mT).view_as(grouped)
    near = sketched_keys(sketch, axes, planes) if keys is None else keys
    middle = turned.flatten(1, 2) @ near.mT
    width = sketch.range / (2.0 ** axes.bits(planes))[:, None, :].to(sketch.range.dtype)
    error = 0.5 * (turned.abs().flatten(1, 2) @ width.mT) * (1.0 + 2.0**-20)
    size = grouped.norm(dim=3).flatten(1, 2)
    slack = axes.mismatch[:, None, None] * size[:, :, None] * sketch.largest_norm[:, None, :]
    shape = (kv_heads, rows, grouped.shape[2], -1)
    return Scores((scale * middle).view(shape), (scale * (error + slack)).view(shape))


def block_sums(scores: Scores, block_size: int) -> tuple[Tensor, Tensor]:
    """(estimate, upper bound) of ln sum exp(s q.k) over each block, [kv_heads, rows, group, blocks]."""
    tokens, groups = scores.middle.shape[3], scores.error.shape[3]
    estimate = scores.middle.unflatten(3, (-1, block_size)).logsumexp(dim=4)
    per_group = tokens // groups // block_size if groups else 1
    return estimate, estimate + scores.error.repeat_interleave(per_group, dim=3) + 1e-6


class Cascade(NamedTuple):
    """What one layer's certified choice is, and what it cost."""

    keep: Tensor  # bool [kv_heads, rows, blocks]
    dropped_mass_bound: Tensor  # [kv_heads, rows, group]
    planes: Tensor  # [kv_heads, rows, blocks] int64, planes of the block's keys that were read


def certified_cascade(
    levels: list[tuple[int, Tensor, Tensor]], exact: Tensor, always: Tensor, mass_budget: Tensor | float
) -> Cascade:
    """Read blocks back until B / (A + B) <= mass_budget for each query head, looking closer only where it may matter.

    levels: (planes, estimate, upper bound) from coarse to fine, each [kv_heads, rows, group, blocks], -inf outside the
    context. exact: ln sum exp of the true scores, of which only blocks that are read are used. always: bool, broadcast
    to [kv_heads, rows, blocks]. After each level a block is read if its estimate alone puts it among those that cannot go,
    left out if its bound is small enough to go with all smaller ones in a small part of the budget (`COARSE`), and else looked
    at more closely.
    What is then left out stands under a certificate that uses each block's tightest bound and the true sums of what is read.
    """
    _, estimate, bound = levels[0]
    kv_heads, rows, _, blocks = exact.shape
    inside = exact[:, :, 0] > -math.inf
    always = always.expand(kv_heads, rows, blocks) & inside
    budget = torch.as_tensor(mass_budget, dtype=exact.dtype)
    open_, read = inside & ~always, always.clone()
    bound, planes = bound.clone(), torch.zeros(kv_heads, rows, blocks, dtype=torch.int64)
    for place, (num_planes, estimate, upper) in enumerate(levels):
        planes[open_] = num_planes
        bound = torch.where(open_[:, :, None], upper, bound)
        if place == len(levels) - 1:
            break
        guess = torch.where(always[:, :, None], exact, estimate)
        total = guess.logsumexp(dim=3, keepdim=True)
        if num_planes > 0:
            share = (guess - total).exp().amax(dim=2)
            going = _prefix_mass(share, open_, (guess - total).exp())
            surely = open_ & (going > budget).any(dim=2)
            read |= surely
            open_ = open_ & ~surely
        share = (bound - total).exp().amax(dim=2)
        going = _prefix_mass(share, open_, (bound - total).exp())
        open_ = open_ & (going > COARSE * budget).any(dim=2)
        if not bool(open_.any()):
            break
    # The certificate: in the order of their bounds, until what is left is small against what has been read.
    top = torch.maximum(bound.amax(dim=3, keepdim=True), exact.amax(dim=3, keepdim=True))
    share = (bound - bound.logsumexp(dim=3, keepdim=True)).amax(dim=2)
    share = torch.where(read, math.inf, torch.where(inside, share, -math.inf))
    order = share.sort(dim=2, descending=True, stable=True).indices
    spread = order[:, :, None].expand_as(bound)
    seen = (exact - top).exp().gather(3, spread).double().cumsum(dim=3)
    unread = torch.where(inside[:, :, None], (bound - top).exp(), 0.0).gather(3, spread).double()
    later = unread.flip(3).cumsum(dim=3).flip(3)[..., 1:]
    left = torch.cat([later, torch.zeros_like(unread[..., :1])], dim=3)
    dropped = torch.where(left > 0.0, left / (seen + left), 0.0)
    enough = (dropped <= budget).all(dim=2) & (torch.arange(blocks) + 1 >= read.sum(dim=2)[:, :, None])
    count = enough.to(torch.int8).argmax(dim=2) + 1
    keep = torch.zeros_like(inside).scatter_(2, order, torch.arange(blocks) < count[:, :, None]) & inside
    certified = dropped.gather(3, (count - 1)[:, :, None, None].expand(kv_heads, rows, exact.shape[2], 1))[..., 0]
    return Cascade(keep, certified, planes)


def _prefix_mass(share: Tensor, candidates: Tensor, mass: Tensor) -> Tensor:
    """Mass of all candidates up to and including each, in rising `share`: [kv_heads, rows, group, blocks], 0 elsewhere."""
    order = torch.where(candidates, share, math.inf).sort(dim=2).indices[:, :, None].expand_as(mass)
    summed = torch.where(candidates[:, :, None], mass, 0.0).gather(3, order).cumsum(dim=3)
    return torch.zeros_like(mass).scatter(3, order, summed) * candidates[:, :, None]
