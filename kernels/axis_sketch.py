"""Triton twin of `reference.sketch_sums`: estimates and upper bounds of all blocks of one sequence from the first planes of a sketch.

Program (KV head, block, tile of queries) reads the planes asked for of one block's keys, turns them into keys by one product with
powers of two (exact), and takes the scores' sum of exponentials. What depends on groups only (boxes, error) is torch around it.
The bounds and their proof: `kernels.reference.axis_sketch`.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import Shipped, check, next_power_of_2
from kernels.reference.axis_sketch import AxisSketch, SketchAxes, plane_weights, sketch_error


@triton.jit
def sums_kernel(
    q_ptr,
    middle_ptr,
    range_ptr,
    weight_ptr,
    planes_ptr,
    out_ptr,
    scale,
    num_queries,
    groups,
    num_bytes,
    head_size,
    block_size,
    group_tokens,
    num_planes,
    blocks,
    QUERIES: tl.constexpr,
    TOKENS: tl.constexpr,
    HEAD: tl.constexpr,
    STEP: tl.constexpr,
):
    kv_head, b, tile = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    i, t, d = tile * QUERIES + tl.arange(0, QUERIES), tl.arange(0, TOKENS), tl.arange(0, HEAD)
    first = b * block_size
    group = kv_head * groups + first // group_tokens
    above = tl.zeros([TOKENS, HEAD], tl.float32)
    for start in range(0, num_planes, STEP):
        j = start + tl.arange(0, STEP)
        there = (t[:, None] < block_size) & (j[None, :] < num_planes)
        at = (group * num_bytes + j // 8)[None, :] * group_tokens + (first % group_tokens + t)[:, None]
        byte = tl.load(planes_ptr + at, mask=there, other=0).to(tl.int32)
        bit = (byte >> (j % 8)[None, :]) & 1
        weight = tl.load(
            weight_ptr + (kv_head * num_planes + j)[:, None] * head_size + d[None, :],
            mask=(j[:, None] < num_planes) & (d[None, :] < head_size), other=0.0,
        )  # fmt: skip
        above = tl.dot(bit.to(tl.float32), weight, above, input_precision="ieee")
    middle = tl.load(middle_ptr + group * head_size + d, mask=d < head_size, other=0.0)
    span = tl.load(range_ptr + group * head_size + d, mask=d < head_size, other=0.0)
    near = middle[None, :] + above * span[None, :]
    q_at = q_ptr + (kv_head * num_queries + i)[:, None] * head_size + d[None, :]
    q = tl.load(q_at, mask=(i[:, None] < num_queries) & (d[None, :] < head_size), other=0.0)
    score = tl.dot(q, tl.trans(near), input_precision="ieee") * scale
    score = tl.where(t[None, :] < block_size, score, float("-inf"))
    top = tl.max(score, axis=1)
    summed = top + tl.log(tl.sum(tl.exp(score - top[:, None]), axis=1))
    tl.store(out_ptr + (kv_head * num_queries + i) * blocks + b, summed, mask=i < num_queries)


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
    """Meaning as `reference.sketch_sums`; `keys` is not needed. float32 sketches only."""
    kv_heads, groups, num_bytes, group_tokens = sketch.planes.shape
    d = axes.to_key.shape[1]
    check("planes", sketch.planes, torch.uint8, (kv_heads, groups, num_bytes, group_tokens), sketch.planes)
    check("range", sketch.range, torch.float32, (kv_heads, groups, d), sketch.planes)
    if q.ndim != 3 or q.shape[2] != d or q.shape[1] % kv_heads:
        raise ValueError(f"q must be [rows, heads, {d}] with heads a multiple of {kv_heads}, got {list(q.shape)}")
    if group_tokens % block_size or not 0 <= planes <= 8 * num_bytes:
        raise ValueError(
            f"block_size must divide {group_tokens} and planes be in [0, {8 * num_bytes}], got {block_size} and {planes}"
        )
    turned, error = sketch_error(q, sketch, axes, planes, scale=scale)
    rows, group = turned.shape[1:3]
    blocks = groups * group_tokens // block_size
    out = torch.empty(kv_heads, rows, group, blocks, dtype=torch.float32, device=q.device)
    middle = sketch.lower + 0.5 * 0.5 ** axes.bits(planes)[:, None, :].to(torch.float32) * sketch.range
    if out.numel():
        tile = min(64, max(16, next_power_of_2(rows * group)))
        weight = plane_weights(axes, planes) if planes else axes.to_key
        sums_kernel[(kv_heads, blocks, -(-rows * group // tile))](
            turned.contiguous(), middle.contiguous(), sketch.range.contiguous(), weight.contiguous(),
            sketch.planes.contiguous(), out, scale, rows * group, groups, num_bytes, d, block_size, group_tokens, planes,
            blocks, QUERIES=tile, TOKENS=max(16, next_power_of_2(block_size)), HEAD=max(16, next_power_of_2(d)), STEP=16,
            num_warps=4,
        )  # fmt: skip
    wide = error.repeat_interleave(group_tokens // block_size, dim=3)
    return out, out + wide + 1e-5 + 1e-6 * math.log(block_size)


def shipped() -> list[Shipped]:
    """Blocks of 16, head sizes 64 and 128."""
    sizes = ("num_queries", "groups", "num_bytes", "head_size", "block_size", "group_tokens", "num_planes", "blocks")
    pointers = {f"{name}_ptr": "*fp32" for name in ("q", "middle", "range", "weight")}
    return [
        Shipped(
            sums_kernel, f"sketch sums {head}",
            {**pointers, "planes_ptr": "*u8", "out_ptr": "*fp32", "scale": "fp32", **dict.fromkeys(sizes, "i32")},
            {"QUERIES": 16, "TOKENS": 16, "HEAD": head, "STEP": 16},
        )
        for head in (64, 128)
    ]  # fmt: skip
