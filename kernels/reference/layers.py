"""Torch twins of the small ops of a decoder layer. Sums run in float32, results take the dtype of the input."""

import torch
import torch.nn.functional as F
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float, residual: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(y, s) with s = x + residual (s = x without one) and y = weight * s / sqrt(mean(s^2) + eps), x: [..., d]."""
    if weight.shape != x.shape[-1:]:
        raise ValueError(f"weight must have shape [{x.shape[-1]}], got {list(weight.shape)}")
    total = x if residual is None else x + residual
    wide = total.float()
    y = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    return y.to(x.dtype) * weight.to(x.dtype), total


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axis, x: [..., d]."""
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


def rotary(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Rotary embedding in the half-split layout: element i turns with element i + d/2.

    q: [tokens, heads, d]; k: [tokens, kv_heads, d]; cos, sin: [tokens, d/2] float32, per token's position.
    Returns new tensors: (a cos - b sin, b cos + a sin) for the halves a, b.
    """
    half = q.shape[-1] // 2
    if cos.shape != (q.shape[0], half) or sin.shape != cos.shape:
        raise ValueError(f"cos and sin must be [tokens, d/2] = [{q.shape[0]}, {half}], got {list(cos.shape)}")
    cos, sin = cos.float()[:, None, :], sin.float()[:, None, :]

    def turn(x: Tensor) -> Tensor:
        a, b = x.float().split(half, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)

    return turn(q), turn(k)


def swiglu(gate_up: Tensor) -> Tensor:
    """silu(gate) * up for gate_up [..., 2 i] holding gate then up; returns [..., i]."""
    if gate_up.shape[-1] % 2:
        raise ValueError(f"gate_up must have an even last axis, got {gate_up.shape[-1]}")
    gate, up = gate_up.chunk(2, dim=-1)
    return (F.silu(gate.float()) * up.float()).to(gate_up.dtype)


def gelu(x: Tensor) -> Tensor:
    """x * Phi(x), the exact (erf) form."""
    return F.gelu(x)


def linear_prepack(weight: Tensor) -> Tensor:
    """A weight [out, in] in the layout `linear` of the same backend wants; here as it is."""
    return weight


def linear(x: Tensor, packed: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [..., in] times the transposed weight; returns [..., out]."""
    return F.linear(x, packed, bias)
