"""Keep rules that are carried out inside the forward pass: per layer, and per KV head where they read keys.

    TOP_BOUND       key boxes                           Quest
    LEAST_ESTIMATE  first planes of the axis sketch     least mass of this very query
    CERTIFIED       the axis sketch, level by level     reads back until the dropped mass (or the output) is bounded
    layer_taper     a share of blocks by layer          pyramid budgets

What they go by lies beside the cache (`key_index`). The newest block of a row is always read, so a part-full block needs
nothing. A row without a sketch yet, and layers with a sliding window, are read whole.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch

from workbench.live.keep_list import ROW_RULES, KeepList
from workbench.live.key_index import KeyIndex
from workbench.live.sequence_sketch import SequenceSketch, block_attention, box_frac
from workbench.protocols import KeepAction, KeepRule
from workbench.signals import BoolArray, IntArray

BOX_FRAC = 2.0 / 32.0  # two bf16 vectors a block of 16 tokens, over keys and values of all 16
SKETCH_RULES = (KeepRule.LEAST_ESTIMATE, KeepRule.CERTIFIED)


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
        windows: Sequence[int | None] = (),
    ) -> None:  # fmt: skip
        self.index, self.action, self.slot, self.num_blocks = index, action, slot, num_blocks
        self.kept, self.held, self.table, self.context = kept.keep, held, table, context_tokens
        self.scale, self.num_layers = scale, num_layers
        self.windows = windows or (None,) * num_layers
        rule = action.rule[slot]
        self._rows = {r: np.flatnonzero(rule == int(r)) for r in KeepRule if r not in ROW_RULES}
        taper = np.zeros(slot.size) if action.layer_taper is None else action.layer_taper[slot]
        self._tapered = np.flatnonzero((taper > 0.0) & (rule == int(KeepRule.TOP_BLOCKS)))
        self._taper = taper
        self.read_anywhere = np.zeros_like(kept.keep)
        self.index_frac = np.zeros(slot.size)  # bytes of boxes and sketches over the row's KV bytes
        self.index_frac[self._rows[KeepRule.TOP_BOUND]] = BOX_FRAC
        self.dropped_mass_bound = np.full(slot.size, np.nan)  # mean over layers and query heads, of certified rows
        self.dropped_mass_bound[self._rows[KeepRule.CERTIFIED]] = 0.0
        self.physical = table.numpy(force=True)
        by_box = self._rows[KeepRule.TOP_BOUND]
        if by_box.size:
            full = np.arange(table.shape[1]) < num_blocks[by_box][:, None] - 1
            index.renew(self.physical[by_box][full & held[by_box]])
        context = context_tokens.numpy(force=True)
        for row in np.concatenate([self._rows[r] for r in SKETCH_RULES]).tolist():
            index.prepare(int(slot[row]), self.physical[row], int(context[row]) - 1)

    def __call__(self, layer: int, q: torch.Tensor) -> torch.Tensor:
        """q: [rows, heads, d] -> bool [rows, kv_heads, width]."""
        kv_heads = self.index.cache.keys[layer].shape[2]
        mask = torch.from_numpy(self.kept)[:, None, :].repeat(1, kv_heads, 1)
        for r, rows in self._rows.items():
            if rows.size and r is KeepRule.TOP_BOUND:
                mask[rows] = self._by_boxes(rows, layer, q[rows].to("cpu", torch.float32)) & mask[rows]
            elif self.windows[layer] is None:
                for row in rows.tolist():
                    mask[row] = self._by_sketch(r, row, layer, q[row : row + 1].float()).cpu() & mask[row]
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

    def _by_boxes(self, rows: IntArray, layer: int, q: torch.Tensor) -> torch.Tensor:
        cache, ops = self.index.cache, self.index.ops
        heads, kv_heads = q.shape[1], cache.keys[layer].shape[2]
        bound = ops.score_upper_bound(
            q, self.index.bounds[layer], None, self.table[rows], self.context[rows], cache.block_size, scale=self.scale
        )
        best = bound.double().view(rows.size, kv_heads, heads // kv_heads, -1).amax(dim=2)
        every = np.repeat(rows, kv_heads)
        score = torch.where(best.isfinite(), best, -1e30).reshape(every.size, -1).numpy()
        share = self.action.block_budget_frac[self.slot[every]]
        return self._keep_blocks(every, score, KeepRule.TOP_BLOCKS, share).view(rows.size, kv_heads, -1)

    def _by_sketch(self, rule: KeepRule, row: int, layer: int, q: torch.Tensor) -> torch.Tensor:
        """One row, q [1, heads, d]: bool [kv_heads, width]."""
        index, slot = self.index, int(self.slot[row])
        sketch, context = index.sketch(slot), self.context[row : row + 1].to(q.device)
        width, whole = self.kept.shape[1], torch.ones(1, dtype=torch.bool)
        if sketch is None:
            index.saw(slot, layer, [int(context[0]) - 1], q)
            return whole
        blocks = int(self.num_blocks[row])
        keys, values = index.read(layer, self.physical[row], int(context[0]))
        exact, mean = block_attention(q, keys, values, context, self.scale, index.cache.block_size, blocks)
        act = self.action
        if rule is KeepRule.CERTIFIED:
            always = sketch.always(context, blocks, int(act.sink_blocks[slot]), int(act.recent_blocks[slot]))
            output = math.nan if act.output_budget is None else float(act.output_budget[slot])
            made = sketch.certify(
                layer, q, exact, mean, always, context, [float(act.mass_budget[slot])],
                None if math.isnan(output) else [output],
            )  # fmt: skip
            keep, frac = made.keep[:, 0], float(made.sketch_frac.mean())
            self.dropped_mass_bound[row] += float(made.dropped_bound.mean()) / self.num_layers
        else:
            keep = self._least_estimate(sketch, row, layer, q, exact)
            share = sketch.covered * index.cache.block_size / int(context[0])
            frac = share * (sketch.estimate_planes / sketch.d / 32.0 + box_frac(sketch.d, index.cache.block_size))
        self.index_frac[row] += frac / self.num_layers
        return torch.nn.functional.pad(keep, (0, width - blocks))

    def _least_estimate(
        self, sketch: SequenceSketch, row: int, layer: int, q: torch.Tensor, exact: torch.Tensor
    ) -> torch.Tensor:
        """[kv_heads, blocks]: least estimated mass, but at least a share; blocks without a sketch are read, so known."""
        guess = exact[:, 0].clone()
        guess[..., : sketch.covered] = sketch.sums(layer, q, sketch.estimate_planes)[0][:, 0]
        mass = guess.softmax(dim=2).mean(dim=1).double().cpu()
        mass[:, sketch.covered :] = torch.nan
        heads = np.full(mass.shape[0], row)
        share = self.action.block_budget_frac[self.slot[heads]]
        least = self._keep_blocks(heads, mass.numpy(), KeepRule.LEAST_MASS, share)
        return least | self._keep_blocks(heads, mass.numpy(), KeepRule.TOP_BLOCKS, share)
