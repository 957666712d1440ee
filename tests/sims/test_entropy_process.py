"""The entropy process: its stated laws, its exactness given the shape, and that draws depend on nothing else."""

import numpy as np
import pytest
from scipy.stats import kstest, norm

from sims.entropy_process import CLOUD, EntropyProcess, KindLaw, law_table
from sims.latent_shapes import moments
from sims.token_draws import REGIME, draw_tokens, new_draws, new_state
from workbench.errors import InputError

N = 1000
DRAWN = (
    "token_id", "ended", "entropy_raw_nats", "varentropy_raw_nats2", "entropy_nats", "varentropy_nats2",
    "surprisal_nats", "surprisal_raw_nats", "temperature_applied", "shape_index",
)  # fmt: skip
RNG = np.random.default_rng(0)
SHAPES = np.column_stack([RNG.gamma(1.0, 2.0, 400), RNG.uniform(0.6, 2.0, 400), RNG.uniform(0.0, 0.1, 400)])


def law(**changes):
    return KindLaw(**{"name": "any", "shapes": SHAPES, "temperature_feedback": 0.0, "pruning_feedback": 0.0, **changes})


def run(
    the_law, *, requests=200, tokens=50, seed=3, temperature=1.0, slots=None, target=np.nan, dropped=0.0, order=None,
    min_p=np.nan,
):  # fmt: skip
    """[tokens, requests] of every output, all requests decoding together."""
    table = law_table((the_law,), N)
    slots = np.arange(requests) if slots is None else slots
    order = np.arange(requests) if order is None else order
    size = slots.max() + 1
    state = new_state(size)
    off = np.full(size, np.nan)
    out = []
    for k in range(tokens):
        draws = new_draws(requests)
        draw_tokens(
            table, N, state, seed, slots[order], np.arange(requests)[order], np.full(requests, k),
            np.zeros(requests, np.int64), np.ones(requests, bool), np.full(requests, dropped),
            np.full(size, temperature), np.full(size, target), np.full(size, min_p), off, off, 0.0, np.inf, draws,
        )  # fmt: skip
        back = np.argsort(order)
        out.append({name: getattr(draws, name)[back] for name in DRAWN})
    return {name: np.array([o[name] for o in out]) for name in out[0]}


def levels(run_result):
    """Normal scores of the shapes picked."""
    return norm.ppf((run_result["shape_index"] + 0.5) / CLOUD)


def test_the_marginal_is_the_cloud_and_the_autocorrelation_as_stated():
    y = levels(run(law(autocorrelation=0.6, request_share=0.2), requests=4000, tokens=12))
    assert kstest(y[0], "norm").pvalue > 0.01
    assert kstest(y[11], "norm").pvalue > 0.01
    for lag in (1, 2, 5):
        expected = 0.8 * 0.6**lag + 0.2
        assert np.corrcoef(y[5], y[5 + lag])[0, 1] == pytest.approx(expected, abs=0.05)


def test_given_the_shape_everything_is_exact():
    result = run(law(), temperature=0.7, requests=60, tokens=5)
    table = law_table((law(),), N)
    for k, r in np.ndindex(5, 60):
        shape = table.cloud[0, result["shape_index"][k, r], :3]
        _, h, v = moments(*shape, 0.7, N)
        assert result["entropy_nats"][k, r] == pytest.approx(h, abs=1e-12)
        assert result["varentropy_nats2"][k, r] == pytest.approx(v, abs=1e-12)
        assert result["entropy_raw_nats"][k, r] == pytest.approx(moments(*shape, 1.0, N)[1], abs=1e-12)
    assert np.all(result["entropy_nats"] <= result["entropy_raw_nats"])


def test_surprisal_has_entropy_as_its_mean_and_varentropy_as_its_variance():
    result = run(law(), requests=2000, tokens=20)
    gap = (result["surprisal_nats"] - result["entropy_nats"]).ravel()
    assert abs(gap.mean()) < 4 * gap.std() / np.sqrt(gap.size)
    assert gap.var() == pytest.approx(result["varentropy_nats2"].mean(), rel=0.03)
    np.testing.assert_allclose(result["surprisal_raw_nats"], result["surprisal_nats"])


def test_draws_depend_on_seed_request_and_token_only():
    one = run(law(autocorrelation=0.5, request_share=0.3), requests=16, tokens=6)
    slots = np.random.default_rng(1).permutation(40)[:16]
    order = np.random.default_rng(2).permutation(16)
    other = run(law(autocorrelation=0.5, request_share=0.3), requests=16, tokens=6, slots=slots, order=order)
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    alone = run(law(autocorrelation=0.5, request_share=0.3), requests=3, tokens=6)
    np.testing.assert_array_equal(one["token_id"][:, :3], alone["token_id"])
    assert np.any(run(law(), requests=16, tokens=6, seed=4)["token_id"] != one["token_id"])


def test_greedy_has_no_entropy_and_takes_the_first_rank():
    result = run(law(), temperature=0.0, requests=20, tokens=3)
    assert np.all(result["token_id"] == 0)
    for name in ("entropy_nats", "varentropy_nats2", "surprisal_nats"):
        assert np.all(result[name] == 0.0)
    assert np.all(result["entropy_raw_nats"] > 0.0)
    assert np.all(result["surprisal_raw_nats"] > 0.0)


def test_a_target_entropy_is_solved_for_on_each_token():
    result = run(law(), target=1.5, requests=50, tokens=4)
    np.testing.assert_allclose(result["entropy_nats"], 1.5, atol=2e-5)


def test_min_p_cuts_the_tail_but_not_the_entropy():
    free, cut = (run(law(), requests=500, tokens=4, min_p=m) for m in (np.nan, 0.2))
    np.testing.assert_array_equal(free["entropy_nats"], cut["entropy_nats"])
    assert np.all(cut["surprisal_nats"] < -np.log(0.2) + np.log(N))
    assert cut["surprisal_nats"].max() < free["surprisal_nats"].max()


@pytest.mark.parametrize(("regime", "sign"), [(1, -1), (2, 1)])
def test_trends_approach_their_amplitude(regime, sign):
    weights = tuple(float(i == regime) for i in range(4))
    y = levels(run(law(regime_weights=weights, amplitude=0.8, settle_tokens=5.0), requests=3000, tokens=40))
    assert y[0].mean() == pytest.approx(sign * 0.8 / 5, abs=0.08)
    assert y[39].mean() == pytest.approx(sign * 0.8, abs=0.08)


def test_an_oscillation_has_its_period():
    made = law(
        regime_weights=(0.0, 0.0, 0.0, 1.0), amplitude=2.0, period_tokens=16.0, dwell_tokens=np.inf, autocorrelation=0.0
    )
    y = levels(run(made, requests=50, tokens=256))
    power = (np.abs(np.fft.rfft(y - y.mean(axis=0), axis=0)) ** 2).mean(axis=1)
    assert np.argmax(power) == 16


def test_regimes_dwell_as_long_as_stated():
    made = law(regime_weights=(1.0, 1.0, 1.0, 1.0), dwell_tokens=20.0)
    table, state = law_table((made,), N), new_state(500)
    seen = []
    off = np.full(500, np.nan)
    rows = np.arange(500)
    for k in range(100):
        draw_tokens(
            table, N, state, 5, rows, rows, np.full(500, k), np.zeros(500, np.int64), np.ones(500, bool), np.zeros(500),
            np.ones(500), off, off, off, off, 0.0, np.inf, new_draws(500),
        )  # fmt: skip
        seen.append(state.counts[REGIME].copy())
    # A new regime is the old one again in a quarter of the switches.
    changes = np.mean(np.diff(np.array(seen), axis=0) != 0)
    assert changes == pytest.approx(0.75 / 20.0, rel=0.06)


def test_hotter_text_and_pruned_text_move_the_next_entropy():
    cool, warm = (run(law(temperature_feedback=0.6), temperature=t, requests=1500, tokens=6) for t in (0.5, 1.0))
    assert levels(warm)[1:].mean() - levels(cool)[1:].mean() == pytest.approx(0.3, abs=0.02)
    kept, pruned = (run(law(pruning_feedback=2.0), dropped=d, requests=1500, tokens=6) for d in (0.0, 0.1))
    assert levels(pruned).mean() - levels(kept).mean() == pytest.approx(0.2, abs=0.02)


def test_the_end_hazard_follows_entropy():
    result = run(law(end_intercept=-2.0, end_slope=-1.0), requests=3000, tokens=10)
    expected = 1.0 / (1.0 + np.exp(2.0 + result["entropy_raw_nats"]))
    assert result["ended"].mean() == pytest.approx(expected.mean(), rel=0.08)
    high = result["entropy_raw_nats"] > np.median(result["entropy_raw_nats"])
    assert result["ended"][~high].mean() > result["ended"][high].mean()


def test_kinds_fall_back_to_any_and_unknown_ones_are_refused():
    process = EntropyProcess(vocab=N, laws=(law(), law(name="code", shapes=SHAPES[:5])))
    table = process.table_for(("code", "poem"))
    assert table.cloud.shape == (2, CLOUD, 6)
    assert len(np.unique(table.cloud[0], axis=0)) == 5
    with pytest.raises(InputError, match="poem"):
        EntropyProcess(vocab=N, laws=(law(name="code"),)).table_for(("poem",))


@pytest.mark.parametrize(
    "change",
    [
        {"shapes": np.zeros((0, 3))},
        {"shapes": -np.ones((2, 3))},
        {"autocorrelation": 1.0},
        {"request_share": 1.5},
        {"dwell_tokens": 0.5},
        {"regime_weights": (0.0, 0.0, 0.0, 0.0)},
        {"amplitude": np.nan},
    ],
)
def test_impossible_laws_are_refused(change):
    with pytest.raises(InputError, match="KindLaw"):
        law(**change)
