"""Triton `logit_stats`: log-sum-exp, H, V raw and tempered, and a Gumbel sample, in one read of the logits.

The vocabulary is split over programs. Each keeps sums e, e y, e y^2 relative to the running maximum m of what it has seen,
with y = (z - m) / T; when m moves by s = m_old - m_new (s / T in tempered units) they follow exactly:

    S0 <- w S0,   S1 <- w (S1 + s S0),   S2 <- w (S2 + 2 s S1 + s^2 S0),   w = e^s.

A second kernel merges the splits the same way. Solving T for a target entropy and finding the cut of min-p, top-H and
Mirostat are one more kernel each (`kernels.sampling_laws`), then the first pass again. Laws and fields:
`kernels.laws.LogitStats`.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import FLOATS, Shipped, check, next_power_of_2, num_splits
from kernels.laws import (
    SOLVE_ITERATIONS,
    SOLVE_TOLERANCE_NATS,
    LogitStats,
    check_sampling,
    float32_at_most,
    solve_bracket,
)
from kernels.logit_rows import BLOCK, load_logits
from kernels.philox import split_seed
from kernels.philox_triton import uniform_lanes
from kernels.sampling_laws import cut_kernel, solve_kernel

NUM_FLOATS = 10  # per split: m, raw S0 S1 S2, tempered S0 S1 S2, best value, its logit, bad


@triton.jit
def follow(s, s0, s1, s2):
    """The three sums after their reference moved by s <= 0 (see the module); s is floored so that 0 * inf cannot be."""
    s = tl.maximum(s, -120.0)
    w = tl.exp(s)
    return w * s0, w * (s1 + s * s0), w * (s2 + 2.0 * s * s1 + s * s * s0)


@triton.jit
def scan_kernel(
    z_ptr,
    temperature_ptr,
    cut_value_ptr,
    cut_index_ptr,
    request_ptr,
    token_ptr,
    float_ptr,
    index_ptr,
    n,
    stream: tl.int64,
    seed_0: tl.int64,
    seed_1: tl.int64,
    num_blocks,
    splits,
    HAS_CUT: tl.constexpr,
    BLOCK: tl.constexpr,
    NUM_FLOATS: tl.constexpr,
):
    """Program (row, split): statistics and the best Gumbel value over its blocks of the vocabulary."""
    row, split = tl.program_id(0), tl.program_id(1)
    temperature = tl.load(temperature_ptr + row)
    greedy = temperature == 0.0
    t = tl.where(greedy, 1.0, temperature)
    request, token = tl.load(request_ptr + row), tl.load(token_ptr + row)
    if HAS_CUT:
        cut_value, cut_index = tl.load(cut_value_ptr + row), tl.load(cut_index_ptr + row)
        row_max = tl.load(cut_value_ptr + tl.num_programs(0) + row)
    m = float("-inf")
    r0 = 0.0
    r1 = 0.0
    r2 = 0.0
    t0 = 0.0
    t1 = 0.0
    t2 = 0.0
    best = float("-inf")
    best_z = 0.0
    best_index = 0
    bad = 0
    for block in range(split, num_blocks, splits):
        index = block * BLOCK + tl.arange(0, BLOCK)
        z = load_logits(z_ptr, row, n, index)
        bad = bad | tl.max((z != z).to(tl.int32), axis=0)
        block_max = tl.max(tl.where(z != z, float("-inf"), z), axis=0)
        new_m = tl.maximum(m, block_max)
        reference = tl.where(tl.abs(new_m) == float("inf"), 0.0, new_m)
        shift = tl.minimum(tl.where(m > float("-inf"), m, reference) - reference, 0.0)
        m = new_m
        x = z - reference
        r0, r1, r2 = follow(shift, r0, r1, r2)
        y = tl.maximum(x, -120.0)
        e = tl.exp(y)
        r0 += tl.sum(e, axis=0)
        r1 += tl.sum(e * y, axis=0)
        r2 += tl.sum(e * y * y, axis=0)
        t0, t1, t2 = follow(shift / t, t0, t1, t2)
        scaled = x / t
        y = tl.maximum(scaled, -120.0)
        e = tl.exp(y)
        t0 += tl.sum(e, axis=0)
        t1 += tl.sum(e * y, axis=0)
        t2 += tl.sum(e * y * y, axis=0)
        u = uniform_lanes(block * BLOCK, request, token, stream, seed_0, seed_1, BLOCK)
        value = tl.where(greedy, x, scaled - tl.log(-tl.log(u)))
        if HAS_CUT:
            # The cut is in tempered units of the whole row's maximum, as the cut kernel computed them.
            whole = (z - row_max) / t
            value = tl.where((whole > cut_value) | ((whole == cut_value) & (index <= cut_index)), value, float("-inf"))
        value = tl.where(z > float("-inf"), value, float("-inf"))
        best += tl.where(best > float("-inf"), tl.where(greedy, shift, shift / t), 0.0)
        place = tl.argmax(value, axis=0)
        top = tl.max(value, axis=0)
        better = top > best
        best = tl.where(better, top, best)
        best_index = tl.where(better, block * BLOCK + place, best_index)
        best_z = tl.where(better, tl.max(tl.where(index == block * BLOCK + place, z, float("-inf")), axis=0), best_z)
    out = float_ptr + (row.to(tl.int64) * splits + split) * NUM_FLOATS
    tl.store(out, m)
    tl.store(out + 1, r0)
    tl.store(out + 2, r1)
    tl.store(out + 3, r2)
    tl.store(out + 4, t0)
    tl.store(out + 5, t1)
    tl.store(out + 6, t2)
    tl.store(out + 7, best)
    tl.store(out + 8, best_z)
    tl.store(out + 9, bad.to(tl.float32))
    tl.store(index_ptr + row.to(tl.int64) * splits + split, best_index)


@triton.jit
def merge_kernel(
    float_ptr,
    index_ptr,
    temperature_ptr,
    out_ptr,
    token_ptr,
    rows,
    splits,
    entropy_max,
    SPLITS: tl.constexpr,
    NUM_FLOATS: tl.constexpr,
):
    """Program (row): merges the splits and writes [8, rows] floats in the order of LogitStats, and the token."""
    row = tl.program_id(0)
    split = tl.arange(0, SPLITS)
    here = split < splits
    base = float_ptr + (row.to(tl.int64) * splits + split) * NUM_FLOATS
    part_m = tl.load(base, mask=here, other=float("-inf"))
    m = tl.max(part_m, axis=0)
    bad = tl.max(tl.load(base + 9, mask=here, other=0.0), axis=0) > 0.0
    bad = bad | (m == float("inf")) | (m == float("-inf"))
    temperature = tl.load(temperature_ptr + row)
    greedy = temperature == 0.0
    t = tl.where(greedy, 1.0, temperature)
    reference = tl.where(bad, 0.0, m)
    shift = tl.minimum(tl.where(bad, -120.0, tl.maximum(part_m, -3e38) - reference), 0.0)
    zero = tl.zeros([SPLITS], tl.float32)
    r0, r1, r2 = follow(
        shift,
        tl.load(base + 1, mask=here, other=0.0) + zero,
        tl.load(base + 2, mask=here, other=0.0),
        tl.load(base + 3, mask=here, other=0.0),
    )
    t0, t1, t2 = follow(
        shift / t,
        tl.load(base + 4, mask=here, other=0.0) + zero,
        tl.load(base + 5, mask=here, other=0.0),
        tl.load(base + 6, mask=here, other=0.0),
    )
    raw_total, raw_mean = tl.sum(r0, axis=0), tl.sum(r1, axis=0) / tl.sum(r0, axis=0)
    total, mean = tl.sum(t0, axis=0), tl.sum(t1, axis=0) / tl.sum(t0, axis=0)
    raw_log, log_total = tl.log(raw_total), tl.log(total)
    raw_h = tl.minimum(tl.maximum(raw_log - raw_mean, 0.0), entropy_max)
    h = tl.minimum(tl.maximum(log_total - mean, 0.0), entropy_max)
    raw_v = tl.maximum(tl.sum(r2, axis=0) / raw_total - raw_mean * raw_mean, 0.0)
    v = tl.maximum(tl.sum(t2, axis=0) / total - mean * mean, 0.0)
    value = tl.load(base + 7, mask=here, other=float("-inf")) + tl.where(greedy, shift, tl.maximum(shift / t, -1e30))
    winner = tl.argmax(value, axis=0)
    best_z = tl.max(tl.where(split == winner, tl.load(base + 8, mask=here, other=0.0), float("-inf")), axis=0)
    token = tl.sum(
        tl.where(split == winner, tl.load(index_ptr + row.to(tl.int64) * splits + split, mask=here, other=0), 0), axis=0
    )
    x = tl.where(bad, 0.0, best_z) - reference
    nan = tl.where(bad, float("nan"), 0.0)
    tl.store(out_ptr + row, reference + raw_log + nan)
    tl.store(out_ptr + rows + row, raw_h + nan)
    tl.store(out_ptr + 2 * rows + row, raw_v + nan)
    tl.store(out_ptr + 3 * rows + row, tl.where(greedy, 0.0, h) + nan)
    tl.store(out_ptr + 4 * rows + row, tl.where(greedy, 0.0, v) + nan)
    tl.store(out_ptr + 5 * rows + row, 1.0 / raw_total + nan)
    tl.store(out_ptr + 6 * rows + row, tl.where(greedy, 0.0, tl.maximum(log_total - x / t, 0.0)) + nan)
    tl.store(out_ptr + 7 * rows + row, tl.maximum(raw_log - x, 0.0) + nan)
    tl.store(token_ptr + row, tl.where(bad, -1, token).to(tl.int64))


def logit_stats(
    logits: Tensor,
    temperature: Tensor,
    *,
    seed: int,
    request_id: Tensor,
    token_index: Tensor,
    stream: int = 0,
    target_entropy_nats: Tensor | None = None,
    temperature_min: float = 0.0,
    temperature_max: float = float("inf"),
    min_p: Tensor | None = None,
    top_h: Tensor | None = None,
    mirostat_mu_nats: Tensor | None = None,
    sampler: str = "gumbel",
) -> LogitStats:
    """Statistics and one Gumbel sample per row of contiguous logits [rows, n]; see `laws.LogitStats`.

    Raises TypeError on a dtype, ValueError on a shape, layout or a number out of range; `inverse_cdf` is not offered here.
    """
    if sampler != "gumbel":
        raise ValueError(f"the triton backend samples by 'gumbel' only, got {sampler!r}")
    check("logits", logits, FLOATS, (None, None), logits)
    rows, n = logits.shape
    if n < 1 or n >= 2**31:
        raise ValueError(f"the vocabulary must have 1 to 2**31 - 1 entries, got {n}")
    device = logits.device

    def per_row(name: str, values, dtype=torch.float32):
        if values is None:
            return None
        values = torch.as_tensor(values, device=device).to(dtype)
        if values.shape not in ((), (rows,)):
            raise ValueError(f"{name} must have shape [rows] = [{rows}], got {list(values.shape)}")
        return values.expand(rows).contiguous()

    t, target = per_row("temperature", temperature), per_row("target_entropy_nats", target_entropy_nats)
    min_p, top_h = per_row("min_p", min_p), per_row("top_h", top_h)
    mu = per_row("mirostat_mu_nats", mirostat_mu_nats)
    request, token = per_row("request_id", request_id, torch.int64), per_row("token_index", token_index, torch.int64)
    if device.type == "cpu":
        check_sampling(t, target, temperature_min, temperature_max, min_p, top_h, sampler)
    applied = t.clamp(temperature_min, temperature_max)
    applied = torch.where(applied > 0.0, applied.clamp_min(1e-30), 0.0)

    block = min(BLOCK, max(16, next_power_of_2(n)))
    num_blocks = -(-n // block)
    splits = num_splits(rows, num_blocks, device, 1)
    parts = torch.empty(rows, splits, NUM_FLOATS, dtype=torch.float32, device=device)
    part_index = torch.empty(rows, splits, dtype=torch.int32, device=device)
    fields = torch.empty(8, rows, dtype=torch.float32, device=device)
    token_id = torch.empty(rows, dtype=torch.int64, device=device)
    cut_value = torch.empty(2, rows, dtype=torch.float32, device=device)
    cut_index = torch.empty(rows, dtype=torch.int32, device=device)
    if rows == 0:
        return _as_stats(fields, token_id, applied)

    def scan(has_cut: bool) -> None:
        scan_kernel[(rows, splits)](
            logits, applied, cut_value, cut_index, request, token, parts, part_index, n, stream, *split_seed(seed),
            num_blocks, splits, HAS_CUT=has_cut, BLOCK=block, NUM_FLOATS=NUM_FLOATS, num_warps=8,
        )  # fmt: skip

    has_cut = min_p is not None or top_h is not None or mu is not None
    if target is not None or has_cut:
        scan(has_cut=False)
        row_max = parts[:, :, 0].amax(dim=1)
        row_max = torch.where(parts[:, :, 9].amax(dim=1) > 0.0, float("nan"), row_max)
        if target is not None:
            # float32 ends, so that a step that lands on an end is recognised exactly.
            first, last = (float(torch.tensor(end)) for end in solve_bracket(temperature_min, temperature_max))
            solve_kernel[(rows,)](
                logits, row_max, target, applied, n, first, last, temperature_min, temperature_max,
                SOLVE_TOLERANCE_NATS, ITERATIONS=SOLVE_ITERATIONS, BLOCK=block, num_warps=8,
            )  # fmt: skip
        if has_cut:
            empty = cut_value
            cut_kernel[(rows,)](
                logits, row_max, applied, empty if min_p is None else min_p, empty if top_h is None else top_h,
                empty if mu is None else mu, cut_value, cut_index, n, HAS_MIN_P=min_p is not None,
                HAS_TOP_H=top_h is not None, HAS_MU=mu is not None, BLOCK=block, num_warps=8,
            )  # fmt: skip
    scan(has_cut)
    merge_kernel[(rows,)](
        parts, part_index, applied, fields, token_id, rows, splits, float32_at_most(math.log(n)),
        SPLITS=max(2, next_power_of_2(splits)), NUM_FLOATS=NUM_FLOATS, num_warps=4,
    )  # fmt: skip
    return _as_stats(fields, token_id, applied)


def _as_stats(fields: Tensor, token_id: Tensor, applied: Tensor) -> LogitStats:
    columns = list(fields.unbind(0))
    return LogitStats(*columns[:6], token_id, *columns[6:], applied)


def shipped() -> list[Shipped]:
    """Every configuration this module launches on a GPU."""
    common = {"n": "i32"}
    configurations = []
    for pointer in ("*fp32", "*bf16"):
        for has_cut in (False, True):
            configurations.append(
                Shipped(
                    scan_kernel, f"scan {pointer[1:]}{' cut' if has_cut else ''}",
                    {"z_ptr": pointer, "temperature_ptr": "*fp32", "cut_value_ptr": "*fp32", "cut_index_ptr": "*i32",
                     "request_ptr": "*i64", "token_ptr": "*i64", "float_ptr": "*fp32", "index_ptr": "*i32", **common,
                     "stream": "i64", "seed_0": "i64", "seed_1": "i64", "num_blocks": "i32", "splits": "i32"},
                    {"HAS_CUT": has_cut, "BLOCK": BLOCK, "NUM_FLOATS": NUM_FLOATS}, 8,
                )
            )  # fmt: skip
    for splits in (2, 64, 256):
        configurations.append(
            Shipped(
                merge_kernel, f"merge {splits}",
                {"float_ptr": "*fp32", "index_ptr": "*i32", "temperature_ptr": "*fp32", "out_ptr": "*fp32",
                 "token_ptr": "*i64", "rows": "i32", "splits": "i32", "entropy_max": "fp32"},
                {"SPLITS": splits, "NUM_FLOATS": NUM_FLOATS},
            )
        )  # fmt: skip
    return configurations
