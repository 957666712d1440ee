"""Every Triton kernel under the interpreter, against its torch twin, which the other tests hold to float64.

Runs as `TRITON_INTERPRET=1 pytest -m interpreter`: the interpreter is chosen when a kernel module is imported.
"""

import math
import os

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels import dispatch, reference

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"),
    # NumPy under the interpreter warns where a GPU silently makes an infinity or a NaN.
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]
FEW = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
DTYPES = [torch.float32, torch.bfloat16]


@pytest.fixture(scope="module")
def triton_ops() -> dispatch.Ops:
    ops = dispatch.backend("triton")
    assert ops.implementation == "triton interpreter"
    return ops


def close(found, expected, tolerance):
    found, expected = found.double(), expected.double()
    same = (found == expected) | (found.isnan() & expected.isnan())
    assert (same | ((found - expected).abs() <= tolerance * (1.0 + expected.abs()))).all()


def stats(ops, z, t, **laws):
    rows = z.shape[0]
    return ops.logit_stats(
        z, t, seed=2**40 + 17, stream=5, request_id=torch.arange(rows), token_index=torch.full((rows,), 9), **laws
    )


def same_stats(found, expected, tolerance=3e-5):
    for name in found._fields:
        if name == "token_id":
            assert found.token_id.tolist() == expected.token_id.tolist()
        else:
            close(getattr(found, name), getattr(expected, name), 10 * tolerance if "varentropy" in name else tolerance)


@FEW
@given(st.integers(1, 300), st.sampled_from(DTYPES), st.sampled_from([1.0, 30.0, 1e4]), st.integers(0, 999))
def test_logit_stats_over_shapes_and_scales(n, dtype, scale, seed):
    torch.manual_seed(seed)
    z = (torch.randn(4, n) * scale).to(dtype)
    z[1, : n // 2] = -math.inf
    z[2] = z[2].round()  # ties
    same_stats(
        stats(dispatch.backend("triton"), z, torch.tensor([1.0, 0.4, 0.0, 3.0])),
        stats(dispatch.backend("torch"), z, torch.tensor([1.0, 0.4, 0.0, 3.0])),
    )


def test_logit_stats_over_several_blocks_and_bad_rows(triton_ops):
    z = torch.randn(6, 9001) * 3
    z[0, 8999], z[1], z[2, 0], z[3, :5000] = math.nan, -math.inf, math.inf, -math.inf
    z[4, 1:] = -math.inf
    t = torch.tensor([1.0, 1.0, 1.0, 0.7, 1.0, 1e-30])
    found, expected = stats(triton_ops, z, t), stats(dispatch.backend("torch"), z, t)
    same_stats(found, expected)
    assert found.token_id[:3].tolist() == [-1, -1, -1]
    assert found.entropy_nats[4] == 0.0


@pytest.mark.parametrize(
    "laws",
    [
        {"target_entropy_nats": torch.tensor([0.5, math.nan, 50.0])},
        {"min_p": torch.tensor([0.2, 0.01, math.nan])},
        {"mirostat_mu_nats": torch.tensor([2.0, 0.001, math.nan])},
        {"top_h": torch.tensor([0.4, 0.9, math.nan])},
        {
            "min_p": torch.tensor([0.05] * 3),
            "top_h": torch.tensor([0.8] * 3),
            "mirostat_mu_nats": torch.tensor([3.0] * 3),
        },
    ],
    ids=["solve", "min-p", "mirostat", "top-h", "all"],
)
def test_laws(triton_ops, laws):
    z = (torch.randn(3, 70) * 2).round(decimals=1)  # with ties at every edge
    t = torch.tensor([0.8, 1.0, 1.5])
    same_stats(stats(triton_ops, z, t, **laws), stats(dispatch.backend("torch"), z, t, **laws))


def test_padding_lanes_never_leak(triton_ops):
    z = torch.full((1, 49_152), -5.0)
    z[0, 7] = -4.0
    found = stats(triton_ops, z, torch.ones(1))
    assert found.entropy_nats.item() == pytest.approx(10.80265, abs=1e-4)
    assert stats(triton_ops, z, torch.zeros(1)).token_id.item() == 7
    with pytest.raises(ValueError, match="'gumbel' only"):
        stats(triton_ops, z, torch.ones(1), sampler="inverse_cdf")
    with pytest.raises(ValueError, match="must be contiguous"):
        stats(triton_ops, torch.zeros(8, 4).T, torch.ones(4))
    with pytest.raises(TypeError, match="logits must be"):
        stats(triton_ops, torch.zeros(1, 4, dtype=torch.float64), torch.ones(1))


@pytest.mark.parametrize("k", [1, 7, 49, 50])
def test_topk_entropy(triton_ops, k):
    z = torch.randn(4, 50) * 2
    z[1, 3], z[2], z[3, :40] = math.nan, 0.0, -math.inf
    for found, expected in zip(triton_ops.topk_entropy(z, k), reference.topk_entropy(z, k), strict=True):
        close(found, expected, 3e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("heads", "kv_heads", "d"), [(8, 2, 16), (14, 2, 24), (12, 12, 16)])
def test_paged_attention(triton_ops, dtype, heads, kv_heads, d):
    tolerance = 2e-5 if dtype == torch.float32 else 2e-2
    k, v = (torch.randn(12, 16, kv_heads, d).to(dtype) for _ in range(2))
    table = torch.stack([torch.randperm(12)[:5] for _ in range(3)]).int()
    context = torch.tensor([1, 0, 65], dtype=torch.int32)
    q = torch.randn(3, heads, d).to(dtype)
    keep = torch.rand(3, kv_heads, 5) < 0.4
    keep[0, :, 0] = keep[2, :, 4] = True
    for options in ({}, {"keep": keep}, {"window_tokens": 20}):
        found = triton_ops.paged_attention(q, k, v, table, context, scale=0.3, **options)
        expected = reference.paged_attention(q, k, v, table, context, scale=0.3, **options)
        for x, y in zip(found, expected, strict=True):
            close(x, y, tolerance)
    chunk = torch.randn(20, heads, d).to(dtype)
    for options in ({}, {"causal": False}, {"window_tokens": 9}):
        found = triton_ops.chunk_attention(chunk, k, v, table[0], 30, scale=0.3, **options)
        close(found, reference.chunk_attention(chunk, k, v, table[0], 30, scale=0.3, **options), tolerance)
    keep[2, 0] = False
    with pytest.raises(ValueError, match="keep drops every block"):
        triton_ops.paged_attention(q, k, v, table, context, scale=0.3, keep=keep)
    with pytest.raises(ValueError, match="block_table names a block outside"):
        triton_ops.paged_attention(q, k, v, table + 12, context, scale=0.3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_small_ops(triton_ops, dtype):
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    x, w, b = torch.randn(3, 100).to(dtype), torch.randn(100).to(dtype), torch.randn(100).to(dtype)
    for r in (None, x.flip(0).contiguous()):
        for found, expected in zip(triton_ops.rms_norm(x, w, 1e-5, r), reference.rms_norm(x, w, 1e-5, r), strict=True):
            close(found, expected, tolerance)
    close(triton_ops.layer_norm(x, w, b, 1e-5), reference.layer_norm(x, w, b, 1e-5), tolerance)
    close(triton_ops.swiglu(x * 30), reference.swiglu(x * 30), tolerance)
    close(triton_ops.gelu(x * 3), reference.gelu(x * 3), tolerance)
    q, k = torch.randn(3, 4, 24).to(dtype), torch.randn(3, 2, 24).to(dtype)
    cos, sin = torch.randn(3, 12), torch.randn(3, 12)
    for found, expected in zip(triton_ops.rotary(q, k, cos, sin), reference.rotary(q, k, cos, sin), strict=True):
        close(found, expected, tolerance)
    caches = [torch.zeros(4, 16, 2, 24).to(dtype) for _ in range(4)]
    slots = torch.tensor([5, 33, 63])
    triton_ops.kv_write(k, k, caches[0], caches[1], slots)
    reference.kv_write(k, k, caches[2], caches[3], slots)
    assert torch.equal(caches[0], caches[2])
    assert torch.equal(caches[1], caches[3])
    with pytest.raises(ValueError, match="slot_index must be in"):
        triton_ops.kv_write(k, k, caches[0], caches[1], slots + 1)


@pytest.mark.parametrize("length", [1, 7, 70])
def test_reveal_prefix(triton_ops, length):
    generator = np.random.default_rng(length)
    arguments = [
        torch.tensor(values)
        for values in (
            np.argsort(generator.random((5, length)), axis=1), generator.choice([0.1, 0.5, np.inf], (5, length)),
            generator.random((5, length)) < 0.6, generator.uniform(0, 2, 5), generator.random(5) < 0.5,
            generator.integers(1, 3, 5), generator.integers(3, 6, 5),
        )
    ]  # fmt: skip
    assert torch.equal(triton_ops.reveal_prefix(*arguments), reference.reveal_prefix(*arguments))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bits", [0, 2, 3, 4])
def test_key_bounds(triton_ops, dtype, bits):
    k = torch.randn(6, 16, 2, 24).to(dtype)
    q = torch.randn(2, 8, 24).to(dtype)
    table, context = torch.tensor([[0, 2, 4], [5, 3, 1]]).int(), torch.tensor([5, 40]).int()
    filled = torch.tensor([5, 8, 16, 16, 16, 16])
    both = []
    for ops in (triton_ops, dispatch.backend("torch")):
        bounds, sketch = reference.empty_key_bounds(k), reference.empty_key_sketch(k, bits) if bits else None
        ops.update_key_bounds(k, torch.arange(6), filled, bounds, sketch)
        bound = ops.score_upper_bound(q, bounds, sketch, table, context, 16, scale=0.2)
        truth = reference.block_log_sums(q.double(), k.double(), table, context, scale=0.2)
        assert (bound.double() >= truth)[truth > -math.inf].all()
        both.append(bound)
    close(both[0], both[1], 1e-4)


@pytest.mark.parametrize("planes", [0, 8, 24, 48])
def test_sketch_sums(triton_ops, planes):
    """Every number of planes, head sizes that are no power of two, more queries than a tile."""
    from kernels.reference.axis_sketch import fit_axes, make_sketch

    torch.manual_seed(planes)
    keys, q = torch.randn(2, 128, 24), torch.randn(7, 6, 24)
    axes = fit_axes(torch.randn(2, 50, 24), keys, 64, 48, torch.float32)
    sketch = make_sketch(keys, axes, 64)
    found, expected = (ops.sketch_sums(q, sketch, axes, planes, 16, scale=0.2) for ops in (triton_ops, reference))
    for side in range(2):
        assert found[side].shape == (2, 7, 3, 8)
        close(found[side], expected[side], 1e-4)
    grouped = q.double().view(7, 2, 3, 24).transpose(0, 1)
    truth = torch.einsum("hrgd,htd->hrgt", grouped, keys.double()).mul(0.2).unflatten(3, (8, 16)).logsumexp(dim=4)
    assert (found[1].double() >= truth).all()
    with pytest.raises(ValueError, match="planes be in"):
        triton_ops.sketch_sums(q, sketch, axes, 56, 16, scale=0.2)
