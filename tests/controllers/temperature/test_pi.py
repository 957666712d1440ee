"""PI loop against the closed form, its refusals, wind-up, delay."""

import numpy as np
import pytest
from scipy.optimize import brentq

from controllers.temperature.anchored import AnchoredI
from controllers.temperature.pi import PITemperature
from controllers.temperature.pid import PIDTemperature
from controllers.temperature.positional import PositionalPI
from tests.controllers.temperature.closed_loop import close, observation, random_logits
from workbench.errors import InputError
from workbench.signals import entropy_and_varentropy, max_varentropy

N = 200
LIMIT = 2.0 / max_varentropy(N)


def solve(logits: np.ndarray, target: float) -> float:
    return brentq(lambda t: float(entropy_and_varentropy(logits, t)[0]) - target, 1e-3, 100.0, xtol=1e-14)


def test_trajectory_is_the_law_written_out() -> None:
    z = random_logits(1, N)
    k_i, k_p, target = 0.3 * LIMIT, 0.1 * LIMIT, 2.0
    trace = close(PITemperature(target_entropy_nats=target, vocab_size=N, k_i=k_i, k_p=k_p), z, 40)
    u, before = 0.0, None
    for token in range(40):
        assert trace.temperature[token, 0] == pytest.approx(np.exp(u), rel=1e-12)
        p = np.exp(z[0] / np.exp(u))
        p /= p.sum()
        h = float(-(p * np.log(p)).sum())
        u += k_i * (target - h) + (k_p * (before - h) if before is not None else 0.0)
        u, before = float(np.clip(u, np.log(0.1), np.log(2.0))), h


@pytest.mark.parametrize("law", [PITemperature, PositionalPI, PIDTemperature, AnchoredI])
@pytest.mark.parametrize("delay_steps", [0, 1, 2])
def test_settles_on_the_solution(law: type, delay_steps: int) -> None:
    z = random_logits(5, N, seed=3)
    target = 2.0
    trace = close(
        law(target_entropy_nats=target, vocab_size=N, delay_steps=delay_steps), z, 400, delay_steps=delay_steps
    )
    exact = [solve(row, target) for row in z]
    np.testing.assert_allclose(trace.temperature[-1], exact, rtol=1e-6)


def test_refusals_name_the_interval() -> None:
    refused = (
        r"PITemperature.k_i must be in \(0, 2/V_max\) = \(0, 0.0663\) for vocab 49152 and delay 0, got 0.2; "
        r"lower it or pass unsafe=True"
    )
    with pytest.raises(InputError, match=refused):
        PITemperature(target_entropy_nats=2.0, vocab_size=49152, k_i=0.2)
    with pytest.raises(InputError, match=r"\(0, 2/\(3 V_max\)\) = \(0, 0.0221\) for vocab 49152 and delay 1"):
        PITemperature(target_entropy_nats=2.0, vocab_size=49152, k_i=0.03, delay_steps=1)
    with pytest.raises(InputError, match="leave no room"):
        PITemperature(target_entropy_nats=2.0, vocab_size=49152, k_p=0.034)
    with pytest.raises(InputError, match=r"k_i must be in .* got -0.01"):
        PITemperature(target_entropy_nats=2.0, vocab_size=49152, k_i=-0.01)
    assert PITemperature(target_entropy_nats=2.0, vocab_size=49152, k_i=0.2, unsafe=True).gain == 0.2
    assert AnchoredI(target_entropy_nats=2.0, vocab_size=49152, k_i=0.06, delay_steps=2).gain == 0.06


@pytest.mark.parametrize("value", [-1.0, 20.0, np.nan, np.inf])
def test_targets_no_distribution_has_are_refused(value: float) -> None:
    with pytest.raises(InputError, match=r"target_entropy_nats must be in \[0, ln n\] = \[0, 10.8\] for vocab 49152"):
        PITemperature(target_entropy_nats=value, vocab_size=49152)
    with pytest.raises(InputError, match="target_entropy_nats"):
        PITemperature(target_entropy_nats=2.0, vocab_size=49152, target_steps=((128, value),))


@pytest.mark.parametrize(
    "bad",
    [
        {"temperature_min": 0.0},
        {"temperature_start": 3.0},
        {"temperature_max": np.inf},
        {"vocab_size": 1},
        {"delay_steps": -1},
        {"k_p": np.nan},
        {"target_steps": ((5, 1.0), (5, 2.0))},
        {"target_steps": ((0, 1.0),)},
        {"target_steps": "abc"},
    ],
)
def test_other_refusals_are_one_line(bad: dict) -> None:
    with pytest.raises(InputError) as caught:
        PITemperature(**({"target_entropy_nats": 2.0, "vocab_size": 100} | bad))
    assert "\n" not in str(caught.value)
    assert "PITemperature" in str(caught.value)


@pytest.mark.parametrize("law", [PITemperature, PositionalPI, AnchoredI])
def test_target_out_of_reach_then_in_reach_recovers_like_a_fresh_start(law: type) -> None:
    """H* = 20 nats for 500 tokens, then 2: from the clamp it takes what a start at the clamp takes."""
    z = random_logits(3, N, seed=4)
    hung = close(
        law(target_entropy_nats=20.0, target_steps=((500, 2.0),), vocab_size=N, unsafe=True), z, 700
    ).temperature
    assert np.all(hung[300:500] == 2.0)
    fresh = close(law(target_entropy_nats=2.0, vocab_size=N, temperature_start=2.0), z, 200).temperature
    # The measurement of token 499 decides token 500, where the target is already 2: one token ahead of a fresh start.
    np.testing.assert_allclose(hung[500:700], fresh[1:201] if len(fresh) > 200 else np.vstack([fresh[1:], fresh[-1:]]),
                               rtol=1e-9)  # fmt: skip


def test_unreachable_target_is_counted() -> None:
    law = PITemperature(target_entropy_nats=5.2, vocab_size=N)
    trace = close(law, random_logits(1, N), 300)
    assert trace.temperature[-1, 0] == law.temperature_max
    assert trace.states[-1].saturated_tokens[0] > 100
    low = close(PITemperature(target_entropy_nats=0.0, vocab_size=N), random_logits(1, N, scale=0.5), 300)
    assert low.temperature[-1, 0] == pytest.approx(0.1)


@pytest.mark.parametrize("law", [PITemperature, PositionalPI, AnchoredI])
@pytest.mark.parametrize("delay_steps", [0, 1, 2])
def test_plant_that_applies_another_temperature_does_not_wind_the_law_up(law: type, delay_steps: int) -> None:
    """The plant allows T <= 0.5 for 300 tokens although H* needs more; then it follows again."""
    z = random_logits(2, N, seed=5)
    knobs = {"target_entropy_nats": 3.0, "vocab_size": N, "delay_steps": delay_steps}
    trace = close(law(**knobs), z, 600, delay_steps=delay_steps, limit=lambda t: (0.0, 0.5 if t < 300 else np.inf))
    gain = law(**knobs).gain
    # While held, the wish stays within the few increments the law has not heard back about.
    wish = np.log(trace.asked[100:300] / 0.5)
    assert np.all(wish <= (delay_steps + 1) * gain * 3.0 + 1e-9)
    fresh = close(law(**knobs, temperature_start=0.5), z, 600, delay_steps=delay_steps).temperature
    late = np.abs(np.log(trace.temperature[300:600]) - np.log(trace.temperature[-1])) > 0.01
    early = np.abs(np.log(fresh) - np.log(fresh[-1])) > 0.01
    assert late.sum() <= early.sum() + delay_steps + 1


def test_missing_measurement_holds_the_temperature() -> None:
    z = random_logits(2, N, seed=6)
    law = PITemperature(target_entropy_nats=2.0, vocab_size=N, k_p=0.1 * LIMIT)
    gap = close(law, z, 60, missing=lambda token: 20 <= token < 30).temperature
    assert np.all(gap[21:31] == gap[20])
    assert np.all(gap[31] != gap[20])
    never = close(law, z, 20, missing=lambda token: True).temperature
    assert np.all(never == 1.0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e308, -5.0])
def test_absurd_measurements_leave_a_finite_temperature(value: float) -> None:
    law = PIDTemperature(target_entropy_nats=2.0, vocab_size=N)
    state, _ = law.step(law.init(1), observation(1, 0))
    for token in range(1, 6):
        told = {"measured": True, "measured_step": token - 1, "entropy_nats": value, "temperature_applied": 1.0}
        state, action = law.step(state, observation(1, token, **told))
        assert law.temperature_min <= action.temperature[0] <= law.temperature_max


def test_delay_two_frozen_and_switching_gain() -> None:
    """k_i V = 0.58 and 0.60 at delay 2: both settle with V frozen; with V switching 0,0,a,a,a,a the second diverges."""
    for product, grows in ((0.58, False), (0.60, True)):
        for pattern in ([1.0], [0.0, 0.0, 1.0, 1.0, 1.0, 1.0]):
            u = [1.0, 1.0, 1.0]
            for k in range(6000):
                u.append(u[-1] - product * pattern[k % len(pattern)] * u[-3])
            size = max(abs(x) for x in u[-12:])
            if len(pattern) == 1 or not grows:
                assert size < 1e-3
            else:
                assert size > 1.0
    with pytest.raises(InputError):
        PITemperature(target_entropy_nats=2.0, vocab_size=N, k_i=0.58 / max_varentropy(N), delay_steps=2)


def test_static_gain_of_the_closed_loop_is_one() -> None:
    """A small step of H* ends in an equal step of H: integral action in discrete time."""
    z = random_logits(4, N, seed=8)
    law = PITemperature(target_entropy_nats=2.0, target_steps=((300, 2.01),), vocab_size=N)
    trace = close(law, z, 600)
    np.testing.assert_allclose(trace.entropy_nats[-1] - trace.entropy_nats[299], 0.01, rtol=1e-4)


def test_late_measurements_cost_the_anchored_law_no_gain() -> None:
    """At delay 2 and 95 % of 2/V_max on the logits of largest varentropy: anchored settles, added-on cycles."""
    from tests.controllers.temperature.closed_loop import spike_and_uniform

    x = brentq(lambda y: np.tanh(y / 2) * (np.log(N - 1.0) + y) - 2.0, 1e-6, 4.0)
    z = spike_and_uniform(N, 1.0 / (1.0 + np.exp(-x)))
    target = float(entropy_and_varentropy(z)[0][0])
    knobs = {
        "target_entropy_nats": target,
        "vocab_size": N,
        "k_i": 0.95 * LIMIT,
        "delay_steps": 2,
        "temperature_start": 1.05,
    }
    anchored = close(AnchoredI(**knobs), z, 600, delay_steps=2).temperature[-30:, 0]
    added = close(PITemperature(**knobs, unsafe=True), z, 600, delay_steps=2).temperature[-30:, 0]
    assert np.all(np.abs(anchored - 1.0) < 1e-6)
    assert added.max() / added.min() > 1.5
