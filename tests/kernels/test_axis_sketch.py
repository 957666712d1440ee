"""The axis sketch and the certified cascade: never below the truth, tighter with planes, and a wrong bound is caught."""

import math

import numpy as np
import pytest
import torch

from kernels.reference.axis_sketch import block_sums, fit_axes, make_sketch, sketch_scores, sketch_sums, sketched_keys
from kernels.reference.certified_cascade import BlockValues, certified_cascade, output_bound

BLOCK, GROUP, SCALE = 16, 64, 0.25


def scene(
    seed: int, rows: int = 50, kv_heads: int = 2, group: int = 3, tokens: int = 256, d: int = 16, dtype=torch.float64
):
    """Keys with a mean, unequal axes and correlations; queries of another shape, some of them looking at few keys."""
    torch.manual_seed(seed)
    mix = torch.randn(kv_heads, d, d, dtype=dtype) * torch.logspace(0.5, -1.5, d, dtype=dtype)
    keys = torch.randn(kv_heads, tokens, d, dtype=dtype) @ mix.mT + 2.0 * torch.randn(kv_heads, 1, d, dtype=dtype)
    q = (
        torch.randn(rows, kv_heads * group, d, dtype=dtype)
        * torch.logspace(-0.5, 1.0, rows, dtype=dtype)[:, None, None]
    )
    fit = torch.randn(kv_heads, 100, d, dtype=dtype)
    axes = fit_axes(fit, keys, GROUP, 6 * d, dtype)
    return q, keys, axes, make_sketch(keys, axes, GROUP)


def exact_sums(q: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    kv_heads, _, d = keys.shape
    grouped = q.view(q.shape[0], kv_heads, -1, d).transpose(0, 1)
    score = torch.einsum("hrgd,htd->hrgt", grouped, keys) * SCALE
    return score.unflatten(3, (-1, BLOCK)).logsumexp(dim=4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("planes", [0, 8, 32, 96])
def test_bounds_hold_for_every_token(dtype, planes):
    for seed in range(8):
        q, keys, axes, sketch = scene(seed, dtype=dtype)
        scores = sketch_scores(q, sketch, axes, planes, scale=SCALE)
        grouped = q.double().view(q.shape[0], 2, -1, 16).transpose(0, 1)
        truth = torch.einsum("hrgd,htd->hrgt", grouped, keys.double()) * SCALE
        error = scores.error.double().repeat_interleave(GROUP, dim=3)
        assert ((truth - scores.middle.double()).abs() <= error).all()


def test_planes_are_nested_and_tighten():
    q, keys, axes, sketch = scene(1)
    gaps = []
    for planes in (0, 16, 48, 96):
        _, bound = block_sums(sketch_scores(q, sketch, axes, planes, scale=SCALE), BLOCK)
        gaps.append(float((bound - exact_sums(q, keys)).mean()))
        near = sketched_keys(sketch, axes, planes)
        width = (sketch.range / 2.0 ** axes.bits(planes)[:, None])[:, :, None]
        inside = (keys @ axes.to_key.mT).view(2, -1, GROUP, 16) - near.view(2, -1, GROUP, 16)
        assert (inside.abs() <= 0.5 * width * (1 + 1e-9) + 1e-12).all()
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[3] < 0.2 * gaps[0]


def test_the_axes_change_no_score():
    q, keys, axes, _ = scene(2)
    turned_q, turned_k = q[:, :3] @ axes.to_query[0].mT, keys[0] @ axes.to_key[0].mT
    torch.testing.assert_close(turned_q @ turned_k.mT, q[:, :3] @ keys[0].mT, rtol=1e-9, atol=1e-9)


def test_own_axes_need_fewer_bits_than_given_ones():
    """What the sketch is for: at equal planes the bound is far tighter than with equal bits on the axes as they are."""
    q, keys, axes, sketch = scene(3)
    _, bound = block_sums(sketch_scores(q, sketch, axes, 48, scale=SCALE), BLOCK)
    ours = (bound - exact_sums(q, keys)).mean()
    blocks = keys.view(2, -1, GROUP, 16)
    width = (blocks.amax(dim=2) - blocks.amin(dim=2)) / 2**3  # 3 bits an axis: 48 planes
    given = SCALE * torch.einsum("hrgd,hnd->hrgn", q.view(-1, 2, 3, 16).transpose(0, 1).abs(), 0.5 * width).mean()
    assert ours < 0.6 * given


def claims(num_cases: int, shrink: float = 1.0, output_shrink: float = 1.0):
    """(violations of the mass bound, of the output bound, cases): random heads, queries and values, in float64."""
    mass_lies = output_lies = cases = seed = 0
    while cases < num_cases:
        q, keys, axes, sketch = scene(seed, rows=400)
        values = torch.randn(2, keys.shape[1], 8, dtype=torch.float64)
        exact = exact_sums(q, keys)
        levels = [(p, *block_sums(sketch_scores(q, sketch, axes, p, scale=SCALE), BLOCK)) for p in (0, 16, 32, 48)]
        # A bound that claims less than it may: `shrink` of what it says beyond the truth's own scale.
        levels = [(p, e, b + math.log(shrink)) for p, e, b in levels]
        always = torch.zeros(1, 1, exact.shape[3], dtype=torch.bool)
        made = certified_cascade(levels, exact, always, (0.01, 0.1, 0.3)[seed % 3])
        kept = made.keep[:, :, None].repeat_interleave(BLOCK, dim=3)
        grouped = q.view(q.shape[0], 2, -1, 16).transpose(0, 1)
        p = (torch.einsum("hrgd,htd->hrgt", grouped, keys) * SCALE).softmax(dim=3)
        dropped = torch.where(kept, 0.0, p).sum(dim=3)
        inside = torch.where(kept, p, 0.0)
        output = (inside / inside.sum(dim=3, keepdim=True)) @ values[:, None]
        change = (output - p @ values[:, None]).norm(dim=3)
        reach = torch.cdist(output.flatten(1, 2), values).view(*p.shape)
        spread = torch.where(kept, 0.0, reach).amax(dim=3)
        mass_lies += int((dropped > made.dropped_mass_bound * (1 + 1e-9) + 1e-12).sum())
        # Against the true dropped mass the output bound is tight where one value is dropped; `output_shrink` cuts it.
        output_lies += int((change > output_shrink * made.dropped_mass_bound * spread * (1 + 1e-9) + 1e-12).sum())
        cases += dropped.numel()
        seed += 1
    return mass_lies, output_lies, cases


def test_no_violation_in_a_hundred_thousand_cases():
    mass_lies, output_lies, cases = claims(100_000)
    assert cases >= 100_000
    assert (mass_lies, output_lies) == (0, 0)


def values_of(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> BlockValues:
    grouped = q.view(q.shape[0], 2, -1, 16).transpose(0, 1)
    score = (torch.einsum("hrgd,htd->hrgt", grouped, keys) * SCALE).unflatten(3, (-1, BLOCK))
    mean = torch.einsum("hrgbt,hbtd->hrgbd", score.softmax(dim=4), values.unflatten(1, (-1, BLOCK)))
    balls = values.unflatten(1, (-1, GROUP))
    centre = balls.mean(dim=2)
    return BlockValues(mean, centre, (balls - centre[:, :, None]).norm(dim=3).amax(dim=2), GROUP // BLOCK)


def test_output_bounds_hold_and_stop_the_reading():
    """Values close together in each group: the bound on the output lets more mass go than a bound on the mass would."""
    read = {}
    for seed in range(4):
        q, keys, axes, sketch = scene(seed, rows=200)
        values = torch.randn(2, 1, 8, dtype=torch.float64) + 0.05 * torch.randn(2, 256, 8, dtype=torch.float64)
        exact, known = exact_sums(q, keys), values_of(q, keys, values)
        levels = [(p, *sketch_sums(q, sketch, axes, p, BLOCK, scale=SCALE)) for p in (0, 16, 32, 48)]
        always = torch.zeros(1, 1, exact.shape[3], dtype=torch.bool)
        p = exact.softmax(dim=3)
        dense = (p[..., None] * known.mean).sum(dim=3)
        for budget in (0.005, 0.02, 0.1):
            made = certified_cascade(levels, exact, always, budget, known, budget)
            inside = torch.where(made.keep[:, :, None], p, 0.0)
            output = ((inside / inside.sum(dim=3, keepdim=True))[..., None] * known.mean).sum(dim=3)
            moved, bound = (output - dense).norm(dim=3), output_bound(made, exact, known)
            assert (moved <= bound * (1 + 1e-9) + 1e-12).all()
            assert (bound <= budget * output.norm(dim=3) * (1 + 1e-9)).all()
            by_mass = certified_cascade(levels, exact, always, budget)
            read.setdefault(budget, []).append((float(made.keep.double().mean()), float(by_mass.keep.double().mean())))
    shares = {budget: np.mean(pairs, axis=0) for budget, pairs in read.items()}
    assert all(output <= mass for output, mass in shares.values())
    assert shares[0.02][0] < 0.85 * shares[0.02][1]
    assert shares[0.1][0] < shares[0.02][0] < shares[0.005][0]


def test_an_output_bound_off_by_one_per_cent_is_caught():
    """One block dropped, its value at the rim of its ball, its mass known: the bound is the change itself."""
    exact = torch.log(torch.tensor([[[[0.9, 0.1]]]], dtype=torch.float64))
    mean = torch.tensor([[[[[1.0, 0.0], [-1.0, 0.0]]]]], dtype=torch.float64)
    centre, radius = (
        torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]], dtype=torch.float64),
        torch.zeros(1, 2, dtype=torch.float64),
    )
    known = BlockValues(mean, centre, radius, 1)
    made = certified_cascade([(8, exact, exact)], exact, torch.zeros(1, 1, 2, dtype=torch.bool), 0.15)
    assert made.keep[0, 0].tolist() == [True, False]
    moved = 0.1 * 2.0  # from (0.8, 0) to (1, 0)
    bound = float(output_bound(made, exact, known)[0, 0, 0])
    assert moved <= bound <= moved * (1 + 1e-5)
    assert not moved <= 0.99 * bound


def tight_case(off: float) -> bool:
    """One block dropped whose bound is exact, up to the factor `off`: does the claim hold?"""
    exact = torch.log(torch.tensor([[[[0.7, 0.2, 0.1]]]], dtype=torch.float64))
    bound = exact + math.log(off)
    made = certified_cascade([(8, exact, bound)], exact, torch.zeros(1, 1, 3, dtype=torch.bool), 0.15)
    dropped = torch.where(made.keep[0, 0], 0.0, exact[0, 0, 0].exp()).sum()
    assert made.keep[0, 0].tolist() == [True, True, False]
    return bool(dropped <= made.dropped_mass_bound[0, 0, 0] * (1 + 1e-9))


def test_a_certificate_off_by_one_per_cent_is_caught():
    assert tight_case(1.0)
    assert not tight_case(0.99)


def test_a_budget_of_nothing_reads_everything_and_context_ends_are_respected():
    q, keys, axes, sketch = scene(4, rows=6)
    exact = exact_sums(q, keys)
    exact[:, 3, :, 9:] = -math.inf
    levels = [(p, *block_sums(sketch_scores(q, sketch, axes, p, scale=SCALE), BLOCK)) for p in (0, 48)]
    levels = [(p, *(torch.where(exact > -math.inf, x, -math.inf) for x in (e, b))) for p, e, b in levels]
    always = torch.zeros(1, 1, exact.shape[3], dtype=torch.bool)
    always[..., 0] = True
    everything = certified_cascade(levels, exact, always, 0.0)
    assert (everything.keep == (exact[:, :, 0] > -math.inf)).all()
    assert (everything.dropped_mass_bound == 0.0).all()
    some = certified_cascade(levels, exact, always, 0.2)
    assert some.keep[..., 0].all()
    assert not some.keep[:, 3, 9:].any()
    assert (some.dropped_mass_bound <= 0.2).all()
    assert some.keep.sum() < everything.keep.sum()
    assert (some.planes[..., 0] == 0).all()


def test_refusals():
    keys = torch.randn(1, 64, 8)
    with pytest.raises(ValueError, match="m >= 128"):
        fit_axes(torch.randn(1, 4, 8), keys, 128, 8, torch.float32)
    with pytest.raises(ValueError, match="max_planes"):
        fit_axes(torch.randn(1, 4, 8), keys, 64, 65, torch.float32)
    axes = fit_axes(torch.randn(1, 40, 8), keys, 64, 16, torch.float32)
    with pytest.raises(ValueError, match="multiple of the group"):
        make_sketch(keys[:, :60], axes, 64)
    with pytest.raises(ValueError, match="multiple of 8"):
        make_sketch(keys, fit_axes(torch.randn(1, 40, 8), keys, 64, 12, torch.float32), 64)
