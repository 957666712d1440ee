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

MOST_BITS = 8  # of one axis


class SketchAxes(NamedTuple):
    """Of each KV head: axes and the order of bits. Fixed once, from queries and keys seen so far."""

    to_key: Tensor  # [kv_heads, d, d] M
    to_query: Tensor  # [kv_heads, d, d] M^-T
    plane_axis: Tensor  # [kv_heads, max_planes] int64, the axis each plane refines
    mismatch: Tensor  # [kv_heads] |q.k - q'.k'| <= mismatch |q| |k|, rounding included

    def of_heads(self, first: int, last: int) -> "SketchAxes":
        """The axes of KV heads first .. last - 1 (views)."""
        return SketchAxes(*(field[first:last] for field in self))

    def bits(self, planes: int) -> Tensor:
        """[kv_heads, d] bits of each axis in the first `planes` planes."""
        kv_heads, d = self.to_key.shape[:2]
        count = torch.zeros(kv_heads, d, dtype=torch.int64, device=self.to_key.device)
        return count.scatter_add_(1, self.plane_axis[:, :planes], torch.ones_like(self.plane_axis[:, :planes]))


class AxisSketch(NamedTuple):
    """Of every full group of one sequence and layer, [kv_heads, groups, ..]."""

    lower: Tensor  # [kv_heads, groups, d]
    range: Tensor  # [kv_heads, groups, d], rounded up
    planes: Tensor  # [kv_heads, groups, max_planes / 8, tokens] uint8, bit e of byte j is plane 8 j + e
    largest_norm: Tensor  # [kv_heads, groups] max |k|, rounded up

    def of_heads(self, first: int, last: int) -> "AxisSketch":
        """The sketch of KV heads first .. last - 1 (views)."""
        return AxisSketch(*(field[first:last] for field in self))


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


def plane_weights(axes: SketchAxes, planes: int) -> Tensor:
    """[kv_heads, planes, d]: what a set bit of each plane adds to its axis, over the axis' range; powers of two, so exact."""
    axis = axes.plane_axis[:, :planes]
    place = torch.nn.functional.one_hot(axis, axes.to_key.shape[1]).cumsum(dim=1).gather(2, axis[:, :, None])
    weight = torch.zeros(*axis.shape, axes.to_key.shape[1], dtype=axes.to_key.dtype, device=axis.device)
    return weight.scatter_(2, axis[:, :, None], 0.5 ** place.to(weight.dtype))


def make_sketch(keys: Tensor, axes: SketchAxes, group_tokens: int) -> AxisSketch:
    """keys [kv_heads, tokens, d] of whole groups; the number of planes of `axes` must be a multiple of 8."""
    kv_heads, tokens, d = keys.shape
    max_planes = axes.plane_axis.shape[1]
    if tokens % group_tokens:
        raise ValueError(f"tokens must be a multiple of the group of {group_tokens}, got {tokens}")
    if max_planes % 8:
        raise ValueError(f"max_planes must be a multiple of 8, got {max_planes}")
    bits = axes.bits(max_planes)
    k = (keys.to(axes.to_key.dtype) @ axes.to_key.mT).view(kv_heads, -1, group_tokens, d)
    lower, upper = k.amin(dim=2), k.amax(dim=2)
    span = (upper - lower) * (1.0 + 2.0**-20)
    cells = (2.0**bits)[:, None, None, :].to(k.dtype)
    code = ((k - lower[:, :, None]) / torch.where(span > 0.0, span, 1.0)[:, :, None] * cells).floor()
    code = torch.minimum(code.clamp_min(0.0), cells - 1.0).to(torch.int32)
    place = torch.nn.functional.one_hot(axes.plane_axis, d).cumsum(dim=1).gather(2, axes.plane_axis[:, :, None])[..., 0]
    shift = bits.gather(1, axes.plane_axis) - place  # [kv_heads, max_planes]
    axis = axes.plane_axis[:, None, None].expand(kv_heads, code.shape[1], group_tokens, max_planes)
    bit = (code.gather(3, axis) >> shift[:, None, None].to(torch.int32)) & 1
    weight = 1 << torch.arange(8, dtype=torch.int32, device=keys.device)
    packed = (bit.unflatten(3, (-1, 8)) * weight).sum(dim=4, dtype=torch.int32).to(torch.uint8)
    norm = keys.to(k.dtype).norm(dim=2).view(kv_heads, -1, group_tokens).amax(dim=2) * (1.0 + 2.0**-20)
    return AxisSketch(lower, span, packed.transpose(2, 3).contiguous(), norm)


def sketched_keys(sketch: AxisSketch, axes: SketchAxes, planes: int) -> Tensor:
    """khat' at the first `planes` planes, [kv_heads, tokens, d]: reads no more of `sketch.planes` than those."""
    some = axes.bits(planes)[:, None, :].to(sketch.range.dtype)
    middle = sketch.lower + 0.5**some * 0.5 * sketch.range
    packed = sketch.planes[:, :, : -(-planes // 8)].transpose(2, 3)
    bit = (packed[..., None] >> torch.arange(8, dtype=torch.uint8, device=packed.device)) & 1
    bit = bit.flatten(3)[..., :planes].to(sketch.range.dtype)
    above = (bit.flatten(1, 2) @ plane_weights(axes, planes)).view(*bit.shape[:3], -1)
    return (middle[:, :, None] + above * sketch.range[:, :, None]).flatten(1, 2)


def sketch_error(
    q: Tensor, sketch: AxisSketch, axes: SketchAxes, planes: int, *, scale: float
) -> tuple[Tensor, Tensor]:
    """(q' [kv_heads, rows, group, d], error of `Scores`): what the first planes leave open, from boxes and norms alone."""
    kv_heads, d = axes.to_key.shape[:2]
    rows = q.shape[0]
    grouped = q.to(axes.to_key.dtype).view(rows, kv_heads, -1, d).transpose(0, 1)
    turned = (grouped.flatten(1, 2) @ axes.to_query.mT).view_as(grouped)
    width = sketch.range / (2.0 ** axes.bits(planes))[:, None, :].to(sketch.range.dtype)
    error = 0.5 * (turned.abs().flatten(1, 2) @ width.mT) * (1.0 + 2.0**-20)
    size = grouped.norm(dim=3).flatten(1, 2)
    slack = axes.mismatch[:, None, None] * size[:, :, None] * sketch.largest_norm[:, None, :]
    return turned, (scale * (error + slack)).view(kv_heads, rows, grouped.shape[2], -1)


def sketch_scores(
    q: Tensor, sketch: AxisSketch, axes: SketchAxes, planes: int, *, scale: float, keys: Tensor | None = None
) -> Scores:
    """q [rows, heads, d]; `keys`: what `sketched_keys` gave, where it is kept."""
    turned, error = sketch_error(q, sketch, axes, planes, scale=scale)
    near = sketched_keys(sketch, axes, planes) if keys is None else keys
    middle = scale * (turned.flatten(1, 2) @ near.mT)
    return Scores(middle.view(*turned.shape[:3], -1), error)


def block_sums(scores: Scores, block_size: int) -> tuple[Tensor, Tensor]:
    """(estimate, upper bound) of ln sum exp(s q.k) over each block, [kv_heads, rows, group, blocks]."""
    tokens, groups = scores.middle.shape[3], scores.error.shape[3]
    estimate = scores.middle.unflatten(3, (-1, block_size)).logsumexp(dim=4)
    per_group = tokens // groups // block_size if groups else 1
    return estimate, estimate + scores.error.repeat_interleave(per_group, dim=3) + 1e-6


def sketch_sums(
    q: Tensor,
    sketch: AxisSketch,
    axes: SketchAxes,
    planes: int,
    block_size: int,
    *,
    scale: float,
    keys: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`block_sums` of `sketch_scores`: (estimate, upper bound), [kv_heads, rows, group, blocks]. No plane: the boxes alone,
    and every token of a group is worth the same."""
    if planes:
        return block_sums(sketch_scores(q, sketch, axes, planes, scale=scale, keys=keys), block_size)
    scores = sketch_scores(q, sketch, axes, 0, scale=scale, keys=sketch.lower + 0.5 * sketch.range)
    per_group = sketch.planes.shape[3] // block_size
    estimate = scores.middle + math.log(block_size)
    bound = estimate + scores.error + 1e-6
    return estimate.repeat_interleave(per_group, dim=3), bound.repeat_interleave(per_group, dim=3)
