"""Prefix caching: full prompt blocks stay in the KV memory after their request and serve the next with the same beginning.

A prompt block has a content id (`workbench.engine.prompt_blocks`); equal ids mean equal tokens after an equal beginning.
A physical block is held by `refs` requests. One that nobody holds is free, yet keeps its content until it is taken for
something else: free blocks form a ring, blocks without content first, then the least recently used.

    admission   the leading blocks of the prompt that are in memory are adopted; at least one token is left to compute
    step end    full prompt blocks that a prefill has just computed are published under their ids
    release     blocks go back to the ring, a prompt's last blocks nearest to being taken

Invariants (held by a stateful property test): refs = number of tables that hold the block; a block is in the ring exactly
when refs = 0; block_of and key_of are inverse. All functions are compiled and change their arguments in place.
Source: ours; block hashing with LRU is that of Kwon et al., vLLM (SOSP 2023).
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from workbench.engine.prompt_blocks import PromptBlocks
from workbench.signals import BoolArray, IntArray

if TYPE_CHECKING:
    from workbench.engine.kv_blocks import BlockPool


class PrefixIndex(NamedTuple):
    """Which physical block holds which content. `ring` entries: one a block, the last is the ring's anchor."""

    refs: IntArray  # [num_blocks] requests that hold the block
    key_of: IntArray  # [num_blocks] content id, -1 where no other request could use it
    block_of: NDArray[np.int32]  # [num_keys] physical block of a content id, -1 where it is not in memory
    newer: NDArray[np.int32]  # [num_blocks + 1] towards the block that will be taken last
    older: NDArray[np.int32]  # [num_blocks + 1]
    offset: IntArray  # [num_requests + 1] ids of request r's full prompt blocks: key[offset[r] : offset[r + 1]]
    key: IntArray


def new_prefix_index(num_blocks: int, blocks: PromptBlocks) -> PrefixIndex:
    ring = np.arange(num_blocks + 1)
    return PrefixIndex(
        refs=np.zeros(num_blocks, np.int64),
        key_of=np.full(num_blocks, -1, np.int64),
        block_of=np.full(blocks.num_keys, -1, np.int32),
        newer=np.roll(ring, -1).astype(np.int32),
        older=np.roll(ring, 1).astype(np.int32),
        offset=blocks.offset,
        key=blocks.key,
    )


@njit(cache=True)
def unlink(index: PrefixIndex, block: int) -> None:
    before, after = index.older[block], index.newer[block]
    index.newer[before] = after
    index.older[after] = before


@njit(cache=True)
def take(pool: "BlockPool", index: PrefixIndex) -> int:
    """The free block least worth keeping, its content forgotten. The caller has checked that there is one."""
    block = int(index.newer[index.refs.shape[0]])
    unlink(index, block)
    pool.num_free[0] -= 1
    if index.key_of[block] >= 0:
        index.block_of[index.key_of[block]] = -1
        index.key_of[block] = -1
    index.refs[block] = 1
    return block


@njit(cache=True)
def give(pool: "BlockPool", index: PrefixIndex, block: int) -> None:
    """One holder less; free with the last of them."""
    index.refs[block] -= 1
    if index.refs[block] > 0:
        return
    anchor = index.refs.shape[0]
    # Content: the last to be taken. None: the first.
    before = index.older[anchor] if index.key_of[block] >= 0 else anchor
    after = index.newer[before]
    index.newer[before], index.older[block] = block, before
    index.newer[block], index.older[after] = after, block
    pool.num_free[0] += 1


@njit(cache=True)
def adopt(pool: "BlockPool", index: PrefixIndex, slot: int, request: int, known: int, block_size: int) -> int:
    """Let an empty slot hold the cached beginning of its request's prompt; returns the tokens it covers.

    At most (known - 1) tokens: a forward pass needs one to compute.
    """
    first = index.offset[request]
    most = min(index.offset[request + 1] - first, (known - 1) // block_size)
    count = 0
    while count < most:
        block = int(index.block_of[index.key[first + count]])
        if block < 0:
            break
        if index.refs[block] == 0:
            unlink(index, block)
            pool.num_free[0] -= 1
        index.refs[block] += 1
        pool.table[slot, count] = block
        count += 1
    pool.num_logical[slot] = count
    pool.num_held[slot] = count
    return count * block_size


@njit(cache=True)
def publish(
    pool: "BlockPool", index: PrefixIndex, slot: IntArray, request: IntArray, start: IntArray, num_tokens: IntArray,
    skip: BoolArray, block_size: int,
) -> None:  # fmt: skip
    """Rows have computed tokens start .. start + num_tokens: the full prompt blocks among them can be shared now.

    `skip`: rows whose pass may have left out blocks (decodes); what they compute is their own.
    """
    for row in range(slot.shape[0]):
        first = index.offset[request[row]]
        last = min((start[row] + num_tokens[row]) // block_size, index.offset[request[row] + 1] - first)
        if skip[row]:
            continue
        for logical in range(start[row] // block_size, last):
            block, key = pool.table[slot[row], logical], index.key[first + logical]
            if block >= 0 and index.key_of[block] < 0 and index.block_of[key] < 0:
                index.key_of[block] = key
                index.block_of[key] = block


@njit(cache=True)
def cached_blocks(index: PrefixIndex, request: int) -> int:
    """How many leading blocks of a prompt are in memory."""
    count = 0
    for place in range(index.offset[request], index.offset[request + 1]):
        if index.block_of[index.key[place]] < 0:
            break
        count += 1
    return count
