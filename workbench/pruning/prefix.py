"""A text's dense prefix in paged KV memory, and what its queries look at: one prefill, then any positions at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from workbench.errors import InputError
from workbench.live.decoder import Chunk, Decoder, ForwardInput
from workbench.live.kv_cache import KVCache, allocate_kv_cache
from workbench.signals import FloatArray, IntArray

BLOCK_SIZE = 16
CHUNK_TOKENS = 512
NLL_EVERY = 4


@dataclass(frozen=True)
class Prefix:
    """KV of tokens [0, num_tokens) in blocks 0, 1, .. of `cache`; blocks beyond are spare."""

    decoder: Decoder
    cache: KVCache
    ids: torch.Tensor  # [whole text]
    num_tokens: int
    judged: IntArray  # places of every `NLL_EVERY`-th token
    surprisal_nats: FloatArray  # of those, under the dense model


@dataclass(frozen=True)
class Queries:
    """Dense attention of some positions, each over its own past and itself."""

    position: torch.Tensor  # [rows]
    q: torch.Tensor  # [layers, rows, heads, d], rotated
    mass: FloatArray  # [layers, rows, kv_heads, blocks], mean over the group's query heads
    entropy_nats: FloatArray  # [rows] of the next token's distribution

    def last(self, count: int) -> "Queries":
        """The last `count` rows."""
        return Queries(self.position[-count:], self.q[:, -count:], self.mass[:, -count:], self.entropy_nats[-count:])


def prefill(
    decoder: Decoder,
    fast: Decoder,
    ids: Sequence[int],
    num_tokens: int,
    spare_blocks: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Prefix:
    """The prefix is computed by `fast` (the same model in bf16) and kept in the dtype of `decoder`, which does the rest.

    Raises `InputError` if the text is longer than the model's context.
    """
    if len(ids) > decoder.config.max_context_tokens:
        raise InputError(
            f"{len(ids)} tokens exceed the context of {decoder.config.max_context_tokens}; lower --context"
        )
    blocks = -(-num_tokens // BLOCK_SIZE)
    computed = allocate_kv_cache(fast.config, blocks, BLOCK_SIZE, fast.dtype, fast.device)
    table = torch.arange(blocks, dtype=torch.int32)
    tokens = torch.tensor(ids)
    judged, nll = [], []
    for start in range(0, num_tokens, CHUNK_TOKENS):
        stop = min(start + CHUNK_TOKENS, num_tokens)
        position = torch.arange(start, stop)
        wanted = torch.arange(0, min(stop, num_tokens - 1) - start, NLL_EVERY)
        out = fast.forward(
            ForwardInput(
                token_ids=tokens[start:stop], positions=position, slot_index=position, num_decode=0,
                block_table=table[None, :0], context_tokens=table[:0],
                chunks=(Chunk(first=0, last=stop - start, start=start, block_table=table),), logit_rows=wanted,
            ),
            computed,
        )  # fmt: skip
        target = tokens[start + wanted + 1]
        nll.append((out.logits.logsumexp(dim=-1) - out.logits.gather(1, target[:, None])[:, 0]).double().numpy())
        judged.append(start + wanted.numpy() + 1)
        if progress is not None:
            progress(stop / num_tokens)
    cache = allocate_kv_cache(decoder.config, blocks + spare_blocks, BLOCK_SIZE, decoder.dtype, decoder.device)
    for pool, done in zip((*cache.keys, *cache.values), (*computed.keys, *computed.values), strict=True):
        pool[:blocks] = done.to(pool.dtype)
    return Prefix(decoder, cache, tokens, num_tokens, np.concatenate(judged), np.concatenate(nll))


def dense_queries(prefix: Prefix, positions: Sequence[int], rows_at_once: int = 32) -> Queries:
    """One decode row a position, all over the same blocks. Their keys and values are written anew where they lie."""
    decoder, blocks = prefix.decoder, -(-prefix.num_tokens // BLOCK_SIZE)
    q_parts, mass_parts, entropy = [], [], []
    for first in range(0, len(positions), rows_at_once):
        position = torch.tensor(positions[first : first + rows_at_once])
        rows, seen = position.numel(), []
        out = decoder.forward(
            ForwardInput(
                token_ids=prefix.ids[position], positions=position, slot_index=position, num_decode=rows,
                block_table=torch.arange(blocks, dtype=torch.int32).expand(rows, blocks).contiguous(),
                context_tokens=(position + 1).int(), chunks=(), logit_rows=torch.arange(rows),
            ),
            prefix.cache,
            lambda layer, q, seen=seen: seen.append(q.float().clone()),
            want_mass_by_head=True,
            measure_dropped=False,
        )  # fmt: skip
        log_p = out.logits.double().log_softmax(dim=-1)
        entropy.append(-(log_p.exp() * log_p).sum(dim=-1).numpy())
        q_parts.append(torch.stack(seen))
        mass_parts.append(out.mass_by_head.double().numpy())
    return Queries(
        torch.tensor(list(positions)),
        torch.cat(q_parts, dim=1),
        np.concatenate(mass_parts, axis=1),
        np.concatenate(entropy),
    )
