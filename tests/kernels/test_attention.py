"""Paged attention of every CPU backend against a dense float64 softmax, and the faults that paged caches invite."""

import math

import pytest
import torch

from kernels import reference

DTYPES = [(torch.float32, 2e-5), (torch.bfloat16, 2e-2)]
PAIRS = [(8, 2), (14, 2), (32, 8), (28, 4), (12, 12), (9, 3)]


def dense(q, keys, values, scale, seen):
    """Softmax attention of one row, float64. q: [heads, d]; keys, values: [t, heads, d]; seen: bool [heads, t]."""
    s = torch.einsum("hd,thd->ht", q.double(), keys.double()) * scale
    s[~seen] = -math.inf
    p = torch.softmax(s, dim=1)
    return torch.einsum("ht,thd->hd", p, values.double()), torch.logsumexp(s, dim=1), p


def scene(rows, heads, kv_heads, d, dtype, context, blocks=24, size=16):
    k, v = (torch.randn(blocks, size, kv_heads, d).to(dtype) for _ in range(2))
    width = -(-max(context) // size) + 1
    table = torch.stack([torch.randperm(blocks)[:width] for _ in range(rows)]).int()
    return torch.randn(rows, heads, d).to(dtype), k, v, table, torch.tensor(context, dtype=torch.int32)


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize(("heads", "kv_heads"), PAIRS)
def test_decode_equals_dense(ops, dtype, tolerance, heads, kv_heads):
    context = [1, 16, 17, 40]
    q, k, v, table, context_tokens = scene(4, heads, kv_heads, 32, dtype, context)
    keep = torch.rand(4, kv_heads, table.shape[1]) < 0.5
    for row, length in enumerate(context):
        keep[row, :, (length - 1) // 16] = True
    for keep_list in (None, keep):
        for window in (None, 9):
            found = ops.paged_attention(q, k, v, table, context_tokens, scale=0.3, keep=keep_list, window_tokens=window)
            for row, length in enumerate(context):
                kv_head = torch.arange(heads) // (heads // kv_heads)
                keys, values = (c[table[row].long()].flatten(0, 1)[:length][:, kv_head] for c in (k, v))
                position = torch.arange(length)
                seen = (position >= (0 if window is None else length - window)).expand(heads, length)
                if keep_list is not None:
                    seen = seen & keep_list[row, kv_head][:, position // 16]
                out, lse, p = dense(q[row], keys, values, 0.3, seen)
                assert (found.out[row].double() - out).abs().max() < tolerance
                assert (found.log_sum_exp[row].double() - lse).abs().max() < tolerance
                mass = torch.zeros(heads, table.shape[1], dtype=torch.float64).index_add(1, position // 16, p)
                assert (found.mass[row].double() - mass).abs().max() < tolerance


@pytest.mark.parametrize(("heads", "kv_heads"), PAIRS)
def test_head_reads_its_own_kv_head(ops, heads, kv_heads):
    q, k, v, table, context = scene(2, heads, kv_heads, 16, torch.float32, [5, 33])
    v[:] = torch.arange(kv_heads, dtype=torch.float32)[:, None]  # each KV head holds its own constant
    out = ops.paged_attention(q, k, v, table, context, scale=0.2).out
    expected = torch.arange(heads) // (heads // kv_heads)
    assert torch.allclose(out, expected[None, :, None].float().expand_as(out), atol=1e-5)


def test_scores_far_below_any_mask_value(ops):
    q, k, v, table, context = scene(1, 2, 2, 16, torch.float32, [20])
    k[:] = k / k.norm(dim=-1, keepdim=True)
    q[:] = -7e4 * k[table[0, 0].long(), 0]  # scores between -7e4 and 7e4; keep only the very negative ones
    out = ops.paged_attention(q, k, v, table, context, scale=1.0)
    keys, values = (c[table[0].long()].flatten(0, 1)[:20] for c in (k, v))
    expected, lse, _ = dense(q[0], keys, values, 1.0, torch.ones(2, 20, dtype=torch.bool))
    assert (out.out[0].double() - expected).abs().max() < 1e-3
    assert (out.log_sum_exp[0].double() - lse).abs().max() < 0.02


def test_slots_outside_the_context_are_never_read(ops):
    q, k, v, table, context = scene(2, 4, 2, 16, torch.float32, [1, 19])
    expected = ops.paged_attention(q, k, v, table, context, scale=0.5)
    for row, length in enumerate([1, 19]):
        for block in range(table.shape[1]):
            for offset in range(16):
                if block * 16 + offset >= length and not (table[1 - row] == table[row, block]).any():
                    k[table[row, block], offset] = math.nan
                    v[table[row, block], offset] = math.nan
    found = ops.paged_attention(q, k, v, table, context, scale=0.5)
    assert torch.equal(found.out, expected.out)
    table[0, 1:] = 10**6  # unused table entries may hold anything
    assert torch.equal(ops.paged_attention(q, k, v, table, context, scale=0.5).out, expected.out)


def test_empty_rows_and_empty_keep_lists(ops):
    q, k, v, table, context = scene(2, 4, 2, 16, torch.float32, [0, 19])
    found = ops.paged_attention(q, k, v, table, context, scale=0.5)
    assert torch.equal(found.out[0], torch.zeros(4, 16))
    assert (found.log_sum_exp[0] == -math.inf).all()
    assert not found.mass[0].any()
    keep = torch.ones(2, 2, table.shape[1], dtype=torch.bool)
    keep[1, 1] = False
    with pytest.raises(ValueError, match="keep drops every block of a KV head"):
        ops.paged_attention(q, k, v, table, context, scale=0.5, keep=keep)


def test_bad_input_is_refused(ops):
    q, k, v, table, context = scene(2, 4, 2, 16, torch.float32, [5, 19])
    wrong = table.clone()
    wrong[1, 1] = 24
    for arguments in (
        (q, k, v, wrong, context),
        (q, k, v, table, torch.tensor([5, 49], dtype=torch.int32)),
        (q[:, :3].contiguous(), k, v, table, context),
        (q[:, :, :8].contiguous(), k, v, table, context),
    ):
        with pytest.raises(ValueError, match=r"block_table|context|q must be"):
            ops.paged_attention(*arguments, scale=1.0)
    with pytest.raises((TypeError, ValueError), match=r"dtype|bfloat16|BFloat16|float32|Float"):
        ops.paged_attention(q, k.bfloat16(), v.bfloat16(), table, context, scale=1.0)
    for slot in (-1, 24 * 16):
        with pytest.raises(ValueError, match="slot_index must be in"):
            ops.kv_write(k[0, :1], v[0, :1], k, v, torch.tensor([slot]))


@pytest.mark.parametrize("window", [None, 8])
@pytest.mark.parametrize("start", [0, 13])
def test_chunk_equals_decode_token_by_token(ops, start, window):
    q, k, v, table, _ = scene(1, 6, 3, 32, torch.float32, [40])
    q = torch.randn(20, 6, 32)
    chunk = ops.chunk_attention(q, k, v, table[0], start, scale=0.2, window_tokens=window)
    for i in range(20):
        length = torch.tensor([start + i + 1], dtype=torch.int32)
        one = ops.paged_attention(q[i : i + 1], k, v, table, length, scale=0.2, window_tokens=window)
        assert (chunk[i] - one.out[0]).abs().max() < 1e-5


def test_window_sees_exactly_w_keys(ops):
    q, k, v, table, context = scene(1, 1, 1, 16, torch.float32, [20])
    mass = ops.paged_attention(q * 0, k, v, table, context, scale=1.0, window_tokens=8).mass[0, 0]
    assert mass[:2].tolist() == pytest.approx([4 / 8, 4 / 8])  # keys 12 to 19


def test_kv_write_then_read(ops):
    k_cache, v_cache = torch.zeros(4, 16, 2, 16), torch.zeros(4, 16, 2, 16)
    fused = torch.randn(5, 4 * 32)
    k, v = (part.view(5, 2, 16) for part in fused[:, :64].split(32, dim=1))  # views, as a fused product gives them
    slots = torch.tensor([0, 17, 63, 5, 31])
    ops.kv_write(k, v, k_cache, v_cache, slots)
    assert torch.equal(k_cache.view(64, 2, 16)[slots], k)
    assert torch.equal(v_cache.view(64, 2, 16)[slots], v)
    assert int((k_cache != 0).any(dim=(2, 3)).sum()) == 5


def test_offsets_beyond_two_to_the_31(ops):
    num_blocks = 131_073  # element offset of the last block: 2**31
    try:
        k, v = (torch.empty(num_blocks, 16, 8, 128, dtype=torch.bfloat16) for _ in range(2))  # untouched pages are free
    except RuntimeError:
        pytest.skip("not enough address space for an 8 GB cache")
    new = torch.randn(16, 8, 128).bfloat16()
    ops.kv_write(new, new, k, v, (num_blocks - 1) * 16 + torch.arange(16))
    q = torch.randn(1, 8, 128).bfloat16()
    table, context = torch.tensor([[num_blocks - 1]], dtype=torch.int32), torch.tensor([16], dtype=torch.int32)
    far = ops.paged_attention(q, k, v, table, context, scale=0.1)
    near = reference.paged_attention(q, new[None], new[None], torch.zeros(1, 1, dtype=torch.int32), context, scale=0.1)
    assert (far.out.float() - near.out.float()).abs().max() < 2e-2
