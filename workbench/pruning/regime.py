"""Where pruning changes throughput and where it cannot: one decode step, from the simulator's step cost and memory.

    step time        t(B, L, r) = dense work of B tokens + B L r kv       r: share of KV bytes read
    mask             tokens/s rise by t(B, L, 1) / t(B, L, r); the same B fits
    evict            KV memory holds C tokens; sequences of L tokens that keep the share r fit B = C / (r L) at once

Speed is bound by KV reads only where B L kv is a good part of t: long contexts times large batches. Source: ours.
"""

from dataclasses import dataclass

import numpy as np

from sims.gpus import gpu_named
from sims.models import model_named
from sims.roofline import roofline_step_cost
from sims.step_cost import StepCost, step_totals
from workbench.signals import FloatArray

BATCHES = (1, 4, 16, 64, 256)
CONTEXTS = (1024, 4096, 16384, 65536)
CHANGES = 1.05  # a speed-up below this is called none


@dataclass(frozen=True)
class Regime:
    """Speed-ups [batches, contexts]; NaN where that batch does not fit in memory even after eviction."""

    gpu: str
    model: str
    bytes_frac: float
    blocks_frac: float
    mask: FloatArray  # the same batch, fewer bytes
    evict: FloatArray  # [contexts] largest batch that fits, evicting, against the largest that fits dense
    dense_batch: FloatArray  # [contexts]


def step_s(cost: StepCost, batch: int, context: int, read_frac: float) -> float:
    rows = np.full(batch, context - 1)
    read = np.full(batch, read_frac * context)
    return float(step_totals(cost.rates, rows, np.ones(batch, np.int64), np.ones(batch, np.bool_), read)[0])


def regime(bytes_frac: float, blocks_frac: float, gpu: str = "H100", model: str = "Llama-3-8B") -> Regime:
    """`bytes_frac`: share of KV bytes read a step; `blocks_frac`: share of blocks an evicting policy holds."""
    shape, device = model_named(model), gpu_named(gpu)
    cost = roofline_step_cost(device, shape)
    capacity = shape.kv_capacity_tokens(device)
    mask = np.full((len(BATCHES), len(CONTEXTS)), np.nan)
    evict, dense_batch = np.full(len(CONTEXTS), np.nan), np.zeros(len(CONTEXTS))
    for j, context in enumerate(CONTEXTS):
        for i, batch in enumerate(BATCHES):
            if batch * context <= capacity:
                mask[i, j] = step_s(cost, batch, context, 1.0) / step_s(cost, batch, context, bytes_frac)
        dense = int(capacity // context)
        more = int(capacity // (context * blocks_frac))
        dense_batch[j] = dense
        if dense >= 1:
            evict[j] = (more / step_s(cost, more, context, blocks_frac)) / (dense / step_s(cost, dense, context, 1.0))
    return Regime(gpu, model, bytes_frac, blocks_frac, mask, evict, dense_batch)


def sentences(found: Regime) -> list[str]:
    """Where masking and evicting change throughput, in words."""
    fast = [
        f"batch {BATCHES[i]} at {CONTEXTS[j]:,} tokens ({found.mask[i, j]:.2f}x)"
        for i in range(len(BATCHES))
        for j in range(len(CONTEXTS))
        if found.mask[i, j] >= CHANGES
    ]
    fits = int(np.sum(~np.isnan(found.mask)))
    out = [
        f"Masking, {found.bytes_frac:.0%} of KV bytes read, {found.model} on {found.gpu} (simulated): throughput rises by "
        f"more than {CHANGES - 1:.0%} in {len(fast)} of {fits} settings that fit in memory"
        + (f": {', '.join(fast)}." if fast else ".")
        + " Elsewhere the step is bound by the weights or the dense work, and reading fewer KV bytes changes nothing."
    ]
    told = [
        f"{CONTEXTS[j]:,} tokens: {found.evict[j]:.2f}x (dense batch {int(found.dense_batch[j])})"
        for j in range(len(CONTEXTS))
        if not np.isnan(found.evict[j])
    ]
    out.append(
        f"Evicting down to {found.blocks_frac:.0%} of the blocks also lets more sequences in, where memory is what limits the "
        f"batch: tokens a second against the largest dense batch, by context: {'; '.join(told)}. Where requests do not fill "
        "memory anyway, evicting gains no more than masking."
    )
    return out
