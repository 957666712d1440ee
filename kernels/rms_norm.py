"""Triton `rms_norm` with an optional residual add, one program a row: y = w s / sqrt(mean(s^2) + eps), s = x + r."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import FLOATS, POINTER, Shipped, check, next_power_of_2


@triton.jit
def rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, y_ptr, total_ptr, size, eps, HAS_RESIDUAL: tl.constexpr, SIZE: tl.constexpr
):
    at = tl.program_id(0).to(tl.int64) * size
    i = tl.arange(0, SIZE)
    there = i < size
    s = tl.load(x_ptr + at + i, mask=there, other=0.0).to(tl.float32)
    dtype = y_ptr.dtype.element_ty
    if HAS_RESIDUAL:
        s += tl.load(residual_ptr + at + i, mask=there, other=0.0).to(tl.float32)
        tl.store(total_ptr + at + i, s.to(dtype), mask=there)
        s = s.to(dtype).to(tl.float32)  # what the next layer will see is what is normed
    factor = 1.0 / tl.sqrt(tl.sum(s * s, axis=0) / size + eps)
    w = tl.load(weight_ptr + i, mask=there, other=0.0).to(tl.float32)
    tl.store(y_ptr + at + i, ((s * factor).to(dtype).to(tl.float32) * w).to(dtype), mask=there)


def rms_norm(x: Tensor, weight: Tensor, eps: float, residual: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(y, s); meaning as `reference.rms_norm`. x: [..., d] contiguous."""
    check("x", x := x.contiguous(), FLOATS, [None] * x.ndim, x)
    size = x.shape[-1]
    check("weight", weight, x.dtype, (size,), x)
    if residual is not None:
        check("residual", residual, x.dtype, x.shape, x)
    y = torch.empty_like(x)
    total = x if residual is None else torch.empty_like(x)
    if x.numel():
        rms_norm_kernel[(x.numel() // size,)](
            x, x if residual is None else residual, weight, y, total, size, eps,
            HAS_RESIDUAL=residual is not None, SIZE=next_power_of_2(size), num_warps=4 if size <= 2048 else 8,
        )  # fmt: skip
    return y, total


def shipped() -> list[Shipped]:
    return [
        Shipped(
            rms_norm_kernel,
            f"rms_norm {pointer[1:]} {size}{' residual' if residual else ''}",
            {"x_ptr": pointer, "residual_ptr": pointer, "weight_ptr": pointer, "y_ptr": pointer, "total_ptr": pointer,
             "size": "i32", "eps": "fp32"},
            {"HAS_RESIDUAL": residual, "SIZE": size},
            4 if size <= 2048 else 8,
        )
        for pointer in (POINTER[torch.bfloat16], POINTER[torch.float32])
        for size in (1024, 4096)
        for residual in (False, True)
    ]  # fmt: skip
