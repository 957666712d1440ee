"""Rate limit, delay, saturation, truncation: the effect, its certificate, its refusals."""

import numpy as np
import pytest

from controllers.scheduling.fcfs import FCFS
from controllers.temperature.exact import ExactSolve
from controllers.temperature.fixed import Fixed
from controllers.temperature.min_p import MinP
from controllers.temperature.pi import PITemperature
from controllers.temperature.top_h import TopH
from controllers.wrappers import (
    Delayed,
    RateLimited,
    Saturated,
    certificate_effects,
    law_inside,
    wrapped_delay_steps,
)
from tests.controllers.temperature.closed_loop import close, observation, random_logits
from workbench.errors import InputError

N = 200


def pi(**knobs: object) -> PITemperature:
    return PITemperature(**({"target_entropy_nats": 3.0, "vocab_size": N} | knobs))


def test_rate_limit_bounds_every_step_and_still_arrives() -> None:
    z = random_logits(4, N, seed=1)
    free = close(pi(), z, 400).temperature
    limited = close(RateLimited(pi(), max_step=0.01), z, 400).temperature
    assert np.abs(np.diff(np.log(limited), axis=0)).max() <= 0.01 + 1e-12
    assert np.abs(np.diff(np.log(free), axis=0)).max() > 0.05
    np.testing.assert_allclose(limited[-1], free[-1], rtol=1e-3)
    # No wind-up behind the limit: it does not run past the target on the way.
    assert np.all(np.log(limited).max(axis=0) <= np.maximum(np.log(free[-1]), 0.0) + 1e-6)


def test_saturation_clips_and_tells_the_plant() -> None:
    z = random_logits(4, N, seed=2)
    trace = close(Saturated(pi(), temperature_min=0.8, temperature_max=1.1), z, 200)
    assert trace.temperature.min() >= 0.8
    assert trace.temperature.max() <= 1.1
    _, action = Saturated(ExactSolve(target_entropy_nats=3.0, vocab_size=N)).step(
        ExactSolve(target_entropy_nats=3.0, vocab_size=N).init(2), observation(2, 0)
    )
    assert (action.temperature_min, action.temperature_max) == (0.2, 1.5)


def test_delay_shifts_what_the_law_asks_for() -> None:
    z = random_logits(3, N, seed=3)
    law = pi(delay_steps=3)
    trace = close(Delayed(law, steps=3), z, 80)
    state, wished = law.init(3), []
    told: dict = {}
    for token in range(80):  # the bare law fed with what really happened
        state, action = law.step(state, observation(3, token, **told))
        wished.append(action.temperature)
        told = {
            "measured": True,
            "measured_step": token,
            "entropy_nats": trace.entropy_nats[token],
            "temperature_applied": trace.temperature[token],
        }
    np.testing.assert_array_equal(trace.temperature[3:], np.array(wished)[:-3])
    np.testing.assert_array_equal(trace.temperature[:3], np.array(wished)[[0, 0, 0]])


def test_delay_needs_a_law_built_for_it() -> None:
    with pytest.raises(InputError, match=r"PITemperature\.delay_steps must be at least 2 inside Delayed, got 0"):
        Delayed(pi(), steps=2)
    with pytest.raises(InputError, match="at least 3"):
        Delayed(Delayed(pi(delay_steps=2), steps=2), steps=1)
    assert wrapped_delay_steps(Delayed(RateLimited(Delayed(pi(delay_steps=3), steps=2)), steps=1)) == 3
    Delayed(pi(k_i=0.05, unsafe=True), steps=2)
    Delayed(Fixed(), steps=2)


def test_certificate_effects_of_a_stack() -> None:
    stack = RateLimited(Saturated(Delayed(pi(delay_steps=1))))
    effects = certificate_effects(stack)
    assert [effect.delay_steps for effect in effects] == [0, 0, 1]
    assert all(effect.keeps_nonexpansive and effect.why for effect in effects)
    assert law_inside(stack) == pi(delay_steps=1)
    assert certificate_effects(pi()) == ()


def test_truncation_is_added_and_the_loop_unchanged() -> None:
    z = random_logits(3, N, seed=4)
    plain = close(pi(), z, 50)
    wrapped = close(TopH(MinP(pi(), min_p=0.1), top_h=0.3), z, 50)
    np.testing.assert_array_equal(plain.temperature, wrapped.temperature)
    law = TopH(MinP(pi(), min_p=0.1), top_h=0.3)
    _, action = law.step(law.init(2), observation(2, 0, active=[True, False]))
    np.testing.assert_array_equal(action.min_p, [0.1, np.nan])
    np.testing.assert_array_equal(action.top_h, [0.3, np.nan])


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: RateLimited(FCFS()), "RateLimited wraps a temperature law"),
        (lambda: Delayed(FCFS()), "Delayed wraps a temperature law"),
        (lambda: Saturated(FCFS()), "Saturated wraps a temperature law"),
        (lambda: MinP(FCFS()), "MinP wraps a temperature law"),
        (lambda: RateLimited(pi(), max_step=0.0), "max_step"),
        (lambda: RateLimited(pi(), max_step=np.nan), "max_step"),
        (lambda: RateLimited(ExactSolve(target_entropy_nats=1.0, vocab_size=N)), "solves for T within the step"),
        (lambda: Delayed(Fixed(), steps=0), "steps"),
        (lambda: Saturated(Fixed(), temperature_min=2.0, temperature_max=1.0), "temperature_min"),
        (lambda: MinP(Fixed(), min_p=1.5), "min_p"),
        (lambda: MinP(Fixed(), min_p=np.nan), "min_p"),
        (lambda: TopH(Fixed(), top_h=0.0), "top_h"),
    ],
)
def test_refusals(build: object, match: str) -> None:
    with pytest.raises(InputError, match=match):
        build()
