"""From a `KeepAction` to keep-lists: which KV blocks each decoding row reads at this step, and which it gives up.

The rules see the blocks a row still holds. Blocks evicted earlier stay gone: a share to keep is a share of all blocks
ever filled, and the score a block had when it was evicted goes on counting against the row's mass budget, so that
repeated eviction cannot spend the budget twice. The newest block is always kept.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from workbench.errors import InputError
from workbench.protocols import KeepAction, KeepRule
from workbench.signals import BoolArray, FloatArray, IntArray

ROW_RULES = (KeepRule.ALL, KeepRule.LEAST_MASS, KeepRule.TOP_BLOCKS, KeepRule.WINDOW)


@dataclass(frozen=True, kw_only=True)
class KeepList:
    """keep: [rows, width] blocks to read; evict: [rows, width] blocks to free after the step."""

    keep: BoolArray
    evict: BoolArray
    evicted_score: FloatArray  # [rows] score given up by this step's evictions


def choose_blocks(
    action: KeepAction, slot: IntArray, num_blocks: IntArray, held: BoolArray, spent: FloatArray, ops: Any
) -> KeepList:
    """Rows of one step. held: [rows, width] blocks in the cache; spent: [rows] score of blocks evicted before.

    Rules that read keys keep every held block here (`head_rules` carries them out), and never evict.
    """
    rule = action.rule[slot]
    if unknown := set(rule.tolist()) - {int(r) for r in KeepRule}:
        raise InputError(f"keep rule {sorted(unknown)} is none of {', '.join(r.name for r in KeepRule)}")
    by_keys = ~np.isin(rule, [int(r) for r in ROW_RULES])
    rule = np.where(by_keys, int(KeepRule.ALL), rule)
    rows, width = held.shape
    score = np.full((rows, width), np.nan)
    given = min(width, action.score.shape[1])
    score[:, :given] = action.score[slot, :given]
    # Held blocks first, in their order, so that the rules count and sum only what is there.
    order = np.argsort(~held, axis=1, kind="stable")
    num_held = held.sum(axis=1)
    share = np.ceil(np.where(rule == KeepRule.TOP_BLOCKS, action.block_budget_frac[slot], 1.0) * num_blocks - 1e-9)
    budget = np.where(rule == KeepRule.LEAST_MASS, action.mass_budget[slot], 0.0)
    packed = ops.keep_blocks(
        torch.from_numpy(np.take_along_axis(score, order, axis=1)),
        None,
        torch.from_numpy(num_held),
        rule=torch.from_numpy(rule),
        mass_budget=torch.from_numpy(np.maximum(budget - spent, 0.0)),
        block_budget_frac=torch.from_numpy(np.clip(share / num_held, 1e-9, 1.0)),
        sink_blocks=torch.from_numpy(np.minimum(action.sink_blocks[slot], num_held)),
        recent_blocks=torch.from_numpy(np.maximum(action.recent_blocks[slot], 1)),
    ).numpy()
    keep = np.zeros((rows, width), np.bool_)
    np.put_along_axis(keep, order, packed, axis=1)
    keep &= held
    evict = held & ~keep & action.evict[slot][:, None]
    return KeepList(keep=keep, evict=evict, evicted_score=np.where(evict, np.nan_to_num(score), 0.0).sum(axis=1))
