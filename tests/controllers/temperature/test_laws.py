"""The other temperature laws, each against its formula."""

import numpy as np
import pytest

from controllers.temperature.edt import EDT
from controllers.temperature.exact import ExactSolve
from controllers.temperature.explore import IntegralExplore
from controllers.temperature.fixed import Fixed
from controllers.temperature.gain_scheduled import GainScheduled
from controllers.temperature.matched_constant import MatchedConstant
from controllers.temperature.mirostat import Mirostat
from controllers.temperature.pi import PITemperature
from controllers.temperature.pid import PIDTemperature
from controllers.temperature.positional import PositionalPI
from tests.controllers.temperature.closed_loop import close, observation, random_logits
from workbench.errors import InputError
from workbench.signals import entropy_and_varentropy, max_varentropy

N = 200


def told(**values: object) -> dict:
    return {"measured": True, "temperature_applied": 1.0} | values


def test_mirostat_counts_in_nats() -> None:
    """tau = 3, eta = 0.1, mu = 6, surprisal 1.0 three times: 6.2, 6.4, 6.6 (bits would give 6.156 first)."""
    law = Mirostat(target_surprisal_nats=3.0, rate=0.1, mu_start_nats=6.0)
    state, action = law.step(law.init(1), observation(1, 0))
    assert action.mirostat_mu_nats[0] == 6.0
    mus = []
    for token in range(1, 4):
        state, action = law.step(state, observation(1, token, **told(surprisal_nats=1.0)))
        mus.append(float(action.mirostat_mu_nats[0]))
    assert mus == pytest.approx([6.2, 6.4, 6.6], abs=1e-12)


def test_mirostat_does_not_learn_from_tokens_nobody_knows() -> None:
    """The list [5, 17, -1, -1]: a placeholder has no surprisal, so the last two leave mu alone."""
    law = Mirostat()
    state, _ = law.step(law.init(1), observation(1, 0))
    log_p = np.log([0.1, 0.9])
    mus = []
    for token, token_id in enumerate([0, 1, -1, -1], start=1):
        s = -log_p[token_id] if token_id >= 0 else np.nan
        state, action = law.step(state, observation(1, token, **told(measured=token_id >= 0, surprisal_nats=s)))
        mus.append(float(action.mirostat_mu_nats[0]))
    assert mus[1] == mus[2] == mus[3] != mus[0]


def test_mirostat_mean_surprisal_reaches_the_target() -> None:
    rng = np.random.default_rng(0)
    law = Mirostat(target_surprisal_nats=3.5, rate=0.1)
    state, action = law.step(law.init(1), observation(1, 0))
    seen = []
    for token in range(1, 3000):
        z = rng.normal(0.0, 2.0, 500)
        p = np.exp(z - z.max())
        p /= p.sum()
        keep = -np.log(p) <= max(float(action.mirostat_mu_nats[0]), -np.log(p.max()))
        drawn = rng.choice(500, p=np.where(keep, p, 0.0) / p[keep].sum())
        seen.append(-np.log(p[drawn]))
        state, action = law.step(state, observation(1, token, **told(surprisal_nats=seen[-1])))
    assert np.mean(seen[500:]) == pytest.approx(3.5, abs=0.02)


def test_mirostat_does_not_wind_up_on_certain_text() -> None:
    law = Mirostat(target_surprisal_nats=3.0, rate=0.5, mu_max_nats=12.0)
    state, _ = law.step(law.init(1), observation(1, 0))
    for token in range(1, 500):
        state, action = law.step(state, observation(1, token, **told(surprisal_nats=0.0)))
    assert action.mirostat_mu_nats[0] == 12.0


def test_edt_is_its_formula_and_stays_inside_the_clamp() -> None:
    law = EDT(temperature_base=1.2, base=0.8, theta_nats=0.7, temperature_min=0.2, temperature_max=1.9)
    state, action = law.step(law.init(5), observation(5, 0))
    assert np.all(action.temperature == 1.2)
    h = np.array([2.0, 0.0, 1e-9, 50.0, np.nan])
    _, action = law.step(state, observation(5, 1, **told(entropy_raw_nats=h)))
    expected = [1.2 * 0.8 ** (0.7 / 2.0), 0.2, 0.2, 1.2 * 0.8 ** (0.7 / 50.0), 1.2]
    np.testing.assert_allclose(action.temperature, expected, rtol=1e-12)
    flat = EDT(theta_nats=0.0)
    _, action = flat.step(flat.init(1), observation(1, 1, **told(entropy_raw_nats=0.0)))
    assert action.temperature[0] == 1.0


def test_edt_slope_when_fed_with_tempered_entropy() -> None:
    """d ln T / du = theta |ln N| V / H^2 through H(u)."""
    z = random_logits(1, N, seed=1)
    law = EDT(theta_nats=0.5)

    def log_t(u: float) -> float:
        h, _ = entropy_and_varentropy(z, np.exp(u))
        _, action = law.step(law.init(1), observation(1, 1, **told(entropy_raw_nats=h)))
        return float(np.log(action.temperature[0]))

    h, v = entropy_and_varentropy(z)
    slope = (log_t(1e-4) - log_t(-1e-4)) / 2e-4
    assert slope == pytest.approx(0.5 * abs(np.log(0.8)) * float(v[0]) / float(h[0]) ** 2, rel=1e-5)


def test_exact_asks_for_the_target_and_starts_from_what_was_applied() -> None:
    law = ExactSolve(target_entropy_nats=2.0, target_steps=((2, 1.0),), vocab_size=N)
    state, action = law.step(law.init(1), observation(1, 0))
    assert (action.temperature[0], action.target_entropy_nats[0]) == (1.0, 2.0)
    state, action = law.step(state, observation(1, 1, **told(temperature_applied=0.6)))
    assert (action.temperature[0], action.target_entropy_nats[0]) == (0.6, 2.0)
    state, action = law.step(state, observation(1, 2, **told(temperature_applied=np.nan)))
    assert (action.temperature[0], action.target_entropy_nats[0]) == (0.6, 1.0)


def test_gain_scheduled_settles_equally_fast_whatever_the_varentropy() -> None:
    tokens = []
    for scale in (1.0, 2.5, 4.0):
        z = random_logits(1, N, seed=2, scale=scale)
        h = float(entropy_and_varentropy(z)[0][0])
        law = GainScheduled(
            target_entropy_nats=0.97 * h, vocab_size=N, k=0.5, max_step=1.0, varentropy_floor_nats2=0.05
        )
        error = np.abs(close(law, z, 60).entropy_nats[:, 0] - 0.97 * h)
        tokens.append(int(np.argmax(error < 1e-3 * 0.03 * h)))
    assert max(tokens) - min(tokens) <= 3
    assert max(tokens) < 15


def test_gain_scheduled_cycles_on_a_spike_even_at_half_the_newton_step() -> None:
    """Local certificate only: with no limit on the step it runs from clamp to clamp once far away; the limit bounds it."""
    z = np.zeros((1, 49152))
    z[0, 0] = 14.0
    target = 3.0
    knobs = {
        "target_entropy_nats": target,
        "vocab_size": 49152,
        "k": 0.5,
        "varentropy_floor_nats2": 1e-3,
        "temperature_start": 2.0,
    }
    law = GainScheduled(max_step=100.0, **knobs)
    assert law.certificate_scope == "local"
    swing = close(law, z, 60).temperature[-20:, 0]
    assert (swing.min(), swing.max()) == pytest.approx((0.1, 2.0))
    limited = close(GainScheduled(max_step=0.05, **knobs), z, 400).temperature[-20:, 0]
    assert np.log(limited.max() / limited.min()) <= 0.1 + 1e-9
    pi = close(PITemperature(target_entropy_nats=target, vocab_size=49152, k_i=0.06), z, 800)
    assert abs(pi.entropy_nats[-1, 0] - target) < 0.05
    assert GainScheduled(target_entropy_nats=1.0, vocab_size=N, k=0.01).certificate_scope == "global"


def test_explore_expands_and_ends_at_a_clamp() -> None:
    z = random_logits(1, N, seed=3)
    h, v = entropy_and_varentropy(z)
    for sign, end in ((1.0, 0.1), (-1.0, 2.0)):
        law = IntegralExplore(target_entropy_nats=float(h[0]) + sign * 1e-3, vocab_size=N, k=0.02)
        trace = close(law, z, 800)
        assert trace.temperature[-1, 0] == pytest.approx(end)
        distance = np.log(trace.temperature[:6, 0]) - sign * 1e-3 / v[0]  # from the fixed point
        np.testing.assert_allclose(distance[1:] / distance[:-1], 1.0 + 0.02 * v[0], rtol=1e-3)
    assert (IntegralExplore.sign, PITemperature.sign) == ("explore", "stabilise")


def test_positional_equals_velocity_form_away_from_steps() -> None:
    """With k_p = 0 the two forms are one law; clamps included."""
    z = random_logits(5, N, seed=5)
    knobs = {"target_entropy_nats": 3.5, "vocab_size": N, "temperature_max": 1.1}
    np.testing.assert_allclose(
        close(PositionalPI(**knobs), z, 200).temperature, close(PITemperature(**knobs), z, 200).temperature, rtol=1e-9
    )


def test_positional_without_back_calculation_winds_up() -> None:
    z = random_logits(1, N, seed=6)
    knobs = {"target_entropy_nats": 5.2, "target_steps": ((300, 2.0),), "vocab_size": N, "unsafe": True}
    tokens = []
    for tracking_gain in (1.0, 0.0):
        trace = close(PositionalPI(tracking_gain=tracking_gain, **knobs), z, 900).temperature[300:, 0]
        tokens.append(int(np.argmax(trace < 1.9)))
    assert tokens[0] <= 3
    assert tokens[1] > 40
    with pytest.raises(InputError, match="tracking_gain"):
        PositionalPI(target_entropy_nats=2.0, vocab_size=N, tracking_gain=0.0)


def test_pid_is_the_written_out_law() -> None:
    z = random_logits(1, N, seed=7)
    law = PIDTemperature(target_entropy_nats=2.0, vocab_size=N, k_p=0.02, k_d=0.01)
    trace = close(law, z, 30)
    u, h1, h2 = 0.0, np.nan, np.nan
    for token in range(30):
        h = trace.entropy_nats[token, 0]
        assert trace.temperature[token, 0] == pytest.approx(np.exp(u), rel=1e-12)
        u += law.gain * (2.0 - h) + np.nan_to_num(0.02 * (h1 - h)) - np.nan_to_num(0.01 * (h - 2 * h1 + h2))
        h1, h2 = h, h1


def test_matched_constant_has_the_mean_entropy_asked_for() -> None:
    z = random_logits(20, N, seed=8)
    law = MatchedConstant.solved(lambda t: float(entropy_and_varentropy(z, t)[0].mean()), 3.0)
    assert entropy_and_varentropy(z, law.temperature)[0].mean() == pytest.approx(3.0, abs=1e-9)
    grid = [0.4, 0.7, 1.0, 1.4, 1.9]
    means = [float(entropy_and_varentropy(z, t)[0].mean()) for t in grid]
    assert MatchedConstant.interpolated(grid, means, 3.0).temperature == pytest.approx(law.temperature, rel=0.03)
    with pytest.raises(InputError, match="no constant temperature"):
        MatchedConstant.solved(lambda t: float(entropy_and_varentropy(z, t)[0].mean()), 5.29)
    with pytest.raises(InputError, match="run more temperatures"):
        MatchedConstant.interpolated(grid, means, 5.29)


def test_mean_entropy_is_no_evidence_for_an_integral_law() -> None:
    """Unclamped, mean(H) - H* = -(u_end - u_0) / (k_i n) identically, whatever the logits do."""
    rng = np.random.default_rng(9)
    rows = [rng.normal(0.0, rng.uniform(1.0, 2.0), (1, N)) for _ in range(300)]
    law = PITemperature(target_entropy_nats=4.3, vocab_size=N, temperature_min=0.01, temperature_max=50.0)
    trace = close(law, rows.__getitem__, 300)
    change = np.log(trace.temperature[299, 0]) - 0.0
    mean = trace.entropy_nats[:299, 0].mean()
    assert mean - 4.3 == pytest.approx(-change / (law.gain * 299), abs=1e-12)
    assert np.abs(trace.entropy_nats[:, 0] - 4.3).mean() > 0.2


@pytest.mark.parametrize("temperature", [0.0, 1e-30, 1e-4, 3e-4, 1e6])
def test_extreme_fixed_temperatures(temperature: float) -> None:
    """On [10, 9.999, 0] held in float16: T = 0 is greedy with H = V = 0, T = 1e6 gives ln 3."""
    z = np.array([[10.0, 9.999, 0.0]], dtype=np.float16)
    trace = close(Fixed(temperature=temperature), z, 3)
    assert np.all(trace.temperature == temperature)
    assert np.all(np.isfinite(trace.entropy_nats))
    if temperature == 0.0:
        assert np.all(trace.entropy_nats == 0.0)
    if temperature == 1e6:
        assert trace.entropy_nats[-1, 0] == pytest.approx(1.09861, abs=1e-5)


def test_loops_stop_at_the_lower_clamp() -> None:
    z = np.array([[10.0, 9.0, 0.0]])
    law = PITemperature(target_entropy_nats=0.0, vocab_size=3)
    trace = close(law, z, 400)
    assert trace.temperature[-1, 0] == pytest.approx(law.temperature_min)
    assert np.all(trace.temperature >= law.temperature_min)


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: Fixed(temperature=-1.0), r"\[0, inf\)"),
        (lambda: Fixed(temperature=np.nan), r"\[0, inf\)"),
        (lambda: EDT(base=1.0), "EDT.base"),
        (lambda: EDT(theta_nats=-1.0), "EDT.theta_nats"),
        (lambda: EDT(temperature_base=5.0), "EDT needs"),
        (lambda: Mirostat(target_surprisal_nats=0.0), "bits times"),
        (lambda: Mirostat(rate=2.0), "Mirostat.rate"),
        (lambda: Mirostat(mu_start_nats=99.0), "mu_start_nats"),
        (lambda: GainScheduled(target_entropy_nats=1.0, vocab_size=N, k=2.0), r"\(0, 2\) for delay 0"),
        (lambda: GainScheduled(target_entropy_nats=1.0, vocab_size=N, k=0.7, delay_steps=2), r"\(0, 0.618\)"),
        (lambda: GainScheduled(target_entropy_nats=1.0, vocab_size=N, max_step=0.0), "max_step"),
        (lambda: IntegralExplore(target_entropy_nats=1.0, vocab_size=N, k=-0.1), "use PITemperature"),
        (lambda: ExactSolve(target_entropy_nats=-1.0, vocab_size=N), r"\[0, ln n\]"),
        (lambda: ExactSolve(target_entropy_nats=1.0, vocab_size=1), "vocab_size"),
        (lambda: MatchedConstant(temperature=np.inf), "MatchedConstant"),
    ],
)
def test_refusals(build: object, match: str) -> None:
    with pytest.raises(InputError, match=match):
        build()


def test_bound_is_a_bound_and_tight() -> None:
    """Slope 1 - k V of the I law on the worst logits: inside [-1, 1] below 2/V_max, outside at 5 % above."""
    x = np.linspace(0.5, 4.0, 4001)
    n = 1000
    p = 1.0 / (1.0 + np.exp(-x))
    v = p * (1 - p) * (np.log(n - 1.0) + x) ** 2
    assert v.max() == pytest.approx(max_varentropy(n), rel=1e-6)
    assert abs(1.0 - 0.99 * 2.0 / max_varentropy(n) * v.max()) < 1.0
    assert abs(1.0 - 1.05 * 2.0 / max_varentropy(n) * v.max()) > 1.0
