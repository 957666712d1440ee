"""Content ids of prompt blocks: equal ids exactly where two prompts begin alike, for one model and one policy.

Ids are dense whole numbers. They come from the prompts' tokens, through a dictionary whose keys are compared in full
(parent id, tokens of the block), so that two contents never share an id however a hash may collide; or from the block
hashes of a trace, which its publisher has computed. The chain starts at (model, policy): the same tokens under another model or
another eviction policy have other ids.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workbench.errors import InputError
from workbench.signals import IntArray


@dataclass(frozen=True)
class PromptBlocks:
    """key[offset[r] : offset[r + 1]] are the ids, in [0, num_keys), of request r's full prompt blocks, first block first."""

    offset: IntArray  # [num_requests + 1]
    key: IntArray
    num_keys: int
    block_size: int  # tokens

    def of(self, request: int) -> IntArray:
        return self.key[self.offset[request] : self.offset[request + 1]]


class ContentIds:
    """Gives out ids; one object per KV memory, so that ids of several calls can be compared."""

    def __init__(self) -> None:
        self._ids: dict[tuple[object, ...], int] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def of(self, tokens: Sequence[int], block_size: int, model: str, policy: str) -> list[int]:
        """Ids of the full blocks of one prompt."""
        ids = []
        parent: object = (model, policy)
        for start in range(0, len(tokens) - block_size + 1, block_size):
            content = (parent, *(int(t) for t in tokens[start : start + block_size]))
            parent = self._ids.setdefault(content, len(self._ids))
            ids.append(parent)
        return ids


def blocks_of_tokens(
    prompts: Sequence[Sequence[int]], block_size: int, *, model: str, policy: str, ids: ContentIds | None = None
) -> PromptBlocks:
    """From token ids. `ids`: share them with other calls."""
    ids = ContentIds() if ids is None else ids
    lists = [ids.of(prompt, block_size, model, policy) for prompt in prompts]
    return PromptBlocks(_offsets([len(found) for found in lists]), _flat(lists), len(ids), block_size)


def blocks_of_hashes(
    offset: IntArray, hash_id: IntArray, prompt_tokens: IntArray, hash_tokens: int, block_size: int
) -> PromptBlocks:
    """From a trace's hashes of `hash_tokens` tokens each: request r has hash_id[offset[r] : offset[r + 1]].

    A hash covers hash_tokens / block_size blocks; a last, partly filled one covers those that are full.
    """
    if hash_tokens % block_size:
        raise InputError(
            f"engine.block_size must divide the {hash_tokens} tokens of the trace's prefix hashes, got {block_size}"
        )
    each = hash_tokens // block_size
    hashes = np.diff(offset)
    counts = np.minimum(prompt_tokens // block_size, hashes * each)
    new_offset = _offsets(counts)
    place = np.arange(int(new_offset[-1])) - np.repeat(new_offset[:-1], counts)
    key = hash_id[np.repeat(offset[:-1], counts) + place // each] * each + place % each
    num_keys = (int(hash_id.max()) + 1 if hash_id.size else 0) * each
    return PromptBlocks(new_offset, key.astype(np.int64), num_keys, block_size)


def blocks_of_groups(
    group: IntArray, prefix_tokens: int, prompt_tokens: IntArray, num_groups: int, block_size: int
) -> PromptBlocks:
    """Request r begins with the `prefix_tokens` tokens of group[r]; what follows is its own and has no id."""
    counts = np.minimum(prompt_tokens, prefix_tokens) // block_size
    offset = _offsets(counts)
    each = prefix_tokens // block_size
    place = np.arange(int(offset[-1])) - np.repeat(offset[:-1], counts)
    return PromptBlocks(offset, np.repeat(group, counts) * each + place, num_groups * each, block_size)


def _offsets(counts: Sequence[int] | IntArray) -> IntArray:
    return np.concatenate([[0], np.cumsum(np.asarray(counts, np.int64))]).astype(np.int64)


def _flat(lists: Sequence[Sequence[int]]) -> IntArray:
    return np.array([i for found in lists for i in found], np.int64)
