"""Triton `topk_entropy`: H_k, the tail mass and the bracket on H from the k largest probabilities, without sorting.

One program a row finds the k-th largest logit by bisection over its ordered bits (at most 32 passes), then sums once more
over what lies above it; ties at the edge fill up to k. Laws and fields: `kernels.laws.TopkEntropy`.
"""

# ruff: noqa: RUF059  (in Triton a name keeps one type, so unused parts of a result need names of their own)

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import FLOATS, Shipped, check, next_power_of_2
from kernels.laws import TopkEntropy, check_topk
from kernels.logit_rows import BLOCK, head_sums, load_logits, order_key, tempered_moments


@triton.jit
def topk_kernel(z_ptr, out_ptr, rows, n, k, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    m = float("-inf")
    bad = 0
    for start in range(0, n, BLOCK):
        z = load_logits(z_ptr, row, n, start + tl.arange(0, BLOCK))
        bad = bad | tl.max((z != z).to(tl.int32), axis=0)
        m = tl.maximum(m, tl.max(tl.where(z != z, float("-inf"), z), axis=0))
    broken = (bad != 0) | (tl.abs(m) == float("inf"))
    m = tl.where(broken, 0.0, m)
    log_total, h, v = tempered_moments(z_ptr, row, n, m, 1.0, BLOCK)
    low = order_key(tl.full([], -120.0, tl.float32))  # at least k entries have a key >= low, fewer than k one >= high
    high = order_key(tl.full([], 0.0, tl.float32)) + 1
    while high - low > 1:
        middle = low + (high - low) // 2
        count, s0, s1 = head_sums(z_ptr, row, n, m, 1.0, middle, BLOCK)
        low = tl.where(count >= k, middle, low)
        high = tl.where(count >= k, high, middle)
    above, s0, s1 = head_sums(z_ptr, row, n, m, 1.0, low + 1, BLOCK)
    at_least, all0, all1 = head_sums(z_ptr, row, n, m, 1.0, low, BLOCK)
    edge = tl.where(low < 0, low ^ 0x7FFFFFFF, low).to(tl.float32, bitcast=True)
    ties = k - above
    s0 += ties * tl.exp(edge)
    s1 += ties * tl.exp(edge) * edge
    # What lies below the edge is summed on its own: subtracting the head from the whole would lose a small tail.
    below = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        index = start + tl.arange(0, BLOCK)
        y = tl.maximum(load_logits(z_ptr, row, n, index) - m, -120.0)
        below += tl.where((order_key(y) < low) & (index < n), tl.exp(y), 0.0)
    rest = (tl.sum(below, axis=0) + (at_least - k) * tl.exp(edge)) / tl.exp(log_total)
    kept = s0 / tl.exp(log_total)
    head = tl.maximum(kept * log_total - s1 / tl.exp(log_total), 0.0)
    some = rest > 0.0
    lower = head + tl.where(some, rest * (log_total - edge), 0.0)
    spread = tl.log(tl.maximum(n - k, 1).to(tl.float32)) - tl.log(tl.where(some, rest, 1.0))
    upper = tl.maximum(lower, head + tl.where(some, rest * spread, 0.0))
    nan = tl.where(broken, float("nan"), 0.0)
    tl.store(out_ptr + row, head + nan)
    tl.store(out_ptr + rows + row, tl.maximum(head / kept + tl.log(kept), 0.0) + nan)
    tl.store(out_ptr + 2 * rows + row, 0.5 * (lower + upper) + nan)
    tl.store(out_ptr + 3 * rows + row, lower + nan)
    tl.store(out_ptr + 4 * rows + row, upper + nan)
    tl.store(out_ptr + 5 * rows + row, rest + nan)


def topk_entropy(logits: Tensor, k: int) -> TopkEntropy:
    """Meaning and errors as `reference.topk_entropy`. logits: [rows, n] contiguous."""
    check("logits", logits, FLOATS, (None, None), logits)
    rows, n = logits.shape
    k = check_topk(k, n)
    out = torch.empty(6, rows, dtype=torch.float32, device=logits.device)
    if rows:
        topk_kernel[(rows,)](logits, out, rows, n, k, BLOCK=min(BLOCK, max(16, next_power_of_2(n))), num_warps=8)
    return TopkEntropy(*out.unbind(0))


def shipped() -> list[Shipped]:
    return [
        Shipped(
            topk_kernel,
            f"topk_entropy {pointer[1:]}",
            {"z_ptr": pointer, "out_ptr": "*fp32", "rows": "i32", "n": "i32", "k": "i32"},
            {"BLOCK": BLOCK},
            8,
        )
        for pointer in ("*fp32", "*bf16")
    ]
