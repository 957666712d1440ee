"""What Triton kernels over one row of logits share: loading a block of it, its moments at a temperature, sums over its head."""

import triton
import triton.language as tl

BLOCK = 4096


@triton.jit
def load_logits(z_ptr, row, n, index):
    """Logits of a row as float32, -inf beyond the vocabulary. 64-bit offsets: rows * n may exceed 2**31."""
    return tl.load(z_ptr + row.to(tl.int64) * n + index, mask=index < n, other=float("-inf")).to(tl.float32)


@triton.jit
def tempered_moments(z_ptr, row, n, m, inverse, BLOCK: tl.constexpr):
    """(ln sum e^y, H, V) of one row at 1 / T = inverse, m its maximum."""
    s0 = tl.zeros([BLOCK], tl.float32)
    s1 = tl.zeros([BLOCK], tl.float32)
    s2 = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        y = tl.maximum((load_logits(z_ptr, row, n, start + tl.arange(0, BLOCK)) - m) * inverse, -120.0)
        e = tl.exp(y)
        s0 += e
        s1 += e * y
        s2 += e * y * y
    total = tl.sum(s0, axis=0)
    mean = tl.sum(s1, axis=0) / total
    return tl.log(total), tl.log(total) - mean, tl.sum(s2, axis=0) / total - mean * mean


@triton.jit
def order_key(y):
    """An int32 that orders like the float, for bisection over values."""
    bits = y.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def head_sums(z_ptr, row, n, m, t, key, BLOCK: tl.constexpr):
    """(count, sum e^y, sum e^y y) over the tokens whose key is at least `key`."""
    count = tl.zeros([BLOCK], tl.int32)
    s0 = tl.zeros([BLOCK], tl.float32)
    s1 = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        index = start + tl.arange(0, BLOCK)
        y = tl.maximum((load_logits(z_ptr, row, n, index) - m) / t, -120.0)
        in_head = (order_key(y) >= key) & (index < n)
        e = tl.where(in_head, tl.exp(y), 0.0)
        count += in_head.to(tl.int32)
        s0 += e
        s1 += e * y
    return tl.sum(count, axis=0), tl.sum(s0, axis=0), tl.sum(s1, axis=0)
