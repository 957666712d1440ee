"""Triton `rotary`, half-split layout, one program a (token, head): (a cos - b sin, b cos + a sin) for the halves a, b."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import FLOATS, POINTER, Shipped, check, next_power_of_2


@triton.jit
def rotary_kernel(x_ptr, cos_ptr, sin_ptr, y_ptr, token_stride, heads, half, HALF: tl.constexpr):
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i = tl.arange(0, HALF)
    there = i < half
    x = x_ptr + token * token_stride + head * 2 * half + i
    a = tl.load(x, mask=there, other=0.0).to(tl.float32)
    b = tl.load(x + half, mask=there, other=0.0).to(tl.float32)
    cos = tl.load(cos_ptr + token * half + i, mask=there, other=0.0)
    sin = tl.load(sin_ptr + token * half + i, mask=there, other=0.0)
    y = y_ptr + (token * heads + head) * 2 * half + i
    tl.store(y, (a * cos - b * sin).to(y_ptr.dtype.element_ty), mask=there)
    tl.store(y + half, (b * cos + a * sin).to(y_ptr.dtype.element_ty), mask=there)


def rotary(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Meaning as `reference.rotary`. q, k: [tokens, heads, d], heads contiguous (views of a fused product are fine)."""
    tokens, half = q.shape[0], q.shape[-1] // 2
    check("cos", cos, torch.float32, (tokens, half), q)
    check("sin", sin, torch.float32, (tokens, half), q)

    def turn(name: str, x: Tensor) -> Tensor:
        if x.dtype not in FLOATS:
            raise TypeError(f"{name} must be float, got {x.dtype}")
        if x.ndim != 3 or x.shape[0] != tokens or x.shape[2] != 2 * half:
            raise ValueError(f"{name} must be [tokens, heads, d] = [{tokens}, any, {2 * half}], got {list(x.shape)}")
        if x.stride(2) != 1 or x.stride(1) != x.shape[2]:
            raise ValueError(f"{name} must have contiguous heads, got strides {list(x.stride())}")
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        if x.numel():
            rotary_kernel[(tokens, x.shape[1])](
                x, cos, sin, y, x.stride(0), x.shape[1], half, HALF=next_power_of_2(half), num_warps=1
            )
        return y

    return turn("q", q), turn("k", k)


def shipped() -> list[Shipped]:
    return [
        Shipped(
            rotary_kernel,
            f"rotary {pointer[1:]} {2 * half}",
            {"x_ptr": pointer, "cos_ptr": "*fp32", "sin_ptr": "*fp32", "y_ptr": pointer, "token_stride": "i32",
             "heads": "i32", "half": "i32"},
            {"HALF": half},
            1,
        )
        for pointer in (POINTER[torch.bfloat16], POINTER[torch.float32])
        for half in (32, 64)
    ]  # fmt: skip
