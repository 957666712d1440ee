"""Whole engine runs with prefix caching and eviction on: every block that is read holds what its reader wrote or adopted."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.test_plant import drive, spec
from tests.fakes import FormulaExecutor
from workbench.engine.clock import CountedClock
from workbench.engine.config import EngineConfig
from workbench.engine.executor import Batch, StepResult
from workbench.engine.plant import EnginePlant
from workbench.engine.prompt_blocks import blocks_of_tokens
from workbench.engine.requests import RequestStatus

SIZE = 4


class ContentExecutor(FormulaExecutor):
    """Writes into each physical place what its token is (all that came before it, too), and checks whatever it reads.

    Evicts random blocks of decoding rows, never the newest, as a keep rule with `evict` may ask for.
    """

    def __init__(self, prompts: list[list[int]], num_blocks: int, seed: int, evict_frac: float) -> None:
        super().__init__(mass=False)
        self.prompts, self.rng, self.evict_frac = prompts, np.random.default_rng(seed), evict_frac
        self.content: list[list[object]] = [[None] * SIZE for _ in range(num_blocks)]
        self.evicted = self.read = 0

    def token(self, request: int, position: int) -> object:
        """Equal exactly where the text up to here is equal; what a request generates is its own."""
        prompt = self.prompts[request]
        return tuple(prompt[: position + 1]) if position < len(prompt) else (request, position)

    def execute(self, batch: Batch, sampling, keep) -> StepResult:
        table = batch.block_table
        for row, request in enumerate(batch.request_id.tolist()):
            for position in range(int(batch.start[row]), int(batch.start[row] + batch.num_tokens[row])):
                physical = int(table[row, position // SIZE])
                assert physical >= 0, "a token is written into a block that is held"
                self.content[physical][position % SIZE] = self.token(request, position)
        for row, request in enumerate(batch.request_id.tolist()):  # after all writes: a block in two hands shows
            for position in range(int(batch.start[row] + batch.num_tokens[row])):
                physical = int(table[row, position // SIZE])
                if physical >= 0:
                    self.read += 1
                    assert self.content[physical][position % SIZE] == self.token(request, position)
        evicted = np.zeros(table.shape, np.bool_)
        for row in np.flatnonzero((batch.num_tokens == 1) & batch.samples).tolist():
            older = np.arange(table.shape[1]) < batch.num_blocks[row] - 1
            evicted[row] = older & (table[row] >= 0) & (self.rng.random(table.shape[1]) < self.evict_frac)
        self.evicted += int(evicted.sum())
        return replace(super().execute(batch, sampling, keep), evicted=evicted)


def run(prompts, output, num_blocks, seed, evict_frac) -> tuple[EnginePlant, ContentExecutor]:
    requests = spec(np.arange(len(prompts)) * 1.5, [len(p) for p in prompts], output)
    requests = replace(requests, prompt_blocks=blocks_of_tokens(prompts, SIZE, model="m", policy="p"))
    executor = ContentExecutor(prompts, num_blocks, seed, evict_frac)
    config = EngineConfig(
        num_blocks=num_blocks, block_size=SIZE, max_running=4, token_budget=12, prefix_caching=True,
        preemption_quantum_tokens=0,
    )  # fmt: skip
    return drive(EnginePlant(requests, executor, CountedClock(), config)), executor


@settings(max_examples=40, deadline=None)
@given(
    shared=st.integers(0, 16), own=st.lists(st.integers(1, 12), min_size=2, max_size=10), output=st.integers(1, 14),
    num_blocks=st.integers(14, 24), seed=st.integers(0, 2**31), evict_frac=st.sampled_from([0.05, 0.3, 1.0]),
)  # fmt: skip
def test_nobody_reads_a_freed_block(shared, own, output, num_blocks, seed, evict_frac) -> None:
    beginning = list(range(shared))
    prompts = [[*beginning, *range(100 * (i % 3), 100 * (i % 3) + length)] for i, length in enumerate(own)]
    plant, executor = run(prompts, output, num_blocks, seed, evict_frac)
    assert np.all(plant.ledger.status == RequestStatus.COMPLETED)
    assert plant.pool.num_free[0] == num_blocks, "blocks leak"
    assert not plant.index.refs.any()
    assert executor.read > 0


def test_the_runs_above_share_evict_and_preempt() -> None:
    """The property would be empty if nothing were ever adopted, evicted or lost."""
    prompts = [[*range(16), *range(100 * i, 100 * i + 9)] for i in range(8)]
    plant, executor = run(prompts, 14, 16, 3, 0.05)
    assert plant.ledger.prefix_hit_tokens.sum() > 0
    assert executor.evicted > 0
    assert plant.ledger.num_preempted.sum() > 0


def test_a_shared_block_is_free_only_when_the_last_reader_has_evicted_it() -> None:
    from workbench.engine.kv_blocks import allocate, evict, new_pool, release
    from workbench.engine.prefix_cache import adopt, new_prefix_index, publish

    prompts = [list(range(9)), list(range(9))]
    pool = new_pool(8, 2, 4)
    index = new_prefix_index(8, blocks_of_tokens(prompts, SIZE, model="m", policy="p"))
    one, zero = np.array([9]), np.array([0])
    allocate(pool, 0, 3, index)
    publish(pool, index, np.array([0]), zero, zero, one, np.array([False]), SIZE)
    assert adopt(pool, index, 1, 1, 9, SIZE) == 8
    shared = int(pool.table[0, 0])
    assert pool.table[1, 0] == shared
    free = int(pool.num_free[0])
    assert evict(pool, 0, np.array([True, False, False]), index) == 1
    assert (pool.num_free[0], index.refs[shared], pool.table[1, 0]) == (free, 1, shared), "the other still reads it"
    assert evict(pool, 1, np.array([True, False]), index) == 1
    assert (pool.num_free[0], index.refs[shared]) == (free + 1, 0)
    release(pool, 0, index)
    release(pool, 1, index)
    assert pool.num_free[0] == 8
