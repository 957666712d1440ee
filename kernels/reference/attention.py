"""Torch twins of the paged attention ops.

The cache is a pool of blocks, k_cache and v_cache [num_blocks, block_size, kv_heads, d]; a sequence owns the blocks its
block table names, in order. Query head h reads KV head h // (heads / kv_heads).
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class AttentionOutput(NamedTuple):
    """Result of decode attention for one query token per row."""

    out: Tensor  # [rows, heads, d], the dtype of q
    log_sum_exp: Tensor  # [rows, heads] float32, ln sum exp of the scaled scores that were kept; -inf in an empty row
    mass: Tensor  # [rows, heads, max_blocks] float32, attention mass of each block: sums to 1, 0 where not read


def check_cache(q: Tensor, k_cache: Tensor, v_cache: Tensor) -> int:
    """Refuse shapes and dtypes that do not fit together; returns the group size heads / kv_heads."""
    if k_cache.ndim != 4 or k_cache.shape != v_cache.shape:
        raise ValueError(
            f"k_cache and v_cache must both be [num_blocks, block_size, kv_heads, d], got {list(k_cache.shape)} and "
            f"{list(v_cache.shape)}"
        )
    if q.ndim != 3 or q.shape[2] != k_cache.shape[3] or q.shape[1] % k_cache.shape[2]:
        raise ValueError(
            f"q must be [rows, heads, d] with d = {k_cache.shape[3]} and heads a multiple of kv_heads = "
            f"{k_cache.shape[2]}, got {list(q.shape)}"
        )
    if not (q.dtype == k_cache.dtype == v_cache.dtype):
        raise TypeError(f"q, k_cache and v_cache must share a dtype, got {q.dtype}, {k_cache.dtype}, {v_cache.dtype}")
    return q.shape[1] // k_cache.shape[2]


def check_table(block_table: Tensor, context_tokens: Tensor, num_blocks: int, block_size: int) -> None:
    """Refuse a context longer than its table, or a filled table entry that names no block."""
    rows, max_blocks = block_table.shape
    if context_tokens.shape != (rows,):
        raise ValueError(f"context_tokens must have shape [rows] = [{rows}], got {list(context_tokens.shape)}")
    if rows == 0:
        return
    if bool((context_tokens < 0).any()) or int(context_tokens.max()) > max_blocks * block_size:
        raise ValueError(f"context_tokens must be in [0, max_blocks * block_size] = [0, {max_blocks * block_size}]")
    filled = torch.arange(max_blocks, device=block_table.device) * block_size < context_tokens[:, None]
    if bool((((block_table < 0) | (block_table >= num_blocks)) & filled).any()):
        raise ValueError(f"block_table names a block outside [0, {num_blocks}) within a row's context")


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
    """Decode attention: each row's query is its last token, at position context_tokens - 1.

    q: [rows, heads, d]; block_table: [rows, max_blocks] int32; context_tokens: [rows] int32, 0 for an empty row (out 0,
    log_sum_exp -inf). keep: bool [rows, kv_heads, max_blocks], blocks to read (None: all). window_tokens = w: only the
    last w keys are seen. Dropped blocks leave the softmax; masses are renormalised over what is kept. Raises
    ValueError on bad shapes, a block index out of range, or a head of a non-empty row with nothing left to read.
    """
    group = check_cache(q, k_cache, v_cache)
    num_blocks, block_size, kv_heads, d = k_cache.shape
    rows, max_blocks = block_table.shape
    check_table(block_table, context_tokens, num_blocks, block_size)
    mass = torch.zeros(rows, q.shape[1], max_blocks, dtype=torch.float32, device=q.device)
    used = -(-int(context_tokens.max()) // block_size) if rows else 0
    if used == 0:
        return AttentionOutput(torch.zeros_like(q), mass.new_full((rows, q.shape[1]), float("-inf")), mass)
    table = block_table[:, :used].clamp(0, num_blocks - 1).to(torch.int64)
    tokens = used * block_size
    keys = k_cache[table].view(rows, tokens, kv_heads, d).permute(0, 2, 3, 1).float()
    values = v_cache[table].view(rows, tokens, kv_heads, d).transpose(1, 2).float()
    position = torch.arange(tokens, device=q.device)
    seen = position < context_tokens[:, None]
    if window_tokens is not None:
        seen = seen & (position >= context_tokens[:, None] - window_tokens)
    seen = seen[:, None, :].expand(rows, kv_heads, tokens)
    if keep is not None:
        if keep.shape != (rows, kv_heads, max_blocks) or keep.dtype != torch.bool:
            raise ValueError(f"keep must be bool [rows, kv_heads, max_blocks] = [{rows}, {kv_heads}, {max_blocks}]")
        seen = seen & keep[:, :, :used].repeat_interleave(block_size, dim=2)
    empty = ~seen.any(dim=2)
    if bool((empty & (context_tokens > 0)[:, None]).any()):
        raise ValueError("keep drops every block of a KV head; keep at least the block of the newest token")
    # Slots that are not seen may hold anything, NaN included: they are taken out of values as well as scores.
    values = torch.where(seen[..., None], values, 0.0)
    scores = torch.matmul(q.view(rows, kv_heads, group, d).float() * scale, keys)
    scores = torch.where(seen[:, :, None, :], scores, float("-inf"))
    log_sum_exp = scores.logsumexp(dim=3)
    p = torch.where(empty[:, :, None, None], 0.0, (scores - log_sum_exp[..., None]).exp())
    out = torch.matmul(p, values).view(rows, kv_heads * group, d).to(q.dtype)
    mass[:, :, :used] = p.view(rows, kv_heads * group, used, block_size).sum(dim=3)
    return AttentionOutput(out, log_sum_exp.view(rows, -1), mass)


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
    """Attention of one sequence's chunk q [tokens, heads, d] at positions start .. start + tokens - 1.

    The chunk's own keys are already in the cache. block_table: [max_blocks] int32 of this sequence. Causal: position i
    sees keys 0 .. i (with a window w, keys i - w + 1 .. i); otherwise all start + tokens keys. Returns [tokens, heads, d].
    """
    group = check_cache(q, k_cache, v_cache)
    num_blocks, block_size, kv_heads, d = k_cache.shape
    length = start + q.shape[0]
    context = torch.tensor([length], device=q.device)
    check_table(block_table[None], context, num_blocks, block_size)
    if q.shape[0] == 0:
        return torch.zeros_like(q)
    table = block_table[: -(-length // block_size)].to(torch.int64)
    keys = k_cache[table].view(-1, kv_heads, d)[:length].transpose(0, 1)
    values = v_cache[table].view(-1, kv_heads, d)[:length].transpose(0, 1)
    mask = None
    if (causal and start > 0) or window_tokens is not None:
        position = torch.arange(start, length, device=q.device)[:, None]
        key = torch.arange(length, device=q.device)[None, :]
        mask = key <= position if causal else torch.ones(q.shape[0], length, dtype=torch.bool, device=q.device)
        if window_tokens is not None:
            mask = mask & (key > position - window_tokens)
    out = F.scaled_dot_product_attention(
        q.transpose(0, 1)[None],
        keys.repeat_interleave(group, dim=0)[None],
        values.repeat_interleave(group, dim=0)[None],
        attn_mask=mask,
        is_causal=causal and mask is None,
        scale=scale,
    )
    return out[0].transpose(0, 1).contiguous()


def kv_write(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slot_index: Tensor) -> None:
    """Write k, v [tokens, kv_heads, d] into the caches at slot = block * block_size + offset ([tokens] int64)."""
    num_blocks, block_size, kv_heads, d = k_cache.shape
    if k.shape != v.shape or k.shape[1:] != (kv_heads, d) or slot_index.shape != k.shape[:1]:
        raise ValueError(
            f"k and v must be [tokens, {kv_heads}, {d}] and slot_index [tokens], got {list(k.shape)}, {list(v.shape)}, "
            f"{list(slot_index.shape)}"
        )
    if not (k_cache.is_contiguous() and v_cache.is_contiguous()):
        raise ValueError("k_cache and v_cache must be contiguous")
    num_slots = num_blocks * block_size
    if slot_index.numel() and (int(slot_index.min()) < 0 or int(slot_index.max()) >= num_slots):
        raise ValueError(f"slot_index must be in [0, num_blocks * block_size) = [0, {num_slots})")
    k_cache.view(num_slots, kv_heads, d)[slot_index] = k.to(k_cache.dtype)
    v_cache.view(num_slots, kv_heads, d)[slot_index] = v.to(v_cache.dtype)
