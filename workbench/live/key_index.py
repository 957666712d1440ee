"""What lies beside a paged cache so that rules can judge blocks unread: boxes by physical block, sketches by sequence.

    boxes      Quest's; renewed for blocks written since they were made
    sketches   `SequenceSketch`, the certified rule's and the mass estimate's: fitted once a sequence has shown `MIN_FIT` dense
               queries of its own (from its prefill where that is watched, else from its first decode steps, which read
               everything), longer by a group whenever one is full, forgotten with the sequence's KV

Blocks a sequence shares with others (prefix caching) are never rewritten while it holds them, so its sketch stays true.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from kernels.reference.bounds import KeyBounds, empty_key_bounds
from workbench.live.kv_cache import KVCache
from workbench.live.sequence_sketch import SequenceSketch, fit_positions
from workbench.signals import IntArray

MIN_FIT = 16


@dataclass
class SlotKeys:
    """One sequence: the dense queries seen of it, then its sketch."""

    wanted: frozenset[int]  # places of the prompt whose queries are of use
    position: list[int] = field(default_factory=list)
    queries: dict[int, list[torch.Tensor]] = field(default_factory=dict)  # by layer, [heads, d] each
    sketch: SequenceSketch | None = None


class KeyIndex:
    """Boxes and sketches of one cache, all layers. `scale`: of the scores; `num_heads`: query heads."""

    def __init__(self, cache: KVCache, ops: Any, scale: float = 1.0, num_layers: int | None = None) -> None:
        self.cache, self.ops, self.scale = cache, ops, scale
        self.num_layers = num_layers or len(cache.keys)
        self.bounds: list[KeyBounds] = [empty_key_bounds(keys) for keys in cache.keys]
        self.slots: dict[int, SlotKeys] = {}
        self._stale = np.ones(cache.num_blocks, np.bool_)

    # Boxes

    def wrote(self, slot_index: torch.Tensor) -> None:
        """Tokens at these places are new."""
        self._stale[np.unique(slot_index.numpy(force=True) // self.cache.block_size)] = True

    def renew(self, blocks: IntArray) -> None:
        """These physical blocks are full, and about to be judged by their boxes."""
        blocks = np.unique(blocks[self._stale[blocks]])
        if blocks.size == 0:
            return
        index = torch.from_numpy(blocks.astype(np.int64)).to(self.cache.keys[0].device)
        filled = torch.full_like(index, self.cache.block_size)
        for keys, bounds in zip(self.cache.keys, self.bounds, strict=True):
            self.ops.update_key_bounds(keys, index, filled, bounds, None)
        self._stale[blocks] = False

    # Sketches

    def forget(self, slot: int) -> None:
        """The slot has a new owner, or its KV is gone."""
        self.slots.pop(slot, None)

    def wanted(self, slot: int, known_tokens: int, first: int, last: int) -> list[int]:
        """Places in [first, last) of this sequence of `known_tokens` tokens whose queries a sketch would be fitted to."""
        keys = self.slots.setdefault(slot, SlotKeys(frozenset(fit_positions(known_tokens))))
        return [] if keys.sketch is not None else [p for p in range(first, last) if p in keys.wanted]

    def saw(self, slot: int, layer: int, position: list[int], q: torch.Tensor) -> None:
        """q [n, heads, d]: rotated dense queries of these places."""
        keys = self.slots.setdefault(slot, SlotKeys(frozenset()))
        if keys.sketch is None:
            keys.queries.setdefault(layer, []).extend(q.float().unbind(0))
            if layer == 0:
                keys.position.extend(position)

    def sketch(self, slot: int) -> SequenceSketch | None:
        keys = self.slots.get(slot)
        return None if keys is None else keys.sketch

    def prepare(self, slot: int, table: IntArray, num_tokens: int) -> None:
        """Make or lengthen the sketch of a sequence whose first `num_tokens` tokens lie in the blocks of `table`."""
        keys = self.slots.get(slot)
        cache, size = self.cache, self.cache.block_size
        if keys is None or (keys.sketch is None and len(keys.position) < MIN_FIT):
            return
        if keys.sketch is None:
            kv_heads, d = cache.keys[0].shape[2:]
            sketch = SequenceSketch(self.num_layers, kv_heads, d, self.scale, size, self.ops)
            if num_tokens < sketch.group_tokens:
                return
            position = torch.tensor(keys.position)
            for layer in range(self.num_layers):
                sketch.fit(
                    layer, torch.stack(keys.queries[layer]), position.to(cache.keys[layer].device),
                    *self.read(layer, table, num_tokens),
                )  # fmt: skip
            keys.sketch, keys.queries = sketch, {}
        sketch = keys.sketch
        known, full = sketch.covered * size, num_tokens // sketch.group_tokens * sketch.group_tokens
        for layer in range(self.num_layers) if full > known else ():
            new = (pool[:, known:] for pool in self.read(layer, table, full))
            sketch.extend(layer, *new)

    def read(self, layer: int, table: IntArray, num_tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [kv_heads, num_tokens, d], float32, of the blocks of `table`."""
        blocks = torch.from_numpy(table[: -(-num_tokens // self.cache.block_size)].astype(np.int64))
        keys, values = (
            pool[layer][blocks.to(pool[layer].device)].flatten(0, 1)[:num_tokens].transpose(0, 1).float()
            for pool in (self.cache.keys, self.cache.values)
        )
        return keys, values
