"""Triton paged attention: decode with a block keep-list and the mass of each block.

Program (row, KV head, split) walks its share of the row's blocks, 16 tokens or more at a time, for all query
heads of the group together, with the usual running maximum. Beside the partial output it stores, per query head and
block, the log-sum-exp of the block's scores; a second kernel merges the splits and turns those into masses

    mass_b = exp(lse_b - lse),

so the mass costs one number a block and no second pass. Query head h reads KV head h // (heads / kv_heads). A tile of
which nothing is kept is not loaded.
Source: the split-KV scheme is FlashDecoding's (Dao et al., 2023); the block log-sum-exp output is ours.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import FLOATS, POINTER, Shipped, check, next_power_of_2, num_splits
from kernels.reference.attention import AttentionOutput, check_cache, check_table


@triton.jit
def decode_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    table_ptr,
    context_ptr,
    keep_ptr,
    part_ptr,
    part_lse_ptr,
    block_lse_ptr,
    scale,
    window,
    num_blocks,
    kv_heads,
    group,
    head_size,
    max_blocks,
    splits,
    HAS_KEEP: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE_BLOCKS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD: tl.constexpr,
    PRECISION: tl.constexpr,
    DOT: tl.constexpr,
):
    row, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    row64 = row.to(tl.int64)
    TILE: tl.constexpr = BLOCK_SIZE * TILE_BLOCKS
    heads = kv_heads * group
    context = tl.load(context_ptr + row)
    first = tl.where(window > 0, tl.maximum(context - window, 0), 0)
    g, d = tl.arange(0, GROUP), tl.arange(0, HEAD)
    head_ok = (g[:, None] < group) & (d[None, :] < head_size)
    head = row64 * heads + kv_head * group + g
    q = tl.load(q_ptr + head[:, None] * head_size + d[None, :], mask=head_ok, other=0.0).to(DOT)
    m = tl.full([GROUP], float("-inf"), tl.float32)
    total = tl.zeros([GROUP], tl.float32)
    acc = tl.zeros([GROUP, HEAD], tl.float32)
    stride = (kv_heads * head_size).to(tl.int64)
    num_tiles = (context + TILE - 1) // TILE
    for tile in range(split, num_tiles, splits):
        position = tile * TILE + tl.arange(0, TILE)
        logical = position // BLOCK_SIZE
        seen = (position < context) & (position >= first)
        physical = tl.load(table_ptr + row64 * max_blocks + logical, mask=seen, other=0).to(tl.int64)
        seen = seen & (physical >= 0) & (physical < num_blocks)  # out of range: treated as dropped
        if HAS_KEEP:
            keep = tl.load(keep_ptr + (row64 * kv_heads + kv_head) * max_blocks + logical, mask=seen, other=0)
            seen = seen & (keep != 0)
        lse = tl.full([GROUP, TILE_BLOCKS], float("-inf"), tl.float32)
        if tl.max(seen.to(tl.int32), axis=0) > 0:
            slot = (physical * BLOCK_SIZE + position % BLOCK_SIZE) * stride + kv_head * head_size
            at = slot[:, None] + d[None, :]
            there = seen[:, None] & (d[None, :] < head_size)
            k = tl.load(k_ptr + at, mask=there, other=0.0).to(DOT)
            scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
            scores = tl.where(seen[None, :], scores, float("-inf"))
            new_m = tl.maximum(m, tl.max(scores, axis=1))
            safe_m = tl.where(new_m > float("-inf"), new_m, 0.0)
            p = tl.exp(scores - safe_m[:, None])
            w = tl.exp(tl.where(m > float("-inf"), m - safe_m, -120.0))
            v = tl.load(v_ptr + at, mask=there, other=0.0).to(DOT)
            acc = acc * w[:, None] + tl.dot(p.to(DOT), v, input_precision=PRECISION)
            total = total * w + tl.sum(p, axis=1)
            m = new_m
            block_sum = tl.sum(tl.reshape(p, [GROUP, TILE_BLOCKS, BLOCK_SIZE]), axis=2)
            lse = tl.where(block_sum > 0.0, safe_m[:, None] + tl.log(tl.maximum(block_sum, 1e-37)), float("-inf"))
        b = tile * TILE_BLOCKS + tl.arange(0, TILE_BLOCKS)
        tl.store(
            block_lse_ptr + head[:, None] * max_blocks + b[None, :],
            lse,
            mask=(g[:, None] < group) & (b[None, :] < max_blocks),
        )
    part = head * splits + split
    inverse = 1.0 / tl.where(total > 0.0, total, 1.0)
    tl.store(part_ptr + part[:, None] * head_size + d[None, :], acc * inverse[:, None], mask=head_ok)
    tl.store(
        part_lse_ptr + part,
        tl.where(total > 0.0, m + tl.log(tl.where(total > 0.0, total, 1.0)), float("-inf")),
        mask=g < group,
    )


@triton.jit
def merge_kernel(
    part_ptr,
    part_lse_ptr,
    block_lse_ptr,
    context_ptr,
    out_ptr,
    lse_ptr,
    heads,
    head_size,
    max_blocks,
    block_size,
    splits,
    SPLITS: tl.constexpr,
    HEAD: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """Program (row, head): weighs the splits, and turns block log-sum-exps into masses in place."""
    row = tl.program_id(0)
    head = row.to(tl.int64) * heads + tl.program_id(1)
    s, d = tl.arange(0, SPLITS), tl.arange(0, HEAD)
    part_lse = tl.load(part_lse_ptr + head * splits + s, mask=s < splits, other=float("-inf"))
    m = tl.max(part_lse, axis=0)
    safe_m = tl.where(m > float("-inf"), m, 0.0)
    w = tl.exp(part_lse - safe_m)
    total = tl.sum(w, axis=0)
    lse = tl.where(total > 0.0, safe_m + tl.log(tl.where(total > 0.0, total, 1.0)), float("-inf"))
    there = (s[:, None] < splits) & (d[None, :] < head_size)
    part = tl.load(part_ptr + (head * splits + s)[:, None] * head_size + d[None, :], mask=there, other=0.0)
    out = tl.sum(part * w[:, None], axis=0) / tl.where(total > 0.0, total, 1.0)
    tl.store(out_ptr + head * head_size + d, out.to(out_ptr.dtype.element_ty), mask=d < head_size)
    tl.store(lse_ptr + head, lse)
    filled = (tl.load(context_ptr + row) + block_size - 1) // block_size
    safe_lse = tl.where(lse > float("-inf"), lse, 0.0)
    for start in range(0, max_blocks, BLOCKS):
        b = start + tl.arange(0, BLOCKS)
        at = block_lse_ptr + head * max_blocks + b
        block_lse = tl.load(at, mask=b < filled, other=float("-inf"))
        tl.store(at, tl.exp(block_lse - safe_lse), mask=b < max_blocks)


def check_pages(q: Tensor, k_cache: Tensor, v_cache: Tensor) -> int:
    group = check_cache(q, k_cache, v_cache)
    for name, tensor in (("q", q), ("k_cache", k_cache), ("v_cache", v_cache)):
        check(name, tensor, FLOATS, [None] * tensor.ndim, q)
    block_size = k_cache.shape[1]
    if block_size & (block_size - 1):
        raise ValueError(f"block_size must be a power of two, got {block_size}")
    return group


def _decode_warps(dtype: torch.dtype) -> int:
    """Warps of a decode program: float32 has half the keys in a tile."""
    return 4 if dtype == torch.float32 else 8


def _tile_tokens(dtype: torch.dtype) -> int:
    """Keys a decode program scores at once, at least one block."""
    return 16 if dtype == torch.float32 else 32


def _decode_precision(dtype: torch.dtype) -> str:
    """Decode waits for memory, so float32 runs plainly there: three TF32 products would spill."""
    return "ieee" if dtype == torch.float32 else "tf32"


DOT_TYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


def dot_type(q: Tensor) -> tl.dtype:
    """What the products run in: the cache's dtype; float32 in the interpreter, which multiplies the bits of a bf16."""
    return tl.float32 if q.device.type == "cpu" else DOT_TYPES[q.dtype]


def paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    context_tokens: Tensor,
    *,
    scale: float,
    keep: Tensor | None = None,
    window_tokens: int | None = None,
) -> AttentionOutput:
    """Decode attention; shapes, meaning and errors as `reference.paged_attention`.

    On a GPU values inside block_table and keep are not checked, since that would wait for the device: a block index out
    of range counts as dropped, and a head with nothing left gives out 0 and log_sum_exp -inf, never NaN.
    """
    group = check_pages(q, k_cache, v_cache)
    num_blocks, block_size, kv_heads, head_size = k_cache.shape
    rows, heads = q.shape[:2]
    check("block_table", block_table, torch.int32, (rows, None), q)
    check("context_tokens", context_tokens, torch.int32, (rows,), q)
    max_blocks = block_table.shape[1]
    if keep is not None:
        check("keep", keep, torch.bool, (rows, kv_heads, max_blocks), q)
    on_cpu = q.device.type == "cpu"
    if on_cpu:
        check_table(block_table, context_tokens, num_blocks, block_size)
    out = torch.empty_like(q)
    lse = torch.empty(rows, heads, dtype=torch.float32, device=q.device)
    mass = torch.empty(rows, heads, max_blocks, dtype=torch.float32, device=q.device)
    if rows == 0:
        return AttentionOutput(out, lse, mass)
    tile_blocks = max(1, _tile_tokens(q.dtype) // block_size)
    splits = num_splits(rows * kv_heads, max_blocks, q.device, tile_blocks)
    head = max(16, next_power_of_2(head_size))
    part = torch.empty(rows, heads, splits, head_size, dtype=torch.float32, device=q.device)
    part_lse = torch.empty(rows, heads, splits, dtype=torch.float32, device=q.device)
    decode_kernel[(rows, kv_heads, splits)](
        q, k_cache, v_cache, block_table, context_tokens, q if keep is None else keep.view(torch.int8), part, part_lse,
        mass, scale, window_tokens or 0, num_blocks, kv_heads, group, head_size, max_blocks, splits,
        HAS_KEEP=keep is not None, BLOCK_SIZE=block_size, TILE_BLOCKS=tile_blocks,
        GROUP=max(16, next_power_of_2(group)), HEAD=head, PRECISION=_decode_precision(q.dtype), DOT=dot_type(q),
        num_warps=_decode_warps(q.dtype),
    )  # fmt: skip
    merge_kernel[(rows, heads)](
        part, part_lse, mass, context_tokens, out, lse, heads, head_size, max_blocks, block_size, splits,
        SPLITS=max(2, next_power_of_2(splits)), HEAD=head, BLOCKS=128, num_warps=4,
    )  # fmt: skip
    if on_cpu and bool((lse.isneginf() & (context_tokens > 0)[:, None]).any()):
        raise ValueError("keep drops every block of a KV head; keep at least the block of the newest token")
    return AttentionOutput(out, lse, mass)


def shipped() -> list[Shipped]:
    """Configurations launched on a GPU: bf16 and fp32, head sizes 64 and 128, blocks of 16, with and without a keep-list."""
    configurations = []
    for dtype in (torch.bfloat16, torch.float32):
        pointer = POINTER[dtype]
        for head in (64, 128):
            for has_keep in (False, True):
                configurations.append(
                    Shipped(
                        decode_kernel, f"decode {pointer[1:]} {head}{' keep' if has_keep else ''}",
                        {"q_ptr": pointer, "k_ptr": pointer, "v_ptr": pointer, "table_ptr": "*i32",
                         "context_ptr": "*i32", "keep_ptr": "*i8" if has_keep else pointer, "part_ptr": "*fp32",
                         "part_lse_ptr": "*fp32", "block_lse_ptr": "*fp32", "scale": "fp32", "window": "i32",
                         "num_blocks": "i32", "kv_heads": "i32", "group": "i32", "head_size": "i32",
                         "max_blocks": "i32", "splits": "i32"},
                        {"HAS_KEEP": has_keep, "BLOCK_SIZE": 16, "TILE_BLOCKS": _tile_tokens(dtype) // 16, "GROUP": 16, "HEAD": head,
                         "PRECISION": _decode_precision(dtype), "DOT": DOT_TYPES[dtype]},
                        _decode_warps(dtype),
                    )
                )  # fmt: skip
            configurations.append(
                Shipped(
                    merge_kernel, f"merge {pointer[1:]} {head}",
                    {"part_ptr": "*fp32", "part_lse_ptr": "*fp32", "block_lse_ptr": "*fp32", "context_ptr": "*i32",
                     "out_ptr": pointer, "lse_ptr": "*fp32", "heads": "i32", "head_size": "i32", "max_blocks": "i32",
                     "block_size": "i32", "splits": "i32"},
                    {"SPLITS": 32, "HEAD": head, "BLOCKS": 128},
                )
            )  # fmt: skip
    return configurations
