"""Triton block key bounds: kept up to date on write, and upper-bound scores of all blocks without reading a key.

Program (block, KV head) of the update reads one block of keys and writes its box, ball and sketch. Program (row, KV head,
block) of the score reads only those. The bounds and their proof: `kernels.reference.bounds`.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import FLOATS, POINTER, Shipped, check, check_range, next_power_of_2
from kernels.reference.bounds import KeyBounds, KeySketch

OUTWARD = tl.constexpr(1.0 + 2.0**-20)  # what float32 arithmetic may have lost


@triton.jit
def update_kernel(
    k_ptr,
    block_ptr,
    filled_ptr,
    lower_ptr,
    upper_ptr,
    centre_ptr,
    radius_ptr,
    planes_ptr,
    error_ptr,
    kv_heads,
    head_size,
    block_size,
    num_blocks,
    BITS: tl.constexpr,
    TOKENS: tl.constexpr,
    HEAD: tl.constexpr,
):
    kv_head = tl.program_id(1)
    block = tl.load(block_ptr + tl.program_id(0))
    filled = tl.load(filled_ptr + tl.program_id(0))
    if (block >= 0) & (block < num_blocks):
        t, d = tl.arange(0, TOKENS), tl.arange(0, HEAD)
        there = (t[:, None] < filled) & (d[None, :] < head_size)
        at = ((block * block_size + t) * kv_heads + kv_head)[:, None] * head_size + d[None, :]
        keys = tl.load(k_ptr + at, mask=there, other=0.0).to(tl.float32)
        lower = tl.min(tl.where(there, keys, float("inf")), axis=0)
        upper = tl.max(tl.where(there, keys, float("-inf")), axis=0)
        lower = tl.where(d < head_size, lower, 0.0)
        upper = tl.where(d < head_size, upper, 0.0)
        centre = 0.5 * (lower + upper)
        away = tl.where(there, keys - centre[None, :], 0.0)
        radius = tl.max(tl.sqrt(tl.sum(away * away, axis=1)), axis=0) * OUTWARD
        head = block * kv_heads + kv_head
        tl.store(lower_ptr + head * head_size + d, lower, mask=d < head_size)
        tl.store(upper_ptr + head * head_size + d, upper, mask=d < head_size)
        tl.store(centre_ptr + head * head_size + d, centre, mask=d < head_size)
        tl.store(radius_ptr + head, radius)
        if BITS > 0:
            width = (upper - lower) / (1 << BITS)
            cell = tl.floor((keys - lower[None, :]) / tl.where(width > 0.0, width, 1.0)[None, :])
            cell = tl.minimum(tl.maximum(cell, 0.0), (1 << BITS) - 1.0)
            off = tl.where(there, keys - (lower[None, :] + (cell + 0.5) * width[None, :]), 0.0)
            error = tl.sqrt(tl.sum(off * off, axis=1)) * OUTWARD
            tl.store(error_ptr + head * block_size + t, error, mask=t < block_size)
            code = cell.to(tl.int32)
            byte = tl.arange(0, HEAD // 8)
            for bit in tl.static_range(BITS):
                set_bits = ((code >> bit) & 1) << (d % 8)[None, :]
                packed = tl.sum(tl.reshape(set_bits, [TOKENS, HEAD // 8, 8]), axis=2)
                plane = ((head * block_size + t)[:, None] * BITS + bit) * (head_size // 8) + byte[None, :]
                there_byte = (t[:, None] < block_size) & (byte[None, :] < head_size // 8)
                tl.store(planes_ptr + plane, packed.to(tl.uint8), mask=there_byte)


@triton.jit
def score_kernel(
    q_ptr,
    lower_ptr,
    upper_ptr,
    centre_ptr,
    radius_ptr,
    planes_ptr,
    error_ptr,
    table_ptr,
    context_ptr,
    out_ptr,
    scale,
    kv_heads,
    group,
    head_size,
    block_size,
    num_blocks,
    max_blocks,
    BITS: tl.constexpr,
    TOKENS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD: tl.constexpr,
    STEP: tl.constexpr,
):
    row, kv_head, b = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    g, t = tl.arange(0, GROUP), tl.arange(0, TOKENS)
    heads = kv_heads * group
    filled = tl.minimum(tl.load(context_ptr + row) - b * block_size, block_size)
    head_of_q = row * heads + kv_head * group + g
    bound = tl.full([GROUP], float("-inf"), tl.float32)
    if filled > 0:
        block = tl.load(table_ptr + row * max_blocks + b).to(tl.int64)
        block = tl.minimum(tl.maximum(block, 0), num_blocks - 1)
        head = block * kv_heads + kv_head
        size2 = tl.zeros([GROUP], tl.float32)
        largest = tl.zeros([GROUP], tl.float32)
        box = tl.zeros([GROUP], tl.float32)
        ball = tl.zeros([GROUP], tl.float32)
        by_width = tl.zeros([GROUP], tl.float32)
        near = tl.zeros([GROUP, TOKENS], tl.float32)
        for start in range(0, HEAD, STEP):  # a few channels at a time, so that nothing spills
            d = start + tl.arange(0, STEP)
            q_at = q_ptr + head_of_q[:, None] * head_size + d[None, :]
            q = tl.load(q_at, mask=(g[:, None] < group) & (d[None, :] < head_size), other=0.0).to(tl.float32)
            lower = tl.load(lower_ptr + head * head_size + d, mask=d < head_size, other=0.0)
            upper = tl.load(upper_ptr + head * head_size + d, mask=d < head_size, other=0.0)
            centre = tl.load(centre_ptr + head * head_size + d, mask=d < head_size, other=0.0)
            size2 += tl.sum(q * q, axis=1)
            largest += tl.sum(tl.abs(q) * tl.maximum(tl.abs(lower), tl.abs(upper))[None, :], axis=1)
            box += tl.sum(tl.maximum(q * lower[None, :], q * upper[None, :]), axis=1)
            ball += tl.sum(q * centre[None, :], axis=1)
            if BITS > 0:
                width = (upper - lower) / (1 << BITS)
                by_width += 0.5 * tl.sum(tl.abs(q) * width[None, :], axis=1)
                code = tl.zeros([TOKENS, STEP], tl.int32)
                there = (t[:, None] < block_size) & (d[None, :] < head_size)
                for bit in tl.static_range(BITS):
                    plane = ((head * block_size + t)[:, None] * BITS + bit) * (head_size // 8) + (d // 8)[None, :]
                    byte = tl.load(planes_ptr + plane, mask=there, other=0).to(tl.int32)
                    code += ((byte >> (d % 8)[None, :]) & 1) << bit
                near_key = lower[None, :] + (code.to(tl.float32) + 0.5) * width[None, :]
                near = tl.dot(q, tl.trans(near_key), near, input_precision="ieee")
        size = tl.sqrt(size2) * OUTWARD
        slack = largest * (4.0 * head_size * 5.9604644775390625e-08)
        best = tl.minimum(box, ball + size * tl.load(radius_ptr + head)) + slack
        if BITS > 0:
            error = tl.load(error_ptr + head * block_size + t, mask=t < block_size, other=0.0)
            off = tl.minimum(size[:, None] * error[None, :], (by_width * OUTWARD)[:, None])
            token = tl.minimum(near + off + slack[:, None], best[:, None]) * scale
            token = tl.where(t[None, :] < filled, token, float("-inf"))
            top = tl.max(token, axis=1)
            bound = top + tl.log(tl.sum(tl.exp(token - top[:, None]), axis=1)) + 1e-5
        else:
            bound = best * scale + tl.log(filled.to(tl.float32)) + 1e-5
    tl.store(out_ptr + head_of_q * max_blocks + b, bound, mask=g < group)


def _check_bounds(
    bounds: KeyBounds, sketch: KeySketch | None, block_size: int, like: Tensor
) -> tuple[int, int, int, int]:
    num_blocks, kv_heads, d = bounds.lower.shape
    for name in ("lower", "upper", "centre"):
        check(name, getattr(bounds, name), torch.float32, (num_blocks, kv_heads, d), like)
    check("radius", bounds.radius, torch.float32, (num_blocks, kv_heads), like)
    if sketch is None:
        return num_blocks, kv_heads, d, 0
    check("planes", sketch.planes, torch.uint8, (num_blocks, kv_heads, block_size, sketch.bits, d // 8), like)
    check("error", sketch.error, torch.float32, (num_blocks, kv_heads, block_size), like)
    return num_blocks, kv_heads, d, sketch.bits


def update_key_bounds(
    k_cache: Tensor, block_index: Tensor, filled_tokens: Tensor, bounds: KeyBounds, sketch: KeySketch | None = None
) -> None:
    """Meaning and errors as `reference.update_key_bounds`. A block index out of range is skipped on a GPU."""
    check("k_cache", k_cache, FLOATS, (None, None, None, None), k_cache)
    block_size = k_cache.shape[1]
    num_blocks, kv_heads, d, bits = _check_bounds(bounds, sketch, block_size, k_cache)
    if k_cache.shape != (num_blocks, block_size, kv_heads, d):
        raise ValueError(f"bounds are for {[num_blocks, kv_heads, d]}, the cache is {list(k_cache.shape)}")
    check("block_index", block_index, torch.int64, (None,), k_cache)
    check("filled_tokens", filled := filled_tokens.to(torch.int64), torch.int64, block_index.shape, k_cache)
    check_range("block_index", block_index, 0, num_blocks)
    check_range("filled_tokens", filled, 1, block_size + 1)
    if block_index.numel():
        planes, error = (bounds.lower, bounds.lower) if sketch is None else (sketch.planes, sketch.error)
        update_kernel[(block_index.numel(), kv_heads)](
            k_cache, block_index, filled, *bounds, planes, error, kv_heads, d, block_size, num_blocks, BITS=bits,
            TOKENS=next_power_of_2(block_size), HEAD=max(8, next_power_of_2(d)), num_warps=4,
        )  # fmt: skip


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
    """Meaning as `reference.score_upper_bound`: [rows, heads, max_blocks], -inf beyond the context."""
    check("q", q, FLOATS, (None, None, None), q)
    num_blocks, kv_heads, d, bits = _check_bounds(bounds, sketch, block_size, q)
    rows, heads = q.shape[:2]
    if q.shape[2] != d or heads % kv_heads:
        raise ValueError(f"q must be [rows, heads, {d}] with heads a multiple of {kv_heads}, got {list(q.shape)}")
    check("block_table", block_table, torch.int32, (rows, None), q)
    check("context_tokens", context_tokens, torch.int32, (rows,), q)
    max_blocks = block_table.shape[1]
    out = torch.empty(rows, heads, max_blocks, dtype=torch.float32, device=q.device)
    if out.numel():
        planes, error = (bounds.lower, bounds.lower) if sketch is None else (sketch.planes, sketch.error)
        score_kernel[(rows, kv_heads, max_blocks)](
            q, *bounds, planes, error, block_table, context_tokens, out, scale, kv_heads, heads // kv_heads, d,
            block_size, num_blocks, max_blocks, BITS=bits, TOKENS=max(16, next_power_of_2(block_size)),
            GROUP=max(16, next_power_of_2(heads // kv_heads)), HEAD=max(16, next_power_of_2(d)), STEP=16, num_warps=4,
        )  # fmt: skip
    return out


def shipped() -> list[Shipped]:
    """Blocks of 16, head sizes 64 and 128, no sketch and 2 to 4 bits."""
    configurations = []
    tables = {"lower_ptr": "*fp32", "upper_ptr": "*fp32", "centre_ptr": "*fp32", "radius_ptr": "*fp32"}
    for head in (64, 128):
        for bits in (0, 2, 3, 4):
            sketch = {"planes_ptr": "*u8" if bits else "*fp32", "error_ptr": "*fp32"}
            for pointer in (POINTER[torch.bfloat16], POINTER[torch.float32])[: 2 if bits == 4 else 1]:
                sizes = {"kv_heads": "i32", "head_size": "i32", "block_size": "i32", "num_blocks": "i32"}
                configurations.append(
                    Shipped(
                        update_kernel, f"key bounds {pointer[1:]} {head}, {bits} bits",
                        {"k_ptr": pointer, "block_ptr": "*i64", "filled_ptr": "*i64", **tables, **sketch, **sizes},
                        {"BITS": bits, "TOKENS": 16, "HEAD": head},
                    )
                )  # fmt: skip
                configurations.append(
                    Shipped(
                        score_kernel, f"bound score {pointer[1:]} {head}, {bits} bits",
                        {"q_ptr": pointer, **tables, **sketch, "table_ptr": "*i32", "context_ptr": "*i32",
                         "out_ptr": "*fp32", "scale": "fp32", **sizes, "group": "i32", "max_blocks": "i32"},
                        {"BITS": bits, "TOKENS": 16, "GROUP": 16, "HEAD": head, "STEP": 16},
                    )
                )  # fmt: skip
    return configurations
