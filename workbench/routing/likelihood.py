"""Log-probabilities of several continuations of one text in one forward pass, sharing its KV blocks.

The text's tokens are prefilled once; in every layer keys are written before any are read, so the continuations ride in the
same pass. A branch (at, ids) continues the text cut off at token `at`: it shares the full KV blocks
before `at`, and computes the rest of that block and its own tokens in blocks of its own, as a chunk of its own. With p the model's distribution at T = 1 without truncation,

    surprisal of token j of a branch = -ln p(ids_j | text[:at], ids_0 .. ids_{j-1})

Source: ours (paged prefix sharing). `LiveModel.score` gives the same numbers one continuation at a time; a test holds them equal.
"""

from collections.abc import Sequence

import torch

from workbench.errors import InputError
from workbench.live.decoder import Chunk, Decoder, ForwardInput
from workbench.live.kv_cache import allocate_kv_cache
from workbench.routing.text_model import Branch, BranchScore

BLOCK_SIZE = 16


@torch.inference_mode()
def score_branches(decoder: Decoder, text_ids: Sequence[int], branches: Sequence[Branch]) -> list[BranchScore]:
    """`BranchScore` of each branch. Every branch needs 1 <= at <= len(text) and at least one id."""
    text = list(text_ids)
    for branch in branches:
        if not 1 <= branch.at <= len(text) or not branch.ids:
            raise InputError(f"a branch needs at least one token and 1 <= at <= {len(text)}, got at {branch.at}")
        if branch.at + len(branch.ids) > decoder.config.max_context_tokens:
            raise InputError(
                f"{branch.at + len(branch.ids)} tokens exceed the context of {decoder.config.max_context_tokens}"
            )
    if not branches:
        return []
    device, size = decoder.device, BLOCK_SIZE
    shared = max(branch.at - 1 for branch in branches) // size  # the branch computes at least token at - 1 itself
    own = [-(-(b.at + len(b.ids)) // size) - min(shared, (b.at - 1) // size) for b in branches]
    cache = allocate_kv_cache(decoder.config, shared + sum(own), size, decoder.dtype, device)
    table = torch.arange(shared + sum(own), dtype=torch.int32, device=device)
    pieces = [(0, text[: shared * size], table[:shared])] if shared else []
    wanted, first_own, offset = [], shared, shared * size
    for branch, blocks in zip(branches, own, strict=True):
        keep = min(shared, (branch.at - 1) // size)
        start = keep * size
        tokens = [*text[start : branch.at], *branch.ids]
        pieces.append((start, tokens, torch.cat([table[:keep], table[first_own : first_own + blocks]])))
        first = offset + branch.at - 1 - start
        wanted.append(torch.arange(first, first + len(branch.ids) + 1))
        first_own, offset = first_own + blocks, offset + len(tokens)
    logits = _forward(decoder, cache, pieces, torch.cat(wanted))
    log_p = torch.log_softmax(logits.float(), dim=-1)
    entropy = -(log_p.exp() * log_p.clamp_min(-1e30)).sum(dim=-1).double().cpu().numpy()
    scores, row = [], 0
    for branch in branches:
        n = len(branch.ids)
        ids = torch.tensor(branch.ids, device=device)
        chosen = log_p[row : row + n].gather(1, ids[:, None])[:, 0].double().cpu().numpy()
        scores.append(BranchScore(-chosen, entropy[row : row + n], float(entropy[row + n])))
        row += n + 1
    return scores


def _forward(
    decoder: Decoder, cache: object, pieces: list[tuple[int, list[int], torch.Tensor]], logit_rows: torch.Tensor
) -> torch.Tensor:
    """One forward pass of (start, tokens, block table) pieces; logits of the given rows."""
    device, size = decoder.device, BLOCK_SIZE
    chunks, positions, slots, first = [], [], [], 0
    for start, tokens, table in pieces:
        position = torch.arange(start, start + len(tokens), device=device)
        positions.append(position)
        slots.append(table[position // size].long() * size + position % size)
        chunks.append(Chunk(first=first, last=first + len(tokens), start=start, block_table=table))
        first += len(tokens)
    return decoder.forward(
        ForwardInput(
            token_ids=torch.tensor([token for _, tokens, _ in pieces for token in tokens], device=device),
            positions=torch.cat(positions),
            slot_index=torch.cat(slots),
            num_decode=0,
            block_table=torch.zeros((0, 1), dtype=torch.int32, device=device),
            context_tokens=torch.zeros(0, dtype=torch.int32, device=device),
            chunks=tuple(chunks),
            logit_rows=logit_rows.to(device),
        ),
        cache,  # type: ignore[arg-type]
    ).logits
