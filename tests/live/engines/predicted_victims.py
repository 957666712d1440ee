"""Whom vLLM preempts by the simulator's batcher, given a recorded order and the KV blocks everybody held before that step.

One rule differs, and is added here: a running request that finds no block and nobody behind it keeps its blocks and waits in
our engine; vLLM takes them from it too.
"""

import numpy as np

from workbench.engine.batching import form_batch
from workbench.engine.kv_blocks import allocate, new_pool

Columns = dict[str, np.ndarray]


def predicted_victims(step: int, order: Columns, batches: Columns, num_blocks: int, block_size: int) -> list[int]:
    """Request ids in the order in which their blocks are taken: by `form_batch`, then vLLM's one more."""
    now = order["step"] == step
    running = now & order["obs_running"]
    slots = order["slot"][running]
    by_rank = slots[np.argsort(order["act_rank"][running])]
    num_slots = int(order["slot"].max()) + 1
    pool = new_pool(num_blocks, num_slots, num_blocks)
    known, computed = np.zeros(num_slots, np.int64), np.zeros(num_slots, np.int64)
    request = np.full(num_slots, -1, np.int64)
    computed[slots] = order["obs_computed_tokens"][running]
    known[slots] = order["obs_prompt_tokens"][running] + order["obs_generated_tokens"][running]
    request[slots] = order["obs_request_id"][running]
    for slot in slots:
        allocate(pool, int(slot), -(-int(computed[slot]) // block_size))
    batch, tokens, lost = np.zeros(64, np.int64), np.zeros(64, np.int64), np.zeros(num_slots, np.int64)
    rows, count = form_batch(
        by_rank, pool, known, computed, np.full(num_slots, 1 << 20), block_size, 64, 1 << 20, 1 << 20, 0, 0, batch, tokens, lost
    )  # fmt: skip
    stuck = [slot for slot in by_rank if slot not in batch[:rows] and slot not in lost[:count]]
    return request[[*lost[:count], *stuck[:1]]].tolist()
