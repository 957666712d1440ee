"""The whole step as one op against the same model op by op in float32, over prefill, decode, mixed batches and keep-lists."""

import pytest
import torch

from kernels import dispatch, reference
from kernels.cpu.decoder import DecoderWeights, LayerWeights, interleave

SIZE = 16


def weights(hidden, intermediate, vocab, heads, kv_heads, d, bias, qk_norm, window):
    def matrix(out, size_in):
        return (torch.randn(out, size_in) / size_in**0.5).bfloat16()

    width = (heads + 2 * kv_heads) * d
    layers = tuple(
        LayerWeights(
            input_norm=torch.rand(hidden).bfloat16(),
            qkv=matrix(width, hidden),
            qkv_bias=torch.randn(width).bfloat16() if bias else None,
            q_norm=torch.rand(d).bfloat16() if qk_norm else None,
            k_norm=torch.rand(d).bfloat16() if qk_norm else None,
            output=matrix(hidden, heads * d),
            post_norm=torch.rand(hidden).bfloat16(),
            gate_up=matrix(2 * intermediate, hidden),
            down=matrix(hidden, intermediate),
            window_tokens=window,
        )
        for _ in range(2)
    )
    angle = torch.arange(128)[:, None] * (1e4 ** (-torch.arange(d // 2) / (d / 2)))[None]
    return DecoderWeights(
        embedding=matrix(vocab, hidden), layers=layers, final_norm=torch.rand(hidden).bfloat16(), head=matrix(vocab, hidden),
        cos=angle.cos(), sin=angle.sin(), num_heads=heads, num_kv_heads=kv_heads, norm_eps=1e-5, scale=d**-0.5,
    )  # fmt: skip


def op_by_op(w, token_ids, positions, row, table, logit_rows, keys, values, keep=None):
    """(logits, mass mean over layers and heads, dropped mass) in float32 with the torch twins."""
    heads, kv_heads, d = w.num_heads, w.num_kv_heads, 2 * w.cos.shape[1]
    x = w.embedding[token_ids].float()
    table = table[row.long()]
    slot = table.long().gather(1, (positions // SIZE)[:, None])[:, 0] * SIZE + positions % SIZE
    context = (positions + 1).int()
    mass, dropped = 0.0, 0.0
    for layer, k_cache, v_cache in zip(w.layers, keys, values, strict=True):
        y, _ = reference.rms_norm(x, layer.input_norm.float(), w.norm_eps)
        qkv = y @ layer.qkv.float().T + (0.0 if layer.qkv_bias is None else layer.qkv_bias.float())
        q, k, v = (p.reshape(len(x), -1, d) for p in qkv.split([heads * d, kv_heads * d, kv_heads * d], dim=1))
        if layer.q_norm is not None:
            q = reference.rms_norm(q, layer.q_norm.float(), w.norm_eps)[0]
            k = reference.rms_norm(k, layer.k_norm.float(), w.norm_eps)[0]
        q, k = reference.rotary(q, k, w.cos[positions], w.sin[positions])
        reference.kv_write(k, v, k_cache, v_cache, slot)
        options = {"scale": w.scale, "window_tokens": layer.window_tokens}
        found = reference.paged_attention(
            q, k_cache, v_cache, table, context, keep=None if keep is None else keep[row.long()], **options
        )
        dense = reference.paged_attention(q, k_cache, v_cache, table, context, **options)
        mass = mass + found.mass.mean(dim=1) / len(w.layers)
        dropped = dropped + (1 - (found.log_sum_exp - dense.log_sum_exp).exp()).mean(dim=1) / len(w.layers)
        x = x + found.out.flatten(1) @ layer.output.float().T
        y, _ = reference.rms_norm(x, layer.post_norm.float(), w.norm_eps)
        x = x + reference.swiglu(y @ layer.gate_up.float().T) @ layer.down.float().T
    y, _ = reference.rms_norm(x[logit_rows], w.final_norm.float(), w.norm_eps)
    return y @ w.head.float().T, mass, dropped


SHAPES = [
    (96, 200, 131, 9, 3, 32, False, False, None),
    (64, 96, 50, 4, 4, 16, True, False, None),
    (100, 64, 70, 8, 2, 32, False, True, None),
    (64, 64, 70, 4, 2, 32, False, False, 8),
    (96, 64, 70, 3, 1, 64, False, False, None),  # heads of 64 and 128 have their own attention code
    (64, 80, 60, 5, 1, 64, True, False, 8),
    (64, 64, 50, 4, 2, 128, False, True, None),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_step_equals_op_by_op(ops, shape):
    if ops.fused_decoder is None:
        pytest.skip("no fused decoder on this backend")
    w = weights(*shape)
    fused = ops.fused_decoder(w)
    kv_heads, d = w.num_kv_heads, 2 * w.cos.shape[1]

    def caches(dtype):
        return [[torch.zeros(32, SIZE, kv_heads, d, dtype=dtype) for _ in w.layers] for _ in range(2)]

    (keys, values), (keys32, values32) = caches(torch.bfloat16), caches(torch.float32)
    table = torch.randperm(32).view(4, 8).int()
    prefill = (
        torch.randint(0, 50, (40,)),
        torch.cat([torch.arange(n) for n in (20, 17, 3)]),
        torch.tensor([0] * 20 + [1] * 17 + [3] * 3, dtype=torch.int32),
        torch.tensor([39, 19, 36]),
        None,
    )
    keep = torch.ones(4, kv_heads, 8, dtype=torch.bool)
    keep[0, :, 0] = False
    mixed = (  # three rows decode, one starts its prefill
        torch.randint(0, 50, (5,)),
        torch.tensor([20, 17, 3, 0, 1]),
        torch.tensor([0, 1, 3, 2, 2], dtype=torch.int32),
        torch.tensor([0, 1, 2, 4]),
        keep if w.layers[0].window_tokens is None else None,
    )
    decode = (  # every row decodes: threads take their rows in order
        torch.randint(0, 50, (4,)),
        torch.tensor([21, 18, 2, 4]),
        torch.arange(4, dtype=torch.int32),
        torch.arange(4),
        None,
    )
    for token_ids, positions, row, logit_rows, keep_list in (prefill, mixed, decode):
        found = fused.step(
            token_ids, positions, row, table, logit_rows, keys, values, keep=keep_list,
            measured=torch.ones(len(row), dtype=torch.bool), measure_dropped=True,
        )  # fmt: skip
        logits, mass, dropped = op_by_op(w, token_ids, positions, row, table, logit_rows, keys32, values32, keep_list)
        assert (found.logits - logits).abs().max() < 0.06 * max(1.0, float(logits.std()))  # bf16 rounding of inputs
        assert (found.mass - mass).abs().max() < 5e-3
        if keep_list is not None:
            assert (found.dropped_mass - dropped).abs().max() < 5e-3
            assert float(dropped[0]) > 0.1


def test_rows_do_not_depend_on_their_neighbours():
    ops = dispatch.backend("cpu")
    if ops.fused_decoder is None:
        pytest.skip("no C++ compiler")
    w = weights(*SHAPES[0])
    fused = ops.fused_decoder(w)
    table = torch.arange(36, dtype=torch.int32).view(36, 1)

    def step(rows):
        keys, values = ([torch.zeros(36, SIZE, 3, 32, dtype=torch.bfloat16) for _ in w.layers] for _ in range(2))
        ids = torch.arange(36)[rows]
        zeros, index = torch.zeros(len(ids), dtype=torch.int64), torch.arange(36, dtype=torch.int32)[rows]
        return fused.step(ids, zeros, index, table, torch.arange(len(ids)), keys, values).logits

    batch = step(slice(None))
    for row in (0, 17, 35):
        assert (step(slice(row, row + 1))[0] - batch[row]).abs().max() < 2e-2


def test_bad_input_is_refused_before_any_work():
    ops = dispatch.backend("cpu")
    if ops.fused_decoder is None:
        pytest.skip("no C++ compiler")
    w = weights(*SHAPES[0])
    fused = ops.fused_decoder(w)
    keys, values = ([torch.zeros(4, SIZE, 3, 32, dtype=torch.bfloat16) for _ in w.layers] for _ in range(2))
    one, table = torch.tensor([0]), torch.tensor([[0]], dtype=torch.int32)
    row = torch.tensor([0], dtype=torch.int32)
    for arguments, message in (
        ((torch.tensor([131]), one, row, table, one, keys, values), "token_ids must be in"),
        ((one, torch.tensor([128]), row, table, one, keys, values), "positions must be in"),
        ((one, torch.tensor([16]), row, table, one, keys, values), "context of row 0"),
        ((one, one, row, table + 4, one, keys, values), "block_table"),
        ((one, one, row, table, torch.tensor([1]), keys, values), "logit_rows must be in"),
        ((one, one, row, table, one, keys[:1], values[:1]), "one key and value cache per layer"),
    ):
        with pytest.raises(ValueError, match=message):
            fused.step(*arguments)
    assert not any(cache.any() for cache in keys)


def test_interleave_pads_the_last_panel():
    gate_up = torch.arange(2 * 30).float()[:, None]
    rows = interleave(gate_up)[:, 0].tolist()
    assert rows[:24] == list(range(24))
    assert rows[24:48] == list(range(30, 54))
    assert rows[48:54] == list(range(24, 30))
    assert rows[54:72] == [0.0] * 18
    assert len(rows) == 96
