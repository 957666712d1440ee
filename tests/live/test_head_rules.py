"""Rules carried out inside the forward pass of the live plant: right for every head mapping, index kept up to date."""

import numpy as np
import pytest
import torch

from kernels import reference
from kernels.dispatch import backend
from workbench.live.head_rules import HeadRules, acts_per_head
from workbench.live.keep_list import choose_blocks
from workbench.live.key_index import KeyIndex
from workbench.live.kv_cache import KVCache
from workbench.protocols import KeepAction, KeepRule

OPS, SIZE, BLOCKS = backend("torch"), 16, 10


def action(rule: KeepRule, *, budget: float = 0.1, share: float = 0.4, taper: float | None = None) -> KeepAction:
    return KeepAction(
        rule=np.array([int(rule)]), mass_budget=np.array([budget]), block_budget_frac=np.array([share]),
        sink_blocks=np.array([1]), recent_blocks=np.array([1]), score=np.linspace(0.0, 1.0, BLOCKS)[None],
        evict=np.array([False]), layer_taper=None if taper is None else np.array([taper]),
    )  # fmt: skip


def rules_for(
    made: KeepAction, keys: torch.Tensor, index: KeyIndex | None = None, context: int = 150, layers: int = 1,
    fit: torch.Tensor | None = None,
):  # fmt: skip
    """`fit` [n, heads, d]: dense queries seen before, on which the sketch is made."""
    cache = KVCache(keys=[keys] * layers, values=[keys] * layers, block_size=SIZE)
    if index is None:
        index = KeyIndex(cache, OPS, 0.125)
        if fit is not None:
            for layer in range(layers):
                index.saw(0, layer, list(range(context - 1 - fit.shape[0], context - 1)), fit)
    held = np.ones((1, BLOCKS), np.bool_)
    kept = choose_blocks(made, np.array([0]), np.array([BLOCKS]), held, np.zeros(1), OPS)
    table = torch.arange(BLOCKS, dtype=torch.int32)[None]
    return index, HeadRules(
        index, made, np.array([0]), np.array([BLOCKS]), kept, held, table, torch.tensor([context], dtype=torch.int32),
        0.125, layers,
    )  # fmt: skip


@pytest.mark.parametrize(("heads", "kv_heads"), [(8, 2), (14, 2), (32, 8), (28, 4), (12, 12)])
def test_each_kv_head_follows_its_own_query_heads(heads: int, kv_heads: int) -> None:
    """Head g's queries point at the keys of block 2 + g; every KV head must keep its own, whatever the group size."""
    d, group = 16, heads // kv_heads
    keys = torch.zeros(BLOCKS, SIZE, kv_heads, d)
    q = torch.zeros(1, heads, d)
    for g in range(kv_heads):
        keys[2 + g % 6, :, g, 0] = 40.0
        q[0, g * group : (g + 1) * group, 0] = 4.0
    fit = q.repeat(20, 1, 1) + 0.1 * torch.randn(20, heads, d)
    for rule in (KeepRule.TOP_BOUND, KeepRule.LEAST_ESTIMATE, KeepRule.CERTIFIED):
        _, rules = rules_for(action(rule, share=0.3), keys, fit=fit)
        mask = rules(0, q)[0]
        for g in range(kv_heads):
            assert mask[g, 2 + g % 6], rule
            assert mask[g, 0], "the sink"
            assert mask[g, BLOCKS - 1], "the newest block"
            assert mask[g].sum() < BLOCKS


def test_certified_rule_keeps_its_promise() -> None:
    torch.manual_seed(0)
    keys, q = torch.randn(BLOCKS, SIZE, 3, 16), 8.0 * torch.randn(1, 9, 16)
    _, rules = rules_for(action(KeepRule.CERTIFIED, budget=0.05), keys, fit=8.0 * torch.randn(20, 9, 16))
    mask = rules(0, q)
    table = torch.arange(BLOCKS, dtype=torch.int32)[None]
    truth = reference.block_log_sums(q, keys, table, torch.tensor([150], dtype=torch.int32), scale=0.125).softmax(-1)
    dropped = (truth * ~mask.repeat_interleave(3, dim=1)).sum(dim=-1)
    assert (dropped <= 0.05 + 1e-6).all()
    assert dropped.max() > 0.0
    assert dropped.mean() <= rules.dropped_mass_bound[0] <= 0.05
    assert 0.0 < rules.index_frac[0] < 7.5 / 32 + 0.05


def test_rows_without_a_sketch_and_layers_with_a_window_are_read_whole() -> None:
    torch.manual_seed(0)
    keys, q = torch.randn(BLOCKS, SIZE, 1, 16), 8.0 * torch.randn(1, 2, 16)
    _, rules = rules_for(action(KeepRule.CERTIFIED, budget=0.3), keys)
    assert rules(0, q).all()
    _, rules = rules_for(action(KeepRule.CERTIFIED, budget=0.3), keys, fit=8.0 * torch.randn(20, 2, 16))
    assert not rules(0, q).all()
    rules.windows = (64,)
    assert rules(0, q).all()


def test_keys_written_later_are_seen() -> None:
    keys, q = torch.zeros(BLOCKS, SIZE, 1, 16), torch.zeros(1, 2, 16)
    q[..., 0] = 4.0
    index, rules = rules_for(action(KeepRule.TOP_BOUND, share=0.3), keys)
    rules(0, q)
    keys[5, 3, 0, 0] = 50.0
    index.wrote(torch.tensor([5 * SIZE + 3]))
    _, rules = rules_for(action(KeepRule.TOP_BOUND, share=0.3), keys, index)
    assert rules(0, q)[0, 0, 5]


def test_a_taper_gives_early_layers_more() -> None:
    made = action(KeepRule.TOP_BLOCKS, share=0.5, taper=0.6)
    assert acts_per_head(made, np.array([0]))
    _, rules = rules_for(made, torch.zeros(BLOCKS, SIZE, 2, 16), layers=3)
    q = torch.zeros(1, 4, 16)
    assert [int(rules(layer, q)[0, 0].sum()) for layer in range(3)] == [8, 5, 2]
    assert rules.read_anywhere.sum() == 8
    assert not acts_per_head(action(KeepRule.TOP_BLOCKS), np.array([0]))
