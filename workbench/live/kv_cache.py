"""The paged KV cache: per layer, keys and values of shape [num_blocks, block_size, kv_heads, head_dim].

The engine decides which physical block a token goes to (`workbench/engine`); this only holds the tensors.
"""

from dataclasses import dataclass

import psutil
import torch

from kernels import huge_pages
from workbench.errors import InputError
from workbench.live.model_config import ModelConfig


@dataclass(frozen=True)
class KVCache:
    keys: list[torch.Tensor]
    values: list[torch.Tensor]
    block_size: int

    @property
    def num_blocks(self) -> int:
        return self.keys[0].shape[0]

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one token's keys and values over all layers."""
        per_layer = self.keys[0].shape[2] * self.keys[0].shape[3] * self.keys[0].element_size()
        return 2 * per_layer * len(self.keys)


def allocate_kv_cache(
    config: ModelConfig, num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device
) -> KVCache:
    """Zeroed, so that a slot never holds NaN. Raises `InputError` before any work when memory is too small."""
    if block_size < 1 or num_blocks < 1:
        raise InputError(f"kv cache needs num_blocks and block_size of at least 1, got {num_blocks} and {block_size}")
    shape = (num_blocks, block_size, config.num_kv_heads, config.head_dim)
    needed = num_blocks * block_size * config.kv_bytes_per_token(dtype.itemsize)
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available
    if needed > free:
        raise InputError(
            f"a kv cache of {num_blocks} blocks of {block_size} tokens needs {needed / 1e9:.2f} GB, "
            f"{free / 1e9:.2f} GB are free on {device}; lower num_blocks to at most {free * num_blocks // needed}"
        )

    shapes = [shape] * (2 * config.num_layers)
    if device.type == "cpu":
        pools = huge_pages.zeros(shapes, dtype)
    else:
        pools = [torch.zeros(s, dtype=dtype, device=device) for s in shapes]
    return KVCache(keys=pools[: config.num_layers], values=pools[config.num_layers :], block_size=block_size)
