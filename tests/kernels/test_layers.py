"""Norms, rotary, activations and products of every CPU backend against float64 by their formulas."""

import math

import pytest
import torch

DTYPES = [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)]


def close(found, expected, tolerance):
    assert ((found.double() - expected).abs() / (1.0 + expected.abs())).max() < tolerance


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("size", [1, 15, 64, 576])
def test_rms_norm(ops, dtype, tolerance, size):
    x, residual, weight = torch.randn(3, size).to(dtype), torch.randn(3, size).to(dtype), torch.randn(size).to(dtype)
    for r in (None, residual):
        y, total = ops.rms_norm(x, weight, 1e-5, r)
        s = x.double() if r is None else (x + r).double()
        close(total, s, tolerance)
        close(y, s / torch.sqrt((s * s).mean(-1, keepdim=True) + 1e-5) * weight.double(), tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
def test_rotary_turns_pairs(ops, dtype, tolerance):
    tokens, d = 5, 32
    angle = torch.arange(tokens)[:, None] * 0.3 ** torch.arange(d // 2)
    fused = torch.randn(tokens, 6 * d).to(dtype)
    q, k = fused[:, : 4 * d].view(tokens, 4, d), fused[:, 4 * d :].view(tokens, 2, d)  # views of one product
    for x, y in zip((q, k), ops.rotary(q, k, angle.cos(), angle.sin()), strict=True):
        z = torch.complex(x[..., : d // 2].double(), x[..., d // 2 :].double())
        turned = z * torch.exp(1j * angle.double())[:, None, :]
        close(y, torch.cat((turned.real, turned.imag), dim=-1), tolerance)
    with pytest.raises(ValueError, match="cos"):
        ops.rotary(q, k, angle.cos()[:3], angle.sin()[:3])


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
def test_activations(ops, dtype, tolerance):
    x = torch.cat((torch.linspace(-120, 120, 90), torch.tensor([0.0, -0.0]))).to(dtype)
    gate_up = torch.stack((torch.cat((x, x.flip(0))), torch.cat((x, torch.ones_like(x)))))
    gate, up = gate_up.double().chunk(2, dim=1)
    close(ops.swiglu(gate_up), gate * torch.sigmoid(gate) * up, tolerance)
    close(ops.gelu(x), x.double() * 0.5 * (1 + torch.erf(x.double() / math.sqrt(2))), tolerance)
    w, b = torch.randn(92).to(dtype), torch.randn(92).to(dtype)
    centred = x.double() - x.double().mean()
    expected = centred / torch.sqrt((centred**2).mean() + 1e-5) * w.double() + b.double()
    close(ops.layer_norm(x[None], w, b, 1e-5)[0], expected, 2 * tolerance)


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 16, 17, 32, 33, 64, 65])
@pytest.mark.parametrize(("size_in", "size_out"), [(576, 960), (70, 50), (33, 1)])
def test_linear(ops, rows, size_in, size_out):
    x = torch.randn(rows, size_in).bfloat16()
    weight, bias = (torch.randn(size_out, size_in) / size_in**0.5).bfloat16(), torch.randn(size_out).bfloat16()
    packed = ops.linear_prepack(weight)
    close(ops.linear(x, packed), x.double() @ weight.double().T, 8e-3)
    close(ops.linear(x, packed, bias), x.double() @ weight.double().T + bias.double(), 8e-3)
    exact = torch.randn(size_out, size_in) / size_in**0.5
    close(ops.linear(x.float(), ops.linear_prepack(exact)), x.double() @ exact.double().T, 1e-5)


def test_shapes_are_checked(ops):
    with pytest.raises((ValueError, TypeError)):
        ops.rms_norm(torch.randn(2, 8), torch.randn(7), 1e-5)
    with pytest.raises(ValueError, match="even"):
        ops.swiglu(torch.randn(2, 7))
