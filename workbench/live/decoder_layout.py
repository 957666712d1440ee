"""What goes into a forward pass and what comes out: one flat list of tokens, decode rows first, then prefill chunks."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A chunk of one sequence's prefill: tokens [first, last) of the batch, at positions `start` onwards."""

    first: int
    last: int
    start: int
    block_table: torch.Tensor  # [max_blocks] int32


@dataclass(frozen=True, kw_only=True)
class ForwardInput:
    """T tokens; the first `num_decode` are one-token rows, the rest belong to `chunks`."""

    token_ids: torch.Tensor  # [T] int64
    positions: torch.Tensor  # [T] int64
    slot_index: torch.Tensor  # [T] int64, physical block * block_size + offset
    num_decode: int
    block_table: torch.Tensor  # [num_decode, max_blocks] int32, no -1 in it (dropped blocks are masked by keep)
    context_tokens: torch.Tensor  # [num_decode] int32, the new token included
    chunks: tuple[Chunk, ...]
    logit_rows: torch.Tensor | None  # [R] int64 tokens whose logits are wanted; None: every one, in order


@dataclass(frozen=True, kw_only=True)
class ForwardOutput:
    logits: torch.Tensor  # [R, vocab] float32
    mass: torch.Tensor | None  # [num_decode, max_blocks] float32, mean over layers and query heads
    mass_by_head: torch.Tensor | None  # [layers, num_decode, kv_heads, max_blocks], mean over the group's query heads
    dropped_mass: torch.Tensor | None  # [num_decode], mean over layers and query heads; None where nothing was masked
    read_tokens: torch.Tensor | None  # [num_decode], KV tokens read, mean over layers and KV heads; None: all of them
    measuring_s: float  # time spent only to measure what pruning dropped


def read_tokens(keep: torch.Tensor, context_tokens: torch.Tensor, block_size: int) -> torch.Tensor:
    """KV tokens in the kept blocks, [rows], mean over KV heads. keep: bool [rows, kv_heads, max_blocks]."""
    first = torch.arange(keep.shape[2], device=keep.device) * block_size
    tokens = (context_tokens[:, None] - first).clamp(0, block_size).float()
    return (keep * tokens[:, None, :]).sum(dim=2).mean(dim=1)
