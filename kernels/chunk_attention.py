"""Triton attention of a prefill chunk over a sequence's KV pages: a program takes some queries of one head.

Query head h reads KV head h // (heads / kv_heads). Source: the running maximum is FlashAttention's (Dao et al., 2022).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import POINTER, Shipped, check, next_power_of_2
from kernels.paged_attention import DOT_TYPES, check_pages, dot_type
from kernels.reference.attention import check_table

CHUNK_TILE = 32  # keys a program scores at once


@triton.jit
def chunk_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    table_ptr,
    out_ptr,
    scale,
    tokens,
    start,
    window,
    num_blocks,
    kv_heads,
    group,
    head_size,
    block_size,
    CAUSAL: tl.constexpr,
    QUERIES: tl.constexpr,
    TILE: tl.constexpr,
    HEAD: tl.constexpr,
    PRECISION: tl.constexpr,
    DOT: tl.constexpr,
):
    """Program (tile of queries, head): attention of a chunk over the sequence's pages."""
    head = tl.program_id(1)
    heads = kv_heads * group
    i, d = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES), tl.arange(0, HEAD)
    q_ok = (i[:, None] < tokens) & (d[None, :] < head_size)
    q_at = (i.to(tl.int64)[:, None] * heads + head) * head_size + d[None, :]
    q = tl.load(q_ptr + q_at, mask=q_ok, other=0.0).to(DOT)
    position = start + i
    length = start + tokens
    end = length
    if CAUSAL:
        end = tl.minimum(length, start + (tl.program_id(0) + 1) * QUERIES)
    begin = 0
    if window > 0:
        begin = tl.maximum(start + tl.program_id(0) * QUERIES - window + 1, 0) // TILE * TILE
    m = tl.full([QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    acc = tl.zeros([QUERIES, HEAD], tl.float32)
    stride = (kv_heads * head_size).to(tl.int64)
    for first in range(begin, end, TILE):
        key = first + tl.arange(0, TILE)
        physical = tl.load(table_ptr + key // block_size, mask=key < length, other=0).to(tl.int64)
        there = (key < length) & (physical >= 0) & (physical < num_blocks)
        at = (physical * block_size + key % block_size) * stride + (head // group) * head_size
        at = at[:, None] + d[None, :]
        k = tl.load(k_ptr + at, mask=there[:, None] & (d[None, :] < head_size), other=0.0).to(DOT)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
        seen = there[None, :] & (i[:, None] < tokens)
        if CAUSAL:
            seen = seen & (key[None, :] <= position[:, None])
        if window > 0:
            seen = seen & (key[None, :] > position[:, None] - window)
        scores = tl.where(seen, scores, float("-inf"))
        new_m = tl.maximum(m, tl.max(scores, axis=1))
        safe_m = tl.where(new_m > float("-inf"), new_m, 0.0)
        p = tl.exp(scores - safe_m[:, None])
        w = tl.exp(tl.where(m > float("-inf"), m - safe_m, -120.0))
        v = tl.load(v_ptr + at, mask=there[:, None] & (d[None, :] < head_size), other=0.0).to(DOT)
        acc = acc * w[:, None] + tl.dot(p.to(DOT), v, input_precision=PRECISION)
        total = total * w + tl.sum(p, axis=1)
        m = new_m
    out = acc / tl.where(total > 0.0, total, 1.0)[:, None]
    tl.store(out_ptr + q_at, out.to(out_ptr.dtype.element_ty), mask=q_ok)


def _precision(dtype: torch.dtype) -> str:
    """How float32 products run: three TF32 products (float32 accuracy on tensor cores), plain float32 on AMD."""
    if dtype != torch.float32:
        return "tf32"
    return "ieee" if torch.version.hip else "tf32x3"


def _queries(dtype: torch.dtype, head: int) -> int:
    """Queries a prefill program takes, as many as its registers hold."""
    few = 32 if head <= 64 else 16
    return few if dtype == torch.float32 else 2 * few


def chunk_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    start: int,
    *,
    scale: float,
    causal: bool = True,
    window_tokens: int | None = None,
) -> Tensor:
    """Attention of one sequence's chunk; shapes, meaning and errors as `reference.chunk_attention`."""
    group = check_pages(q, k_cache, v_cache)
    num_blocks, block_size, kv_heads, head_size = k_cache.shape
    tokens, heads = q.shape[:2]
    check("block_table", block_table, torch.int32, (None,), q)
    length = start + tokens
    if start < 0 or length > block_table.shape[0] * block_size:
        raise ValueError(f"chunk [{start}, {length}) does not fit {block_table.shape[0]} blocks of {block_size} tokens")
    if q.device.type == "cpu":
        check_table(block_table[None], torch.tensor([length]), num_blocks, block_size)
    out = torch.empty_like(q)
    if tokens == 0:
        return out
    head = max(16, next_power_of_2(head_size))
    queries = min(_queries(q.dtype, head), max(16, next_power_of_2(tokens)))
    chunk_kernel[(-(-tokens // queries), heads)](
        q, k_cache, v_cache, block_table, out, scale, tokens, start, window_tokens or 0, num_blocks, kv_heads, group,
        head_size, block_size, CAUSAL=causal, QUERIES=queries, TILE=CHUNK_TILE, HEAD=head,
        PRECISION=_precision(q.dtype), DOT=dot_type(q), num_warps=4 if head <= 64 else 8,
    )  # fmt: skip
    return out


def shipped() -> list[Shipped]:
    """Configurations launched on a GPU: bf16 and fp32, head sizes 64 and 128."""
    configurations = []
    for dtype in (torch.bfloat16, torch.float32):
        pointer, precision = POINTER[dtype], _precision(dtype)
        for head in (64, 128):
            configurations.append(
                Shipped(
                    chunk_kernel, f"chunk {pointer[1:]} {head}",
                    {"q_ptr": pointer, "k_ptr": pointer, "v_ptr": pointer, "table_ptr": "*i32", "out_ptr": pointer,
                     "scale": "fp32", "tokens": "i32", "start": "i32", "window": "i32", "num_blocks": "i32",
                     "kv_heads": "i32", "group": "i32", "head_size": "i32", "block_size": "i32"},
                    {"CAUSAL": True, "QUERIES": _queries(dtype, head), "TILE": CHUNK_TILE, "HEAD": head, "PRECISION": precision,
                     "DOT": DOT_TYPES[dtype]},
                    4 if head <= 64 else 8,
                )
            )  # fmt: skip
    return configurations
