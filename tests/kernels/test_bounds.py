"""Block key bounds: never below the truth, tighter with more bits, and certificates that hold."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import reference


def scene(heads, kv_heads, d, dtype, context, bits, spread=1.0, blocks=12):
    k = (torch.randn(blocks, 16, kv_heads, d) * spread).to(dtype)
    q = torch.randn(len(context), heads, d).to(dtype)
    width = -(-max(context) // 16)
    table = torch.stack([torch.randperm(blocks)[:width] for _ in context]).int()
    bounds = reference.empty_key_bounds(k)
    sketch = reference.empty_key_sketch(k, bits) if bits else None
    reference.update_key_bounds(k, torch.arange(blocks), torch.full((blocks,), 16), bounds, sketch)
    return q, k, table, torch.tensor(context, dtype=torch.int32), bounds, sketch


@settings(max_examples=40)
@given(
    st.integers(0, 10_000),
    st.sampled_from([0, 2, 3, 4]),
    st.sampled_from([torch.float32, torch.bfloat16]),
    st.sampled_from([1e-3, 1.0, 30.0]),
)
def test_bounds_are_never_below_the_truth(seed, bits, dtype, spread):
    torch.manual_seed(seed)
    q, k, table, context, bounds, sketch = scene(4, 2, 16, dtype, [1, 16, 37, 64], bits, spread)
    bound = reference.score_upper_bound(q, bounds, sketch, table, context, 16, scale=0.25)
    truth = reference.block_log_sums(q.double(), k.double(), table, context, scale=0.25)
    filled = truth > -math.inf
    assert (bound[filled].double() >= truth[filled]).all()
    assert (bound[~filled] == -math.inf).all()


def test_more_bits_are_tighter():
    gaps = []
    for bits in (0, 2, 3, 4):
        torch.manual_seed(3)
        q, k, table, context, bounds, sketch = scene(9, 3, 64, torch.bfloat16, [160] * 4, bits)
        bound = reference.score_upper_bound(q, bounds, sketch, table, context, 16, scale=0.125)
        gaps.append(float((bound - reference.block_log_sums(q, k, table, context, scale=0.125)).mean()))
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[3] < 0.5 * gaps[1] < 0.5 * gaps[0]


def test_update_follows_a_write():
    q, k, table, context, bounds, sketch = scene(4, 2, 16, torch.float32, [64], 3)
    k[table[0, 1].long(), 3] = 50.0  # a key far outside its old box
    reference.update_key_bounds(k, table[0, 1:2].long(), torch.tensor([16]), bounds, sketch)
    bound = reference.score_upper_bound(q, bounds, sketch, table, context, 16, scale=0.25)
    assert (bound >= reference.block_log_sums(q, k, table, context, scale=0.25)).all()
    with pytest.raises(ValueError, match="filled_tokens"):
        reference.update_key_bounds(k, torch.tensor([0]), torch.tensor([17]), bounds)
    with pytest.raises(ValueError, match="block_index"):
        reference.update_key_bounds(k, torch.tensor([12]), torch.tensor([1]), bounds)


def test_bad_sketches_are_refused():
    k = torch.zeros(2, 16, 1, 12)
    with pytest.raises(ValueError, match="bits"):
        reference.empty_key_sketch(torch.zeros(2, 16, 1, 16), 5)
    with pytest.raises(ValueError, match="multiple of 8"):
        reference.empty_key_sketch(k, 2)
