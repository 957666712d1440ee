"""From the engine's batch to the tensors of a forward pass: decode rows first, then chunks of prefill."""

import numpy as np
import torch

from workbench.engine.executor import Batch
from workbench.live.decoder_layout import Chunk, ForwardInput
from workbench.signals import IntArray


def forward_input(
    batch: Batch, tokens: IntArray, decode: IntArray, table: np.ndarray, device: torch.device
) -> ForwardInput:
    """tokens: [slot, position] known token ids; decode: rows of one token; table: [n, max_blocks] physical blocks."""
    size, n = batch.block_size, batch.slot.shape[0]
    filled = np.maximum(table, 0)
    if decode.size == n:  # the common step: every row decodes, nothing is reordered
        position, row = batch.start, np.arange(n)
        slot, chunks, tables, context = batch.slot, (), _tensor(filled, device), batch.start
        rows_wanted = np.flatnonzero(batch.samples)
    else:
        order = np.concatenate([decode, np.flatnonzero(batch.num_tokens != 1)])
        count = batch.num_tokens[order]
        last = np.cumsum(count)
        row = np.repeat(order, count)
        position = np.arange(int(last[-1])) - np.repeat(last - count, count) + batch.start[row]
        slot, context = batch.slot[row], batch.start[decode]
        every = _tensor(filled, device)
        tables = every[_tensor(decode, device)]
        chunks = tuple(
            Chunk(
                first=int(last[i] - count[i]),
                last=int(last[i]),
                start=int(batch.start[order[i]]),
                block_table=every[order[i]],
            )
            for i in range(decode.size, n)
        )
        where = np.empty_like(order)
        where[order] = last - 1
        rows_wanted = where[batch.samples]
    block, offset = np.divmod(position, size)
    physical = table[row, block].astype(np.int64)
    if physical.size and physical.min() < 0:
        raise RuntimeError("the engine asked for a token in a block that is not allocated")
    return ForwardInput(
        token_ids=_tensor(tokens[slot, position], device),
        positions=_tensor(position, device),
        slot_index=_tensor(physical * size + offset, device),
        num_decode=decode.size,
        block_table=tables,
        context_tokens=_tensor((context + 1).astype(np.int32), device),
        chunks=chunks,
        logit_rows=_tensor(rows_wanted, device),
    )


def _tensor(array: np.ndarray, device: torch.device) -> torch.Tensor:
    tensor = torch.from_numpy(array)
    return tensor if device.type == "cpu" else tensor.to(device)
