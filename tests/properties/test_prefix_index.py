"""Shared KV blocks as a state machine: no leak, no block free while held, ids and blocks inverse."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from workbench.engine.kv_blocks import allocate, evict, new_pool, release
from workbench.engine.prefix_cache import adopt, cached_blocks, new_prefix_index, publish
from workbench.engine.prompt_blocks import blocks_of_tokens

BLOCKS, SLOTS, WIDTH, SIZE = 9, 4, 6, 2
PROMPTS = [[0] * 8, [0] * 4 + [1] * 5, [2] * 7, [0] * 8, [3] * 3]


class SharedPool(RuleBasedStateMachine):
    """Requests come with prompts that share beginnings, are computed block by block, evicted, and leave."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = new_pool(BLOCKS, SLOTS, WIDTH)
        self.index = new_prefix_index(BLOCKS, blocks_of_tokens(PROMPTS, SIZE, model="m", policy="p"))
        self.owner: dict[int, int] = {}
        self.computed = np.zeros(SLOTS, np.int64)
        self.content: dict[int, tuple[int, ...]] = {}  # physical block -> the tokens up to its end, as last written

    @rule(slot=st.integers(0, SLOTS - 1), request=st.integers(0, len(PROMPTS) - 1))
    def come(self, slot, request):
        if slot in self.owner:
            return
        known = len(PROMPTS[request])
        could = cached_blocks(self.index, request)
        hit = adopt(self.pool, self.index, slot, request, known, SIZE)
        assert hit == min(could, (known - 1) // SIZE) * SIZE
        for i in range(hit // SIZE):
            assert self.content[int(self.pool.table[slot, i])] == tuple(PROMPTS[request][: (i + 1) * SIZE])
        self.owner[slot], self.computed[slot] = request, hit

    @rule(slot=st.integers(0, SLOTS - 1), tokens=st.integers(1, 5), skip=st.booleans())
    def compute(self, slot, tokens, skip):
        if slot not in self.owner:
            return
        prompt = PROMPTS[self.owner[slot]]
        tokens = min(tokens, len(prompt) - int(self.computed[slot]))
        need = -(-(int(self.computed[slot]) + tokens) // SIZE) - int(self.pool.num_logical[slot])
        if tokens == 0 or need > self.pool.num_free[0]:
            return
        allocate(self.pool, slot, max(need, 0), self.index)
        start = self.computed[slot : slot + 1].copy()
        self.computed[slot] += tokens
        for i in range(int(start[0]) // SIZE, int(self.computed[slot]) // SIZE):
            if self.pool.table[slot, i] >= 0:
                self.content[int(self.pool.table[slot, i])] = tuple(prompt[: (i + 1) * SIZE])
        publish(
            self.pool, self.index, np.array([slot]), np.array([self.owner[slot]]), start, np.array([tokens]),
            np.array([skip]), SIZE,
        )  # fmt: skip

    @rule(slot=st.integers(0, SLOTS - 1))
    def leave(self, slot):
        release(self.pool, slot, self.index)
        self.owner.pop(slot, None)

    @rule(slot=st.integers(0, SLOTS - 1), drop=st.lists(st.booleans(), min_size=WIDTH, max_size=WIDTH))
    def drop(self, slot, drop):
        evict(self.pool, slot, np.array(drop), self.index)

    @invariant()
    def every_block_is_free_or_held_by_as_many_as_it_says(self):
        held = self.pool.table[self.pool.table >= 0]
        np.testing.assert_array_equal(np.bincount(held, minlength=BLOCKS), self.index.refs)
        ring, at = [], int(self.index.newer[BLOCKS])
        while at != BLOCKS:
            assert self.index.older[self.index.newer[at]] == at
            ring.append(at)
            at = int(self.index.newer[at])
        assert sorted(ring) == np.flatnonzero(self.index.refs == 0).tolist()
        assert len(ring) == self.pool.num_free[0]
        # Blocks without content are taken before any with.
        kept = [bool(self.index.key_of[b] >= 0) for b in ring]
        assert kept == sorted(kept)

    @invariant()
    def ids_and_blocks_are_inverse(self):
        for key, block in enumerate(self.index.block_of):
            assert block < 0 or self.index.key_of[block] == key
        for block, key in enumerate(self.index.key_of):
            assert key < 0 or self.index.block_of[key] == block


TestSharedPool = SharedPool.TestCase
TestSharedPool.settings = settings(max_examples=60, stateful_step_count=40)
