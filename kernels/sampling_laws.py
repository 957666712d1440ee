"""Triton kernels of the in-step laws: the temperature with a target entropy, and the cut of min-p, top-H and Mirostat.

One program a row, which reads its logits as often as the law needs; `kernels.logit_stats` scans them again with the result.
Laws: `kernels.laws`.
"""

# ruff: noqa: RUF059  (in Triton a name keeps one type, so unused parts of a result need names of their own)

import triton
import triton.language as tl

from kernels.launch import Shipped
from kernels.laws import SOLVE_ITERATIONS
from kernels.logit_rows import BLOCK, head_sums, load_logits, order_key, tempered_moments


@triton.jit
def solve_kernel(
    z_ptr,
    max_ptr,
    target_ptr,
    temperature_ptr,
    n,
    first,
    last,
    temperature_min,
    temperature_max,
    tolerance,
    ITERATIONS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program (row): T with H(T) = target, in place of the start value; the law of `laws.SOLVE_*`."""
    row = tl.program_id(0)
    m, target, start = tl.load(max_ptr + row), tl.load(target_ptr + row), tl.load(temperature_ptr + row)
    if (target == target) & (m == m) & (tl.abs(m) < float("inf")):
        low = first
        high = last
        u = tl.minimum(tl.maximum(tl.log(tl.maximum(tl.where(start > 0.0, start, 1.0), 1e-30)), low), high)
        previous = float("inf")
        step = 0
        while step < ITERATIONS:
            log_s, h, v = tempered_moments(z_ptr, row, n, m, tl.exp(-u), BLOCK)
            gap = target - tl.maximum(h, 0.0)
            ended = ((u >= last) & (gap >= 0.0)) | ((u <= first) & (gap <= 0.0)) | (tl.abs(gap) <= tolerance)
            ended = ended | (high - low <= 1e-6)
            low = tl.where(gap > 0.0, u, low)
            high = tl.where(gap > 0.0, high, u)
            newton = u + gap / tl.maximum(v, 1e-12)
            newton = tl.where((newton >= high) & (high == last), last, newton)
            newton = tl.where((newton <= low) & (low == first), first, newton)
            inside = ((newton > low) & (newton < high)) | (newton == last) | (newton == first)
            halved = tl.abs(gap) <= 0.5 * previous
            u = tl.where(ended, u, tl.where(inside & halved, newton, 0.5 * (low + high)))
            previous = tl.abs(gap)
            step = tl.where(ended, ITERATIONS, step + 1)
        tl.store(temperature_ptr + row, tl.minimum(tl.maximum(tl.exp(u), temperature_min), temperature_max))


@triton.jit
def cut_kernel(
    z_ptr,
    max_ptr,
    temperature_ptr,
    min_p_ptr,
    top_h_ptr,
    mu_ptr,
    cut_value_ptr,
    cut_index_ptr,
    n,
    HAS_MIN_P: tl.constexpr,
    HAS_TOP_H: tl.constexpr,
    HAS_MU: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program (row): the tokens kept are y > cut_value, and y == cut_value up to index cut_index.

    Every law keeps a prefix in falling y, ties by index. Top-H is found by bisection over the ordered bits of y: the
    entropy of a prefix never falls as it grows. Also stores the row's maximum, which the scan reads back.
    """
    row = tl.program_id(0)
    m = tl.load(max_ptr + row)
    m = tl.where((m == m) & (tl.abs(m) < float("inf")), m, 0.0)
    temperature = tl.load(temperature_ptr + row)
    t = tl.where(temperature == 0.0, 1.0, temperature)
    floor = float("-inf")
    alone = False  # Mirostat leaves only the most likely token, the first among ties
    log_total, h, v = tempered_moments(z_ptr, row, n, m, 1.0 / t, BLOCK)
    if HAS_MIN_P:
        min_p = tl.load(min_p_ptr + row)
        floor = tl.where(min_p > 0.0, tl.log(min_p), floor)
    if HAS_MU:
        mu = tl.load(mu_ptr + row)
        floor = tl.maximum(floor, tl.where(mu == mu, log_total - mu, float("-inf")))
        alone = (mu == mu) & (log_total > mu)
    value = tl.minimum(floor, 0.0)
    ties = n
    if HAS_TOP_H:
        top_h = tl.load(top_h_ptr + row)
        limit = tl.where(top_h == top_h, top_h * h, float("inf")) + 1e-6
        # The largest key whose prefix exceeds the limit lies in [low, high).
        low = order_key(tl.full([], -120.0, tl.float32))
        high = order_key(tl.full([], 0.0, tl.float32)) + 1
        count, s0, s1 = head_sums(z_ptr, row, n, m, t, low, BLOCK)
        exceeds = tl.log(s0) - s1 / s0 > limit
        if exceeds:
            while high - low > 1:
                middle = low + (high - low) // 2
                count, s0, s1 = head_sums(z_ptr, row, n, m, t, middle, BLOCK)
                over = (s0 > 0.0) & (tl.log(tl.maximum(s0, 1e-30)) - s1 / tl.maximum(s0, 1e-30) > limit)
                low = tl.where(over, middle, low)
                high = tl.where(over, high, middle)
            above, s0, s1 = head_sums(z_ptr, row, n, m, t, low + 1, BLOCK)
            at_least, whole0, whole1 = head_sums(z_ptr, row, n, m, t, low, BLOCK)
            edge = tl.where(low < 0, low ^ 0x7FFFFFFF, low).to(tl.float32, bitcast=True)
            e = tl.exp(edge)
            # j copies of the edge value still fit; the count that fits is found by bisection too.
            fits = 0
            too_many = at_least - above
            while too_many - fits > 1:
                j = fits + (too_many - fits) // 2
                total, weighted = s0 + j * e, s1 + j * e * edge
                small = tl.log(total) - weighted / total <= limit
                fits = tl.where(small, j, fits)
                too_many = tl.where(small, too_many, j)
            take = edge >= value
            value = tl.where(take, edge, value)
            ties = tl.where(take, tl.where(above + fits > 0, fits, 1), ties)
    if alone:
        value = 0.0
        ties = 1
    # The index of the last tie that is kept.
    cut_index = n
    if ties < n:
        cut_index = -1
        seen = 0
        for start in range(0, n, BLOCK):
            index = start + tl.arange(0, BLOCK)
            y = (load_logits(z_ptr, row, n, index) - m) / t
            equal = ((y == value) & (index < n)).to(tl.int32)
            order = seen + tl.cumsum(equal, axis=0)
            cut_index = tl.maximum(cut_index, tl.max(tl.where((equal > 0) & (order <= ties), index, -1), axis=0))
            seen += tl.sum(equal, axis=0)
    tl.store(cut_value_ptr + row, value)
    tl.store(cut_value_ptr + tl.num_programs(0) + row, m)
    tl.store(cut_index_ptr + row, cut_index)


def shipped() -> list[Shipped]:
    """Every configuration launched on a GPU."""
    common = {"n": "i32"}
    configurations = []
    for pointer in ("*fp32", "*bf16"):
        configurations.append(
            Shipped(
                solve_kernel, f"solve {pointer[1:]}",
                {"z_ptr": pointer, "max_ptr": "*fp32", "target_ptr": "*fp32", "temperature_ptr": "*fp32", **common,
                 "first": "fp32", "last": "fp32", "temperature_min": "fp32", "temperature_max": "fp32",
                 "tolerance": "fp32"},
                {"ITERATIONS": SOLVE_ITERATIONS, "BLOCK": BLOCK}, 8,
            )
        )  # fmt: skip
        configurations.append(
            Shipped(
                cut_kernel, f"cut {pointer[1:]}",
                {"z_ptr": pointer, "max_ptr": "*fp32", "temperature_ptr": "*fp32", "min_p_ptr": "*fp32",
                 "top_h_ptr": "*fp32", "mu_ptr": "*fp32", "cut_value_ptr": "*fp32", "cut_index_ptr": "*i32", **common},
                {"HAS_MIN_P": True, "HAS_TOP_H": True, "HAS_MU": True, "BLOCK": BLOCK}, 8,
            )
        )  # fmt: skip
    return configurations
