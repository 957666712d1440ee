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
    summed_mass: FloatArray  # [layers, kv_heads, blocks] summed over the queries before the last `unsummed`


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


class PromptMass:
    """Attention mass of each block summed over a prompt's queries, chunk by chunk: mean over the query heads of a KV head.

    What H2O accumulates. `queries`: how many of the first queries count. Of those every `EVERY`-th is looked at and stands for
    its neighbours: all of them would cost more than the rest of the prefill, and the order of the sums is what matters.
    """

    EVERY = 4
    QUERIES_AT_ONCE = 128  # keeps a head's scores in the cache

    def __init__(self, decoder: Decoder, cache: KVCache, queries: int) -> None:
        self.cache, self.scale, self.queries = cache, decoder.scale, queries
        config = decoder.config
        self.summed = torch.zeros(config.num_layers, config.num_kv_heads, cache.num_blocks)
        self.start = 0  # position of the first token of the pass

    def __call__(self, layer: int, q: torch.Tensor) -> None:
        """q [tokens, heads, d], one chunk of the prompt; the keys are those of blocks 0, 1, .."""
        stop = min(self.start + q.shape[0], self.queries)
        if stop <= self.start:
            return
        kv_heads, d = self.summed.shape[1], q.shape[2]
        place = torch.arange(self.start, stop, self.EVERY)
        grouped = q[place - self.start].float().unflatten(1, (kv_heads, -1)) * self.scale
        keys = self.cache.keys[layer].flatten(0, 1)[:stop].float()
        for head in range(kv_heads):
            own = keys[:, head].T.contiguous()
            mass = torch.zeros(stop)
            for first in range(0, place.numel(), self.QUERIES_AT_ONCE):
                at = place[first : first + self.QUERIES_AT_ONCE]
                some = grouped[first : first + at.numel(), head]  # [queries, group, d]
                score = some.transpose(0, 1).reshape(-1, d) @ own
                later = torch.arange(stop) > at[:, None]
                score.view(-1, at.numel(), stop).masked_fill_(later, -torch.inf)
                mass += score.softmax(dim=1).sum(dim=0) * (self.EVERY / some.shape[1])
            size = self.cache.block_size
            padded = torch.nn.functional.pad(mass, (0, -stop % size))
            self.summed[layer, head, : padded.numel() // size] += padded.view(-1, size).sum(dim=1)


def prefill(
    decoder: Decoder,
    ids: Sequence[int],
    num_tokens: int,
    spare_blocks: int = 0,
    progress: Callable[[float], None] | None = None,
    unsummed: int = 0,
) -> Prefix:
    """The dense prefix, chunk by chunk.

    `unsummed`: queries at the end that `summed_mass` leaves to whoever is shown them one by one.

    Raises `InputError` if the text is longer than the model's context.
    """
    if len(ids) > decoder.config.max_context_tokens:
        raise InputError(
            f"{len(ids)} tokens exceed the context of {decoder.config.max_context_tokens}; lower --context"
        )
    blocks = -(-num_tokens // BLOCK_SIZE)
    cache = allocate_kv_cache(decoder.config, blocks + spare_blocks, BLOCK_SIZE, decoder.dtype, decoder.device)
    table = torch.arange(blocks, dtype=torch.int32)
    tokens = torch.tensor(ids)
    judged, nll = [], []
    summed = PromptMass(decoder, cache, num_tokens - unsummed)
    for start in range(0, num_tokens, CHUNK_TOKENS):
        stop = min(start + CHUNK_TOKENS, num_tokens)
        position = torch.arange(start, stop)
        summed.start = start
        wanted = torch.arange(0, min(stop, num_tokens - 1) - start, NLL_EVERY)
        out = decoder.forward(
            ForwardInput(
                token_ids=tokens[start:stop], positions=position, slot_index=position, num_decode=0,
                block_table=table[None, :0], context_tokens=table[:0],
                chunks=(Chunk(first=0, last=stop - start, start=start, block_table=table),), logit_rows=wanted,
            ),
            cache,
            on_queries=summed,
        )  # fmt: skip
        target = tokens[start + wanted + 1]
        nll.append((out.logits.logsumexp(dim=-1) - out.logits.gather(1, target[:, None])[:, 0]).double().numpy())
        judged.append(start + wanted.numpy() + 1)
        if progress is not None:
            progress(stop / num_tokens)
    return Prefix(
        decoder, cache, tokens, num_tokens, np.concatenate(judged), np.concatenate(nll), summed.summed.double().numpy()
    )


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
