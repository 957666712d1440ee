"""Triton `gelu`, the exact form x * Phi(x), elementwise."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import FLOATS, POINTER, Shipped, check

BLOCK = 1024


@triton.jit
def gelu_kernel(x_ptr, y_ptr, size, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = i < size
    x = tl.load(x_ptr + i, mask=there, other=0.0).to(tl.float32)
    y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    tl.store(y_ptr + i, y.to(y_ptr.dtype.element_ty), mask=there)


def gelu(x: Tensor) -> Tensor:
    """Meaning as `reference.gelu`; any contiguous shape."""
    check("x", x := x.contiguous(), FLOATS, [None] * x.ndim, x)
    y = torch.empty_like(x)
    if x.numel():
        gelu_kernel[(-(-x.numel() // BLOCK),)](x, y, x.numel(), BLOCK=BLOCK, num_warps=4)
    return y


def shipped() -> list[Shipped]:
    return [
        Shipped(
            gelu_kernel, f"gelu {pointer[1:]}", {"x_ptr": pointer, "y_ptr": pointer, "size": "i64"}, {"BLOCK": BLOCK}
        )
        for pointer in (POINTER[torch.bfloat16], POINTER[torch.float32])
    ]
