"""KV-block accounting as a state machine: no leak, no double use, never over capacity."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from workbench.engine.batching import form_batch
from workbench.engine.kv_blocks import allocate, evict, new_pool, release

BLOCKS, SLOTS, WIDTH, BLOCK_SIZE = 12, 4, 6, 4


class PoolMachine(RuleBasedStateMachine):
    """The pool beside a model of it: for each slot the list of physical blocks, None where evicted."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = new_pool(BLOCKS, SLOTS, WIDTH)
        self.model: dict[int, list[int | None]] = {slot: [] for slot in range(SLOTS)}

    @property
    def free(self) -> int:
        return BLOCKS - sum(block is not None for blocks in self.model.values() for block in blocks)

    @rule(slot=st.integers(0, SLOTS - 1), count=st.integers(1, 4))
    def append(self, slot: int, count: int) -> None:
        count = min(count, self.free, WIDTH - len(self.model[slot]))
        if count <= 0:
            return
        allocate(self.pool, slot, count)
        start = len(self.model[slot])
        self.model[slot] += [int(b) for b in self.pool.table[slot, start : start + count]]

    @rule(slot=st.integers(0, SLOTS - 1))
    def end(self, slot: int) -> None:
        release(self.pool, slot)
        self.model[slot] = []

    @precondition(lambda self: any(self.model.values()))
    @rule(slot=st.integers(0, SLOTS - 1), drop=st.lists(st.booleans(), min_size=WIDTH, max_size=WIDTH))
    def drop(self, slot: int, drop: list[bool]) -> None:
        expected = sum(d and b is not None for d, b in zip(drop, self.model[slot], strict=False))
        assert evict(self.pool, slot, np.array(drop)) == expected
        self.model[slot] = [None if d else b for d, b in zip(drop, self.model[slot], strict=False)]

    @invariant()
    def table_is_the_model(self) -> None:
        for slot, blocks in self.model.items():
            wanted = [-1 if b is None else b for b in blocks] + [-1] * (WIDTH - len(blocks))
            assert list(self.pool.table[slot]) == wanted
            assert self.pool.num_logical[slot] == len(blocks)
            assert self.pool.num_held[slot] == sum(b is not None for b in blocks)

    @invariant()
    def every_block_is_in_exactly_one_place(self) -> None:
        held = self.pool.table[self.pool.table >= 0]
        free = self.pool.free[: self.pool.num_free[0]]
        assert sorted([*held, *free]) == list(range(BLOCKS))


class BatchMachine(RuleBasedStateMachine):
    """Batches formed in arbitrary orders over arbitrary requests, blocks evicted in between: capacity, budget, head of the
    order, and no batch ever reads a block that was freed (an owner is written down for every block that is handed out)."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = new_pool(BLOCKS, SLOTS, WIDTH)
        self.known = np.zeros(SLOTS, np.int64)
        self.computed = np.zeros(SLOTS, np.int64)
        self.since = np.zeros(SLOTS, np.int64)
        self.live: set[int] = set()
        self.content: dict[int, tuple[int, int]] = {}  # physical block -> (slot, logical block) last written there

    @precondition(lambda self: self.live)
    @rule(seed=st.integers(0, 2**31))
    def evict_some(self, seed: int) -> None:
        """Any held blocks but the newest, as a keep rule with `evict` asks for."""
        rng = np.random.default_rng(seed)
        slot = int(rng.choice(sorted(self.live)))
        logical = int(self.pool.num_logical[slot])
        drop = rng.random(max(logical - 1, 0)) < 0.5
        held = self.pool.table[slot, : drop.size] >= 0
        free = int(self.pool.num_free[0])
        assert evict(self.pool, slot, drop) == (held & drop).sum() == int(self.pool.num_free[0]) - free
        assert np.all(self.pool.table[slot, : drop.size][drop] == -1)

    @rule(slot=st.integers(0, SLOTS - 1), prompt=st.integers(1, WIDTH * BLOCK_SIZE - 2))
    def arrive(self, slot: int, prompt: int) -> None:
        if slot not in self.live:
            self.live.add(slot)
            self.known[slot], self.computed[slot], self.since[slot] = prompt, 0, 0

    @precondition(lambda self: self.live)
    @rule(
        seed=st.integers(0, 2**31),
        max_running=st.integers(1, SLOTS),
        budget=st.integers(1, 20),
        chunk=st.integers(1, 20),
        watermark=st.integers(0, 2),
        quantum=st.integers(0, 3),
    )
    def step(self, seed: int, max_running: int, budget: int, chunk: int, watermark: int, quantum: int) -> None:
        order = np.random.default_rng(seed).permutation(sorted(self.live)).astype(np.int64)
        slots, tokens = np.zeros(max_running, np.int64), np.zeros(max_running, np.int64)
        preempted = np.zeros(SLOTS, np.int64)
        rows, lost = form_batch(
            order, self.pool, self.known, self.computed, self.since, BLOCK_SIZE, max_running, budget, chunk,
            watermark, quantum, slots, tokens, preempted,
        )  # fmt: skip
        assert 1 <= rows <= max_running  # something can always run: one request never exceeds the pool
        slots, tokens = slots[:rows], tokens[:rows]
        assert len(set(slots)) == rows
        assert tokens.sum() <= budget
        assert np.all((tokens >= 1) & (tokens <= np.maximum(chunk, 1)))
        assert np.all(self.computed[slots] + tokens <= self.known[slots])
        if quantum == 0:
            assert order[0] in slots  # the head of the order is never bypassed
        assert not set(preempted[:lost]) & set(slots)
        for slot, count in zip(slots, tokens, strict=True):
            for position in range(self.computed[slot], self.computed[slot] + count):
                written = int(self.pool.table[slot, position // BLOCK_SIZE])
                assert written >= 0, "a token is written into a block that is held"
                self.content[written] = (int(slot), position // BLOCK_SIZE)
            self.computed[slot] += count
            assert self.pool.num_logical[slot] * BLOCK_SIZE >= self.computed[slot]
            for logical in range(-(-int(self.computed[slot]) // BLOCK_SIZE)):
                physical = int(self.pool.table[slot, logical])
                assert physical < 0 or self.content[physical] == (slot, logical), "somebody else's block is read"
            if self.computed[slot] == self.known[slot]:
                self.known[slot] += 1
                self.since[slot] += 1
                if self.known[slot] >= WIDTH * BLOCK_SIZE:
                    release(self.pool, int(slot))
                    self.live.discard(int(slot))

    @invariant()
    def no_leak(self) -> None:
        held = self.pool.table[self.pool.table >= 0]
        free = self.pool.free[: self.pool.num_free[0]]
        assert sorted([*held, *free]) == list(range(BLOCKS))
        for slot in range(SLOTS):
            if slot not in self.live:
                assert self.pool.num_held[slot] == 0


TestPool = PoolMachine.TestCase
TestBatches = BatchMachine.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=40)
TestBatches.settings = settings(max_examples=60, stateful_step_count=40)
