"""`logit_stats` of every CPU backend and of the NumPy twin against float64 and against the laws done by enumeration."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from kernels import reference, reference_numpy
from kernels.laws import KEEP_ALL, float32_at_most

KEY = {"seed": 17, "stream": 3}


def run(ops, logits, temperature=1.0, **laws):
    z = torch.as_tensor(logits)
    rows = z.shape[0]
    t = torch.as_tensor(temperature, dtype=torch.float32).expand(rows)
    options = {"request_id": torch.arange(rows), "token_index": torch.zeros(rows, dtype=torch.int64), **KEY, **laws}
    return ops.logit_stats(z, t, **options)


def exact(z, temperature=1.0):
    """(lse, H, V) in float64 with 80-bit sums, by the definition."""
    y = np.asarray(z, np.longdouble) / temperature
    y = y - y.max()
    p = np.exp(y)
    p /= p.sum()
    log_p = np.where(p > 0, np.log(np.where(p > 0, p, 1)), 0)
    h = -(p * log_p).sum()
    return float(h), float((p * (log_p + h) ** 2).sum())


def test_zero_probability_extremes_and_bad_rows(ops):
    inf, nan = math.inf, math.nan
    z = torch.tensor(
        [
            [1, 1, 1, -inf],
            [2, -inf, -inf, -inf],
            [60000, -60000, -inf, -inf],
            [-inf] * 4,
            [nan, 1, 1, 1],
            [inf, 1, 1, 1],
            [1.5, 1, 0.5, 0],
        ]
    )
    for values in (z, z.half()):
        found = run(ops, values, torch.tensor([1.0, 1, 1, 1, 1, 1, 0.5]))
        h, v = found.entropy_nats.tolist(), found.varentropy_nats2.tolist()
        assert h[0] == pytest.approx(1.098612, abs=1e-6)
        assert abs(v[0]) < 1e-6
        assert h[1:3] == [0.0, 0.0]
        assert v[1:3] == [0.0, 0.0]
        assert all(math.copysign(1.0, x) == 1.0 for x in h[1:3] + v[1:3])  # not -0.0
        assert found.token_id[3:6].tolist() == [-1, -1, -1]
        for name in ("log_sum_exp", "entropy_raw_nats", "entropy_nats", "varentropy_nats2", "surprisal_nats"):
            assert getattr(found, name)[3:6].isnan().all(), name
        assert found.entropy_raw_nats[6] == pytest.approx(1.24505, abs=1e-5)
        assert h[6] == pytest.approx(0.94754, abs=1e-5)
        alone = run(ops, values[6:], 0.5, request_id=torch.tensor([6]))
        assert alone.token_id[0] == found.token_id[6]  # untouched by its neighbours
        assert alone.entropy_nats[0] == found.entropy_nats[6]


@pytest.mark.parametrize("n", [1, 2, 25, 49_152, 49_153, 151_936, 248_320])
def test_float64_accuracy(ops, n):
    generator = np.random.default_rng(n)
    flat = np.full(n, -12.0) + 0.1 * generator.standard_normal(n)
    flat[n // 2] = 0.0  # one likely token over a flat tail: where E[y^2] - E[y]^2 is weakest
    z = np.stack([3.0 * generator.standard_normal(n), flat, generator.standard_normal(n) * 1e4]).astype(np.float32)
    for t in (0.3, 1.0, 2.0):
        found = run(ops, z, t)
        for row in range(3):
            h, v = exact(z[row].astype(np.float64), float(np.float32(t)))
            assert abs(float(found.entropy_nats[row]) - h) <= 1e-4
            assert abs(float(found.varentropy_nats2[row]) - v) <= 1e-3 + 1e-4 * v
            assert 0.0 <= float(found.entropy_nats[row]) <= math.log(n)
            assert float(found.surprisal_nats[row]) >= 0.0  # ln p <= 0
            assert float(found.surprisal_raw_nats[row]) >= 0.0


@given(st.lists(st.floats(-1e4, 1e4, width=32) | st.just(-math.inf), min_size=1, max_size=40), st.floats(0.05, 20.0))
def test_any_row_is_within_the_bound(z, t):
    for ops_run in (reference.logit_stats, reference_numpy.logit_stats):
        logits = torch.tensor([z]) if ops_run is reference.logit_stats else np.array([z])
        temperature = torch.tensor([t]) if ops_run is reference.logit_stats else np.array([t])
        found = ops_run(logits, temperature, request_id=[0], token_index=[0], **KEY)
        if max(z) == -math.inf:
            assert math.isnan(float(found.entropy_nats[0]))
            continue
        h, v = exact(np.array(z), float(np.float32(t)))
        assert abs(float(found.entropy_nats[0]) - h) <= 1e-4 + 1e-6 * abs(h)
        assert abs(float(found.varentropy_nats2[0]) - v) <= 1e-3 + 1e-4 * v
        assert z[int(found.token_id[0])] > -math.inf  # probability zero is never drawn


def test_padding_lanes_never_leak(ops):
    z = torch.full((1, 49_152), -5.0)
    z[0, 7] = -4.0
    assert run(ops, z, 0.0).token_id.item() == 7
    assert run(ops, z).entropy_nats.item() == pytest.approx(10.80265, abs=1e-4)
    assert run(ops, z.expand(64, -1).contiguous()).token_id.max() < 49_152


def test_temperature_extremes(ops):
    z = torch.tensor([[10, 9.999, 0]]).half()
    greedy = run(ops, z, 0.0)
    assert (greedy.token_id.item(), greedy.entropy_nats.item(), greedy.varentropy_nats2.item()) == (0, 0.0, 0.0)
    for t in (1e-30, 1e-4, 3e-4, 1e-45):
        found = run(ops, z, t)
        assert found.entropy_nats.item() == pytest.approx(math.log(2.0), abs=1e-6)  # float16 makes them a tie
        assert found.token_id.item() in (0, 1)
    assert run(ops, z, 1e6).entropy_nats.item() == pytest.approx(1.09861, abs=1e-5)
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="temperature must be in"):
            run(ops, z, bad)


def test_mixed_greedy_and_sampled_rows(ops):
    z = torch.randn(6, 1000)
    t = torch.tensor([0.0, 1.0, 0.0, 0.7, 2.0, 0.0])
    found = run(ops, z, t)
    assert found.token_id[t == 0].tolist() == z.argmax(dim=1)[t == 0].tolist()
    for row in range(6):
        alone = run(ops, z[row : row + 1], t[row : row + 1], request_id=torch.tensor([row]))
        assert alone.token_id.item() == found.token_id[row].item()


@pytest.mark.parametrize("sampler", ["gumbel", "inverse_cdf"])
def test_samples_follow_the_distribution(ops, sampler):
    n, rows = 12, 4000
    z = torch.linspace(-3, 2, n)
    p = torch.softmax(z.double() / 0.8, dim=0).numpy()
    tokens = np.concatenate(
        [
            run(
                ops, z.expand(rows, n).contiguous(), 0.8, token_index=torch.full((rows,), step), sampler=sampler
            ).token_id
            for step in range(5)
        ]
    )
    counts = np.bincount(tokens, minlength=n)
    assert stats.chisquare(counts, p * tokens.size).pvalue > 1e-4


def test_one_seed_gives_distinct_draws(ops):
    found = run(ops, torch.zeros(64, 1000))
    distinct = len(set(found.token_id.tolist()))
    assert 56 <= distinct <= 64  # expectation 62.03; one shared noise vector would give 1
    assert run(ops, torch.zeros(64, 1000)).token_id.tolist() == found.token_id.tolist()


def test_samples_are_the_same_on_every_backend(ops):
    z = torch.randn(32, 3001) * 2
    for sampler in ("gumbel", "inverse_cdf"):
        expected = reference_numpy.logit_stats(
            z.double().numpy(), np.ones(32), request_id=np.arange(32), token_index=np.zeros(32), sampler=sampler, **KEY
        )
        assert run(ops, z, sampler=sampler).token_id.tolist() == expected.token_id.tolist()


def kept_by_enumeration(z, t, min_p=None, top_h=None, mu=None):
    """Tokens in falling probability that pass every law, by the words of `laws.LogitStats`."""
    p = np.exp((z - z.max()) / t)
    p /= p.sum()
    order = np.argsort(-p, kind="stable")
    h = -(p * np.log(p)).sum()
    kept = set()
    for count in range(1, len(z) + 1):
        q = p[order[:count]] / p[order[:count]].sum()
        token = order[count - 1]
        ok = (
            (min_p is None or p[token] >= min_p * p.max())
            and (mu is None or -np.log(p[token]) <= mu)
            and (top_h is None or -(q * np.log(q)).sum() <= top_h * h)
        )
        if not ok and count > 1:
            break
        kept.add(int(token))
    return kept


@pytest.mark.parametrize(
    "laws", [{"min_p": 0.2}, {"top_h": 0.5}, {"mu": 1.5}, {"mu": 0.01}, {"min_p": 0.05, "top_h": 0.8, "mu": 2.5}]
)
@pytest.mark.parametrize("sampler", ["gumbel", "inverse_cdf"])
def test_truncation_keeps_what_enumeration_keeps(ops, laws, sampler):
    rows = 400
    z = torch.tensor([2.0, 1.5, 1.5, 1.0, 0.0, -1.0, -2.0, 1.9])
    kept = kept_by_enumeration(z.double().numpy(), 0.9, **laws)
    given_laws = {"mirostat_mu_nats" if k == "mu" else k: torch.full((rows,), v) for k, v in laws.items()}
    found = run(ops, z.expand(rows, 8).contiguous(), 0.9, sampler=sampler, **given_laws)
    assert set(found.token_id.tolist()) == kept
    plain = run(ops, z.expand(rows, 8).contiguous(), 0.9)
    assert torch.equal(found.entropy_nats, plain.entropy_nats)  # measured before truncation


def test_temperature_solves_for_the_target(ops):
    generator = np.random.default_rng(5)
    n = 2000
    spike = np.zeros(n)
    spike[0] = 15.0  # H jumps with u: plain Newton cycles clamp to clamp here
    z = torch.tensor(
        np.stack([3 * generator.standard_normal(n), spike, generator.standard_normal(n), spike]), dtype=torch.float32
    )
    target = torch.tensor([2.0, 3.0, math.nan, 20.0])
    found = run(ops, z, 0.9, target_entropy_nats=target, temperature_min=0.05, temperature_max=8.0)
    assert (found.entropy_nats[:2] - target[:2]).abs().max() < 1e-4
    assert found.temperature_applied[2] == pytest.approx(0.9)
    assert found.temperature_applied[3] == pytest.approx(8.0)  # out of reach: the nearer clamp
    for row in range(2):
        assert exact(z[row].double().numpy(), float(found.temperature_applied[row]))[0] == pytest.approx(
            target[row].item(), abs=1e-4
        )
    clamped = run(ops, z, torch.tensor([0.01, 0.5, 9.0, 0.0]), temperature_min=0.05, temperature_max=8.0)
    assert clamped.temperature_applied.tolist() == pytest.approx([0.05, 0.5, 8.0, 0.05])


def test_numbers_out_of_range_are_refused(ops):
    z = torch.zeros(2, 4)
    for laws, message in (
        ({"min_p": torch.tensor([0.5, 1.5])}, "min_p must be in"),
        ({"top_h": torch.tensor([0.0, 0.5])}, "top_h must be in"),
        ({"target_entropy_nats": torch.tensor([-1.0, 0.5])}, "target_entropy_nats must be"),
        ({"temperature_min": 2.0, "temperature_max": 1.0}, "temperature_min"),
        ({"sampler": "top-p"}, "sampler must be one of"),
        ({"request_id": torch.arange(3)}, "request_id must have shape"),
    ):
        with pytest.raises(ValueError, match=message):
            run(ops, z, **laws)
    with pytest.raises(ValueError, match="logits must be"):
        run(ops, torch.zeros(4)[None].long())


def test_entropy_never_exceeds_ln_n_in_float32():
    for n in range(1, 400):
        assert float32_at_most(math.log(n)) <= math.log(n)
    assert KEEP_ALL == 0
