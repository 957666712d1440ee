"""The shape family against the explicit softmax over all its logits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.reference_numpy import logit_stats
from sims.latent_shapes import (
    draw_levels,
    draw_rank,
    expanded,
    kept_outcomes,
    level_counts,
    moments,
    num_levels,
    prefix_weight,
    raw_moments,
    solve_temperature,
    tempered,
)
from workbench.signals import entropy_and_varentropy

SHAPES = st.tuples(st.floats(0, 12), st.floats(0, 4), st.floats(0, 0.6)).map(np.array)
SIZES = st.sampled_from([1, 2, 3, 5, 25, 64, 1000])


@given(SHAPES, SIZES, st.floats(0.05, 20.0))
def test_moments_are_those_of_the_softmax(shape, n, temperature):
    log_total, entropy, varentropy = moments(*shape, temperature, n)
    z = expanded(shape, n)
    h, v = entropy_and_varentropy(z, temperature)
    assert entropy == pytest.approx(h, abs=1e-10)
    assert varentropy == pytest.approx(v, abs=1e-9)
    assert log_total == pytest.approx(np.log(np.exp(z / temperature).sum()), abs=1e-10)
    assert 0.0 <= entropy <= np.log(n) + 1e-12


@given(SHAPES, st.floats(0.2, 5.0))
def test_the_gain_is_the_varentropy(shape, temperature):
    n, step = 49_152, 1e-4
    up, down = (moments(*shape, temperature * np.exp(d), n)[1] for d in (step, -step))
    slope = (up - down) / (2 * step)
    assert slope == pytest.approx(moments(*shape, temperature, n)[2], abs=1e-5, rel=1e-5)


def test_levels_cover_exactly_n_outcomes():
    for n in (1, 2, 3, 4, 5, 49_152, 151_936):
        levels = num_levels(n)
        counted = 1 + sum(min(2 ** (j - 1), n - 2 ** (j - 1)) for j in range(1, levels))
        assert counted == n


@given(
    SHAPES, SIZES, st.floats(0.1, 5.0), st.sampled_from(["min_p", "top_h", "mirostat_mu_nats"]), st.floats(0.01, 1.0)
)
def test_truncation_keeps_what_the_exact_law_keeps(shape, n, temperature, law, value):
    value = value * 8 if law == "mirostat_mu_nats" else value
    z = expanded(shape, n)
    log_total, entropy, _ = moments(*shape, temperature, n)
    p = np.exp(z / temperature - log_total)
    if law == "min_p":
        exact = np.count_nonzero(p >= value * p[0] * (1 + 1e-12))
        loose = np.count_nonzero(p >= value * p[0] * (1 - 1e-12))
    elif law == "mirostat_mu_nats":
        exact, loose = np.count_nonzero(-np.log(p) <= value - 1e-9), np.count_nonzero(-np.log(p) <= value + 1e-9)
    else:
        running = np.cumsum(p)
        prefix = np.log(running) - np.cumsum(p * np.log(p)) / running
        exact = np.count_nonzero(prefix <= value * entropy - 1e-9)
        loose = np.count_nonzero(prefix <= value * entropy + 1e-9)
    numbers = {name: value if name == law else np.nan for name in ("min_p", "top_h", "mirostat_mu_nats")}
    kept = kept_outcomes(*shape, temperature, n, log_total, entropy, *numbers.values())
    assert max(exact, 1) <= kept <= max(loose, 1)
    assert prefix_weight(*shape, temperature, kept) == pytest.approx(np.exp(z[:kept] / temperature).sum(), rel=1e-12)


@given(SHAPES, st.sampled_from([2, 5, 25, 1000]), st.floats(0.1, 5.0), st.floats(1e-9, 1 - 1e-9))
def test_a_drawn_rank_is_the_inverse_of_the_distribution(shape, n, temperature, u):
    z = expanded(shape, n)
    weights = np.exp(z / temperature)
    total = weights.sum()
    rank, logit = draw_rank(*shape, temperature, n, total, n, u)
    cumulative = np.cumsum(weights) / total
    assert logit == pytest.approx(z[rank], abs=1e-12)
    assert cumulative[rank] >= u - 1e-9
    assert (cumulative[rank - 1] if rank else 0.0) <= u + 1e-9


def test_the_solved_temperature_meets_the_target_or_stands_at_the_clamp():
    shape, n = np.array([1.0, 0.8, 0.02]), 49_152
    for target in (0.5, 2.0, 5.0, 9.0):
        t = solve_temperature(*shape, n, target, 1.0, 0.05, 50.0)
        assert moments(*shape, t, n)[1] == pytest.approx(target, abs=1e-5)
    assert solve_temperature(*shape, n, 20.0, 1.0, 0.1, 2.0) == pytest.approx(2.0)
    assert solve_temperature(*shape, n, 0.0, 1.0, 0.1, 2.0) == pytest.approx(0.1)


def test_the_twin_that_live_decoding_uses_agrees():
    rng = np.random.default_rng(0)
    shapes = np.column_stack([rng.uniform(0, 6, 40), rng.uniform(0, 3, 40), rng.uniform(0, 0.3, 40)])
    n, temperature = 1000, rng.uniform(0.3, 2.0, 40)
    z = np.array([expanded(s, n) for s in shapes])
    stats = logit_stats(z, temperature, seed=1, request_id=np.arange(40), token_index=np.zeros(40, int))
    ours = np.array([moments(*s, t, n) for s, t in zip(shapes, temperature, strict=True)])
    np.testing.assert_allclose(ours[:, 1], stats.entropy_nats, atol=1e-5)
    np.testing.assert_allclose(ours[:, 2], stats.varentropy_nats2, atol=1e-4)
    np.testing.assert_allclose(raw_moments(shapes, n)[:, 1], stats.entropy_raw_nats, atol=1e-5)


@given(st.lists(st.tuples(SHAPES, st.floats(0.05, 20.0)), min_size=1, max_size=9), SIZES, st.integers(0, 2**31))
def test_many_shapes_at_once_are_those_one_by_one(cases, n, seed):
    scaled = np.array([shape / t for shape, t in cases]).T.copy()
    sizes = level_counts(n)
    cumulative, out = np.empty((sizes.size, len(cases))), np.empty((3, len(cases)))
    tempered(scaled, sizes, cumulative, out)
    u = np.random.default_rng(seed).random(len(cases))
    rank, level = np.empty(len(cases), np.int64), np.empty(len(cases))
    draw_levels(cumulative, sizes, u, rank, level)
    for i, (shape, t) in enumerate(cases):
        np.testing.assert_allclose(out[:, i], moments(*shape, t, n), rtol=1e-9, atol=1e-11)
        z = expanded(shape, n) / t
        share = np.cumsum(np.exp(z)) / np.exp(z).sum()
        # The rank's own share of the mass contains u, up to rounding.
        assert share[rank[i]] >= u[i] - 1e-12
        assert rank[i] == 0 or share[rank[i] - 1] <= u[i] + 1e-12
        assert level[i] == (np.floor(np.log2(rank[i])) + 1 if rank[i] else 0)
