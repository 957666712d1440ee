"""Triton `reveal_prefix`: entropy-sum selection, the prefix of a random order whose summed cost stays within a budget.

The place of a position and the cost spent up to it are sums over the positions before it in the order, so no sort is
needed: program (row, tile) compares its positions with all others. A second kernel counts and marks.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import Shipped, check, next_power_of_2
from kernels.laws import check_reveal


@triton.jit
def place_kernel(rank_ptr, cost_ptr, masked_ptr, budget_ptr, place_ptr, within_ptr, length, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    rank = tl.load(rank_ptr + row * length + i, mask=i < length, other=0)
    masked = tl.load(masked_ptr + row * length + i, mask=i < length, other=0) != 0
    place = tl.zeros([BLOCK], tl.int32)
    spent = tl.zeros([BLOCK], tl.float64)
    for start in range(0, length, BLOCK):
        j = start + tl.arange(0, BLOCK)
        other_rank = tl.load(rank_ptr + row * length + j, mask=j < length, other=0)
        other = tl.load(masked_ptr + row * length + j, mask=j < length, other=0) != 0
        cost = tl.load(cost_ptr + row * length + j, mask=other, other=0.0)
        before = (other_rank[None, :] < rank[:, None]) | (
            (other_rank[None, :] == rank[:, None]) & (j[None, :] <= i[:, None])
        )
        before = before & other[None, :]
        place += tl.sum(before.to(tl.int32), axis=1)
        spent += tl.sum(tl.where(before, cost[None, :], 0.0), axis=1)
    within = masked & (spent <= tl.load(budget_ptr + row))
    tl.store(place_ptr + row * length + i, tl.where(masked, place - 1, 2147483647), mask=i < length)
    tl.store(within_ptr + row * length + i, within.to(tl.int32), mask=i < length)


@triton.jit
def mark_kernel(place_ptr, within_ptr, crossing_ptr, low_ptr, high_ptr, out_ptr, length, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    count = tl.load(crossing_ptr + row).to(tl.int32)
    for start in range(0, length, BLOCK):
        i = start + tl.arange(0, BLOCK)
        count += tl.sum(tl.load(within_ptr + row * length + i, mask=i < length, other=0), axis=0)
    count = tl.minimum(tl.maximum(count, tl.load(low_ptr + row)), tl.load(high_ptr + row))
    for start in range(0, length, BLOCK):
        i = start + tl.arange(0, BLOCK)
        place = tl.load(place_ptr + row * length + i, mask=i < length, other=2147483647)
        tl.store(out_ptr + row * length + i, (place < count).to(tl.int8), mask=i < length)


def reveal_prefix(
    rank: Tensor,
    cost: Tensor,
    masked: Tensor,
    budget: Tensor,
    include_crossing: Tensor,
    min_count: Tensor,
    max_count: Tensor,
) -> Tensor:
    """Positions to reveal, bool [rows, length]; the law is in `laws.check_reveal`. Costs are summed in float64."""
    check("masked", masked, torch.bool, (None, None), masked)
    rows, length = masked.shape
    device = masked.device

    def per_row(values, dtype):
        return torch.as_tensor(values, device=device).to(dtype).expand(rows).contiguous()

    budget, crossing = per_row(budget, torch.float64), per_row(include_crossing, torch.int32)
    low, high = per_row(min_count, torch.int32), per_row(max_count, torch.int32)
    rank, cost = rank.to(torch.int64).contiguous(), cost.to(torch.float64).contiguous()
    if device.type == "cpu":
        check_reveal(rank.shape, cost, masked, budget, low, high)
    check("rank", rank, torch.int64, (rows, length), masked)
    check("cost", cost, torch.float64, (rows, length), masked)
    out = torch.zeros(rows, length, dtype=torch.int8, device=device)
    if out.numel():
        place = torch.empty(rows, length, dtype=torch.int32, device=device)
        within = torch.empty_like(place)
        block = min(32, max(16, next_power_of_2(length)))
        masked_bytes = masked.view(torch.int8)
        place_kernel[(rows, -(-length // block))](
            rank, cost, masked_bytes, budget, place, within, length, BLOCK=block, num_warps=4
        )
        mark_kernel[(rows,)](place, within, crossing, low, high, out, length, BLOCK=256, num_warps=4)
    return out.view(torch.bool)


def shipped() -> list[Shipped]:
    return [
        Shipped(
            place_kernel,
            "reveal place",
            {"rank_ptr": "*i64", "cost_ptr": "*fp64", "masked_ptr": "*i8", "budget_ptr": "*fp64", "place_ptr": "*i32",
             "within_ptr": "*i32", "length": "i32"},
            {"BLOCK": 32},
        ),
        Shipped(
            mark_kernel,
            "reveal mark",
            {"place_ptr": "*i32", "within_ptr": "*i32", "crossing_ptr": "*i32", "low_ptr": "*i32", "high_ptr": "*i32",
             "out_ptr": "*i8", "length": "i32"},
            {"BLOCK": 256},
        ),
    ]  # fmt: skip
