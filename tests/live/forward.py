"""Shorthand for tests: one prefill of a whole sequence through a decoder and a cache of its own."""

import torch

from workbench.live.decoder import Chunk, Decoder, ForwardInput
from workbench.live.kv_cache import allocate_kv_cache


def prefill_logits(decoder: Decoder, ids: list[int], block_size: int = 4) -> torch.Tensor:
    """Logits [tokens, vocab] of one sequence computed in one chunk."""
    num_blocks = -(-len(ids) // block_size)
    cache = allocate_kv_cache(decoder.config, num_blocks, block_size, decoder.dtype, decoder.device)
    position = torch.arange(len(ids))
    table = torch.arange(num_blocks, dtype=torch.int32)
    batch = ForwardInput(
        token_ids=torch.tensor(ids),
        positions=position,
        slot_index=position,
        num_decode=0,
        block_table=table[None, :0],
        context_tokens=table[:0],
        chunks=(Chunk(first=0, last=len(ids), start=0, block_table=table),),
        logit_rows=None,
    )
    return decoder.forward(batch, cache).logits
