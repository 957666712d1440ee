"""Triton `swiglu`: silu(gate) * up, elementwise over a fused product [rows, 2 i]."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import FLOATS, POINTER, Shipped, check

BLOCK = 1024


@triton.jit
def swiglu_kernel(x_ptr, y_ptr, size, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = i < size
    gate = tl.load(x_ptr + row * 2 * size + i, mask=there, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + row * 2 * size + size + i, mask=there, other=0.0).to(tl.float32)
    y = gate / (1.0 + tl.exp(-tl.maximum(gate, -88.0))) * up
    tl.store(y_ptr + row * size + i, y.to(y_ptr.dtype.element_ty), mask=there)


def swiglu(gate_up: Tensor) -> Tensor:
    """Meaning as `reference.swiglu`. gate_up: [..., 2 i], gate first; returns [..., i]."""
    check("gate_up", gate_up := gate_up.contiguous(), FLOATS, [None] * gate_up.ndim, gate_up)
    if gate_up.shape[-1] % 2:
        raise ValueError(f"gate_up must have an even last axis, got {gate_up.shape[-1]}")
    size = gate_up.shape[-1] // 2
    y = torch.empty(*gate_up.shape[:-1], size, dtype=gate_up.dtype, device=gate_up.device)
    if y.numel():
        swiglu_kernel[(y.numel() // size, -(-size // BLOCK))](gate_up, y, size, BLOCK=BLOCK, num_warps=4)
    return y


def shipped() -> list[Shipped]:
    return [
        Shipped(
            swiglu_kernel,
            f"swiglu {pointer[1:]}",
            {"x_ptr": pointer, "y_ptr": pointer, "size": "i32"},
            {"BLOCK": BLOCK},
        )
        for pointer in (POINTER[torch.bfloat16], POINTER[torch.float32])
    ]
