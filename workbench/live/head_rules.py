"""Keep rules that are carried out inside the forward pass: per layer, and per KV head where they read keys.

    TOP_BOUND       key boxes                       Quest
    LEAST_ESTIMATE  key sketch, its middle          least mass of this very query
    CERTIFIED       key sketch, its upper bounds    reads back until the dropped mass is bounded
    layer_taper     a share of blocks by layer      pyramid budgets

Boxes and sketches lie beside the cache, a row for each physical block, and are renewed for blocks written since they were
last made. The newest block of a row is always read, so a part-full block needs none.
"""

from typing import Any

import numpy as np
import torch

from kernels.reference.bounds import (
    KeyBounds,
    KeySketch,
    empty_key_bounds,
    empty_key_sketch,
    score_estimate,
)
from workbench.live.keep_list import ROW_RULES, KeepList
from workbench.live.kv_cache import KVCache
from workbench.protocols import KeepAction, KeepRule
from workbench.signals import BoolArray, IntArray

SKETCH_BITS = 4
BOX_FRAC = 2.0 / 32.0  # two bf16 vectors a block of 16 tokens, over keys and values of all 16
SKETCH_FRAC = SKETCH_BITS / 32.0


class KeyIndex:
    """Boxes and sketches of one cache, all layers."""

    def __init__(self, cache: KVCache, ops: Any) -> None:
        self.cache, self.ops = cache, ops
        self.bounds: list[KeyBounds] = [empty_key_bounds(keys) for keys in cache.keys]
        self.sketches: list[KeySketch] = [empty_key_sketch(keys, SKETCH_BITS) for keys in cache.keys]
        self._stale = np.ones(cache.num_blocks, np.bool_)

    def wrote(self, slot_index: torch.Tensor) -> None:
        """Tokens at these places are new."""
        self._stale[np.unique(slot_index.numpy(force=True) // self.cache.block_size)] = True

    def renew(self, blocks: IntArray) -> None:
        """These physical blocks are full, and about to be judged."""
        blocks = np.unique(blocks[self._stale[blocks]])
        if blocks.size == 0:
            return
        index = torch.from_numpy(blocks.astype(np.int64)).to(self.cache.keys[0].device)
        filled = torch.full_like(index, self.cache.block_size)
        for keys, bounds, sketch in zip(self.cache.keys, self.bounds, self.sketches, strict=True):
            self.ops.update_key_bounds(keys, index, filled, bounds, sketch)
        self._stale[blocks] = False


def acts_per_head(action: KeepAction, slot: IntArray) -> bool:
    """Whether any row's rule has to be carried out layer by layer."""
    tapered = action.layer_taper is not None and bool((action.layer_taper[slot] > 0.0).any())
    return tapered or not np.isin(action.rule[slot], [int(rule) for rule in ROW_RULES]).all()


class HeadRules:
    """One step's chooser: `decoder.forward(keep=rules)` calls it at each layer with the rotated queries.

    kept: the blocks of each row that may be read at all; rules over scores have already been applied to it, except for
    tapered rows, whose share is applied here.
    """

    def __init__(
        self, index: KeyIndex, action: KeepAction, slot: IntArray, num_blocks: IntArray, kept: KeepList, held: BoolArray,
        table: torch.Tensor, context_tokens: torch.Tensor, scale: float, num_layers: int,
    ) -> None:  # fmt: skip
        self.index, self.action, self.slot, self.num_blocks = index, action, slot, num_blocks
        self.kept, self.held, self.table, self.context = kept.keep, held, table, context_tokens
        self.scale, self.num_layers = scale, num_layers
        rule = action.rule[slot]
        self._rows = {r: np.flatnonzero(rule == int(r)) for r in KeepRule if r not in ROW_RULES}
        taper = np.zeros(slot.size) if action.layer_taper is None else action.layer_taper[slot]
        self._tapered = np.flatnonzero((taper > 0.0) & (rule == int(KeepRule.TOP_BLOCKS)))
        self._taper = taper
        self.read_anywhere = np.zeros_like(kept.keep)
        self.index_frac = np.zeros(slot.size)  # bytes of boxes and sketches over the row's KV bytes
        self.index_frac[self._rows[KeepRule.TOP_BOUND]] = BOX_FRAC
        for r in (KeepRule.LEAST_ESTIMATE, KeepRule.CERTIFIED):
            self.index_frac[self._rows[r]] = BOX_FRAC + SKETCH_FRAC
        judged = np.concatenate([rows for rows in self._rows.values()])
        if judged.size:
            full = np.arange(table.shape[1]) < num_blocks[judged][:, None] - 1
            index.renew(table.numpy(force=True)[judged][full & held[judged]])

    def __call__(self, layer: int, q: torch.Tensor) -> torch.Tensor:
        """q: [rows, heads, d] -> bool [rows, kv_heads, width]."""
        kv_heads = self.index.cache.keys[layer].shape[2]
        mask = torch.from_numpy(self.kept)[:, None, :].repeat(1, kv_heads, 1)
        for r, rows in self._rows.items():
            if rows.size:
                mask[rows] = self._by_keys(r, rows, layer, q[rows].to("cpu", torch.float32)) & mask[rows]
        if self._tapered.size:
            mask[self._tapered] = self._share(layer)[:, None, :].expand(-1, kv_heads, -1)
        self.read_anywhere |= mask.any(dim=1).numpy()
        return mask.to(q.device)

    def _share(self, layer: int) -> torch.Tensor:
        """Rows with a taper: TOP_BLOCKS with this layer's share."""
        rows, slot = self._tapered, self.slot[self._tapered]
        place = 1.0 - 2.0 * layer / max(self.num_layers - 1, 1)
        share = self.action.block_budget_frac[slot] * (1.0 + self._taper[rows] * place)
        score = np.full((rows.size, self.kept.shape[1]), np.nan)
        given = min(score.shape[1], self.action.score.shape[1])
        score[:, :given] = np.where(self.held[rows, :given], self.action.score[slot, :given], np.nan)
        return self._keep_blocks(rows, score, KeepRule.TOP_BLOCKS, np.clip(share, 1e-9, 1.0)) & torch.from_numpy(
            self.held[rows]
        )

    def _keep_blocks(self, rows: IntArray, score: np.ndarray, rule: KeepRule, share: np.ndarray) -> torch.Tensor:
        """`keep_blocks` for score [rows, width] with the numbers of each row."""
        slot, filled = self.slot[rows], self.num_blocks[rows]
        return self.index.ops.keep_blocks(
            torch.from_numpy(score), None, torch.from_numpy(filled), rule=torch.full((rows.size,), int(rule)),
            mass_budget=torch.from_numpy(self.action.mass_budget[slot]), block_budget_frac=torch.from_numpy(share),
            sink_blocks=torch.from_numpy(np.minimum(self.action.sink_blocks[slot], filled)),
            recent_blocks=torch.from_numpy(np.maximum(self.action.recent_blocks[slot], 1)),
        )  # fmt: skip

    def _by_keys(self, rule: KeepRule, rows: IntArray, layer: int, q: torch.Tensor) -> torch.Tensor:
        cache, ops, slot = self.index.cache, self.index.ops, self.slot[rows]
        bounds, sketch = self.index.bounds[layer], self.index.sketches[layer]
        table, context = self.table[rows], self.context[rows]
        seen = (q, bounds, sketch if rule is not KeepRule.TOP_BOUND else None, table, context, cache.block_size)
        if rule is KeepRule.CERTIFIED:
            keys = cache.keys[layer]
            bound = ops.score_upper_bound(*seen, scale=self.scale)
            return ops.keep_certified(
                q.to(keys.dtype), keys, bound, table, context, scale=self.scale,
                mass_budget=torch.from_numpy(self.action.mass_budget[slot]),
                sink_blocks=torch.from_numpy(self.action.sink_blocks[slot]),
                recent_blocks=torch.from_numpy(self.action.recent_blocks[slot]),
            ).keep  # fmt: skip
        score = (
            ops.score_upper_bound(*seen, scale=self.scale)
            if rule is KeepRule.TOP_BOUND
            else score_estimate(*seen, scale=self.scale)
        )
        heads, kv_heads = q.shape[1], cache.keys[layer].shape[2]
        grouped = score.double().view(rows.size, kv_heads, heads // kv_heads, -1)
        if rule is KeepRule.TOP_BOUND:
            value, how = grouped.amax(dim=2), KeepRule.TOP_BLOCKS
        else:
            value, how = grouped.softmax(dim=3).mean(dim=2), KeepRule.LEAST_MASS
        every = np.repeat(rows, kv_heads)
        share = self.action.block_budget_frac[self.slot[every]]
        score = torch.where(value.isfinite(), value, -1e30).reshape(every.size, -1).numpy()
        keep = self._keep_blocks(every, score, how, share)
        if how is KeepRule.LEAST_MASS:
            keep |= self._keep_blocks(every, score, KeepRule.TOP_BLOCKS, share)
        return keep.view(rows.size, kv_heads, -1)
