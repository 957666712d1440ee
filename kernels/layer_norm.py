"""Triton `layer_norm`, one program a row: (x - mean) / sqrt(var + eps) * w + b, moments in float32, var centred."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import FLOATS, POINTER, Shipped, check, next_power_of_2


@triton.jit
def layer_norm_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, size, eps, SIZE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * size
    i = tl.arange(0, SIZE)
    there = i < size
    x = tl.load(x_ptr + at + i, mask=there, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / size
    centred = tl.where(there, x - mean, 0.0)
    factor = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / size + eps)
    w = tl.load(weight_ptr + i, mask=there, other=0.0).to(tl.float32)
    b = tl.load(bias_ptr + i, mask=there, other=0.0).to(tl.float32)
    tl.store(y_ptr + at + i, (centred * factor * w + b).to(y_ptr.dtype.element_ty), mask=there)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Meaning as `reference.layer_norm`. x: [..., d]."""
    check("x", x := x.contiguous(), FLOATS, [None] * x.ndim, x)
    size = x.shape[-1]
    check("weight", weight, x.dtype, (size,), x)
    check("bias", bias, x.dtype, (size,), x)
    y = torch.empty_like(x)
    if x.numel():
        layer_norm_kernel[(x.numel() // size,)](x, weight, bias, y, size, eps, SIZE=next_power_of_2(size), num_warps=4)
    return y


def shipped() -> list[Shipped]:
    return [
        Shipped(
            layer_norm_kernel,
            f"layer_norm {pointer[1:]} {size}",
            {"x_ptr": pointer, "weight_ptr": pointer, "bias_ptr": pointer, "y_ptr": pointer, "size": "i32", "eps": "fp32"},
            {"SIZE": size},
        )
        for pointer in (POINTER[torch.bfloat16], POINTER[torch.float32])
        for size in (128, 1024)
    ]  # fmt: skip
