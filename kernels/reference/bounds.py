"""Torch twins for block key bounds: boxes, balls and a low-bit sketch that bound every score in a block unread.

For the keys k_t of one block and KV head, kept beside the cache:

    lower, upper    elementwise minimum and maximum        the box
    centre, radius  (lower + upper) / 2, max |k_t - centre|   the ball
    codes, error    c = floor((k - lower) / w) in 2**bits cells of width w = (upper - lower) / 2**bits per channel;
                    khat = lower + (c + 1/2) w, error_t = |k_t - khat_t|   the sketch

and for a query q with scale s > 0 they give, without reading a key,

    box     s q.k <= s sum_d max(q_d lower_d, q_d upper_d)
    ball    s q.k <= s (q.centre + |q| radius)
    sketch  s q.k <= s (q.khat_t + min(|q| error_t, sum_d |q_d| w_d / 2))

all widened by the rounding of a float32 dot product. `score_upper_bound` returns ln of the sum of exponentials of these
bounds over the block's tokens, so that the mass of blocks left out is at most B / (A + B), with A the kept sum of
exponentials and B the sum of exp(bound) left out. Source: boxes are Quest's (arXiv 2406.10774); the rest is ours.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from kernels.reference.attention import check_table

SKETCH_BITS = (2, 3, 4)


class KeyBounds(NamedTuple):
    """Bounds of every block of one cache, float32."""

    lower: Tensor  # [num_blocks, kv_heads, d]
    upper: Tensor
    centre: Tensor
    radius: Tensor  # [num_blocks, kv_heads]


class KeySketch(NamedTuple):
    """Codes of every key as bit planes, and how far each is off. Cells come from the bounds of its block."""

    planes: Tensor  # [num_blocks, kv_heads, block_size, bits, d / 8] uint8, bit e of byte j is channel 8 j + e
    error: Tensor  # [num_blocks, kv_heads, block_size] float32, rounded up

    @property
    def bits(self) -> int:
        return self.planes.shape[3]


def empty_key_bounds(k_cache: Tensor) -> KeyBounds:
    """Bounds for a cache [num_blocks, block_size, kv_heads, d] with nothing written yet."""
    num_blocks, _, kv_heads, d = k_cache.shape
    fields = [torch.zeros(num_blocks, kv_heads, d, device=k_cache.device) for _ in range(3)]
    return KeyBounds(*fields, torch.zeros(num_blocks, kv_heads, device=k_cache.device))


def empty_key_sketch(k_cache: Tensor, bits: int) -> KeySketch:
    num_blocks, block_size, kv_heads, d = k_cache.shape
    if bits not in SKETCH_BITS:
        raise ValueError(f"bits of a key sketch must be one of {SKETCH_BITS}, got {bits}")
    if d % 8:
        raise ValueError(f"a key sketch needs a head size that is a multiple of 8, got {d}")
    planes = torch.zeros(num_blocks, kv_heads, block_size, bits, d // 8, dtype=torch.uint8, device=k_cache.device)
    return KeySketch(planes, torch.zeros(num_blocks, kv_heads, block_size, device=k_cache.device))


def _outward(value: Tensor) -> Tensor:
    """Rounded up by a few units in the last place: what float32 arithmetic may have lost."""
    return value * (1.0 + 2.0**-20)


def update_key_bounds(
    k_cache: Tensor, block_index: Tensor, filled_tokens: Tensor, bounds: KeyBounds, sketch: KeySketch | None = None
) -> None:
    """Recompute, in place, the bounds of the blocks just written: block_index [m] int64, filled_tokens [m] in 1 .. size."""
    num_blocks, block_size, _kv_heads, d = k_cache.shape
    if block_index.numel() == 0:
        return
    if int(block_index.min()) < 0 or int(block_index.max()) >= num_blocks:
        raise ValueError(f"block_index must be in [0, {num_blocks})")
    if int(filled_tokens.min()) < 1 or int(filled_tokens.max()) > block_size:
        raise ValueError(f"filled_tokens must be in [1, block_size] = [1, {block_size}]")
    keys = k_cache[block_index].float().transpose(1, 2)  # [m, kv_heads, block_size, d]
    there = (torch.arange(block_size, device=keys.device) < filled_tokens[:, None])[:, None, :, None]
    lower = torch.where(there, keys, math.inf).amin(dim=2)
    upper = torch.where(there, keys, -math.inf).amax(dim=2)
    centre = 0.5 * (lower + upper)
    away = torch.where(there, keys - centre[:, :, None, :], 0.0)
    bounds.lower[block_index], bounds.upper[block_index], bounds.centre[block_index] = lower, upper, centre
    bounds.radius[block_index] = _outward(away.norm(dim=3).amax(dim=2))
    if sketch is None:
        return
    width = (upper - lower)[:, :, None, :] / 2**sketch.bits
    cell = ((keys - lower[:, :, None, :]) / torch.where(width > 0.0, width, 1.0)).nan_to_num(0.0).floor()
    cell = cell.clamp(0, 2**sketch.bits - 1).to(torch.int32)
    approximate = lower[:, :, None, :] + (cell + 0.5) * width
    sketch.error[block_index] = _outward(torch.where(there, keys - approximate, 0.0).norm(dim=3))
    bits = torch.arange(sketch.bits, device=keys.device)
    planes = (cell[..., None, :] >> bits[:, None]) & 1  # [m, kv_heads, block_size, bits, d]
    weights = 1 << torch.arange(8, device=keys.device)
    sketch.planes[block_index] = (planes.unflatten(-1, (d // 8, 8)) * weights).sum(dim=-1).to(torch.uint8)


def _unpack(planes: Tensor) -> Tensor:
    """Codes [..., block_size, d] as float32 from bit planes [..., block_size, bits, d / 8]."""
    bits = (planes[..., None].to(torch.int32) >> torch.arange(8, device=planes.device)) & 1
    codes = bits.flatten(-2) << torch.arange(planes.shape[-2], device=planes.device)[:, None]
    return codes.sum(dim=-2).float()


def score_upper_bound(
    q: Tensor,
    bounds: KeyBounds,
    sketch: KeySketch | None,
    block_table: Tensor,
    context_tokens: Tensor,
    block_size: int,
    *,
    scale: float,
) -> Tensor:
    """Upper bound on ln sum over a block's tokens of exp(scale q.k): [rows, heads, max_blocks], -inf beyond the context.

    q: [rows, heads, d]; block_table: [rows, max_blocks] int32; context_tokens: [rows] int32. Reads no key.
    """
    rows, heads, d = q.shape
    num_blocks, kv_heads, _ = bounds.lower.shape
    group = heads // kv_heads
    check_table(block_table, context_tokens, num_blocks, block_size)
    max_blocks = block_table.shape[1]
    filled = context_tokens[:, None] - torch.arange(max_blocks, device=q.device) * block_size
    filled = filled.clamp(0, block_size)  # [rows, max_blocks] tokens of each block
    table = block_table.clamp(0, num_blocks - 1).to(torch.int64)
    query = q.float().view(rows, 1, kv_heads, group, d)
    lower, upper = (side[table][:, :, :, None, :] for side in (bounds.lower, bounds.upper))
    size = query.norm(dim=-1)  # [rows, 1, kv_heads, group]
    largest = (query.abs() * torch.maximum(lower.abs(), upper.abs())).sum(dim=-1)
    slack = largest * (4 * d * 2.0**-24)
    box = torch.maximum(query * lower, query * upper).sum(dim=-1)
    ball = (query * bounds.centre[table][:, :, :, None, :]).sum(dim=-1) + _outward(size) * bounds.radius[table][
        ..., None
    ]
    best = torch.minimum(box, ball) + slack  # [rows, blocks, kv_heads, group]
    if sketch is None:
        bound = scale * best + filled.clamp_min(1).float().log()[:, :, None, None]
    else:
        width = (bounds.upper - bounds.lower)[table] / 2**sketch.bits  # [rows, blocks, kv_heads, d]
        keys = bounds.lower[table][:, :, :, None, :] + (_unpack(sketch.planes[table]) + 0.5) * width[:, :, :, None, :]
        near = torch.einsum("rbhgd,rbhtd->rbhgt", query.expand(-1, max_blocks, -1, -1, -1), keys)
        by_width = 0.5 * torch.einsum("rbhgd,rbhd->rbhg", query.abs().expand(-1, max_blocks, -1, -1, -1), width)
        off = torch.minimum(
            _outward(size)[..., None] * sketch.error[table][:, :, :, None, :], _outward(by_width)[..., None]
        )
        token = torch.minimum(near + off + slack[..., None], best[..., None]) * scale
        there = torch.arange(block_size, device=q.device) < filled[:, :, None]
        bound = torch.where(there[:, :, None, None, :], token, -math.inf).logsumexp(dim=-1)
    bound = torch.where((filled > 0)[:, :, None, None], bound + 1e-5, -math.inf)
    return bound.permute(0, 2, 3, 1).reshape(rows, heads, max_blocks)


def block_log_sums(q: Tensor, k_cache: Tensor, block_table: Tensor, context_tokens: Tensor, *, scale: float) -> Tensor:
    """ln sum of exp(scale q.k) over each block, float32 [rows, heads, max_blocks], -inf beyond the context."""
    num_blocks, block_size, kv_heads, d = k_cache.shape
    rows, max_blocks = block_table.shape
    check_table(block_table, context_tokens, num_blocks, block_size)
    keys = k_cache[block_table.clamp(0, num_blocks - 1).to(torch.int64)].float()
    query = q.float().view(rows, kv_heads, -1, d)
    scores = torch.einsum("rhgd,rbthd->rhgbt", query, keys) * scale
    position = torch.arange(max_blocks * block_size, device=q.device).view(max_blocks, block_size)
    seen = position < context_tokens[:, None, None]
    scores = torch.where(seen[:, None, None], scores, -math.inf)
    return scores.logsumexp(dim=-1).reshape(rows, -1, max_blocks)
