import numpy as np
import pytest

from controllers.routing.early_stop import EATStop, SlopeStop, ThoughtObservation, trailing_slope
from workbench.errors import InputError


def thought(eat=None, recent=None, joined=False, rows=1):
    return ThoughtObservation(
        step=0,
        active=np.ones(rows, dtype=bool),
        joined=np.full(rows, joined),
        request_id=np.arange(rows),
        measured=np.ones(rows, dtype=bool),
        measured_step=np.zeros(rows, dtype=np.int64),
        thought_tokens=np.full(rows, 16),
        entropy_after_marker_nats=np.full(rows, np.nan) if eat is None else np.atleast_1d(eat).astype(float),
        recent_entropy_nats=np.full((rows, 4), np.nan) if recent is None else np.atleast_2d(recent),
    )


def test_eat_waits_until_the_answer_is_settled():
    rule = EATStop(smoothing=0.5, variance_nats2=0.01, min_checks=3)
    state = rule.init(1)
    stops = []
    for k, value in enumerate([3.0, 1.0, 2.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]):
        state, action = rule.step(state, thought(eat=value, joined=k == 0))
        stops.append(bool(action.stop[0]))
    # The variance by hand, with the documented recursion.
    mean, variance, expected = 3.0, 0.0, [False]
    for n, value in enumerate([1.0, 2.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5], start=2):
        mean = 0.5 * mean + 0.5 * value
        variance = 0.5 * variance + 0.5 * (value - mean) ** 2
        expected.append(n >= 3 and variance / (1 - 0.5**n) < 0.01)
    assert stops == expected
    assert stops[-1]
    assert not any(stops[:4])


def test_eat_starts_afresh_with_a_new_thought_and_ignores_missing_values():
    rule = EATStop(min_checks=2)
    state = rule.init(1)
    for value in (1.0, 1.0, 1.0):
        state, action = rule.step(state, thought(eat=value))
    assert action.stop[0]
    state, action = rule.step(state, thought(eat=1.0, joined=True))
    assert not action.stop[0]
    assert state.num_checks[0] == 1
    kept, action = rule.step(state, thought())
    assert not action.stop[0]
    assert kept.num_checks[0] == 1


def test_slope_stops_once_entropy_is_flat():
    rule = SlopeStop(window_tokens=4, slope_nats=0.05, patience=2)
    state = rule.init(2)
    falling, flat = [4.0, 3.0, 2.0, 1.0], [1.0, 1.01, 1.0, 1.01]
    for recent, expected in (([falling, flat], [0, 0]), ([falling, flat], [0, 1]), ([flat, falling], [0, 0])):
        state, action = rule.step(state, thought(recent=np.array(recent), rows=2))
        assert list(action.stop) == [bool(e) for e in expected]


def test_slope_equals_polyfit_and_needs_a_full_window():
    y = np.random.default_rng(0).gamma(1.5, 1.0, 16)
    assert trailing_slope(y[None], 16)[0] == pytest.approx(np.polyfit(np.arange(16), y, 1)[0], abs=1e-12)
    y[3] = np.nan
    assert np.isnan(trailing_slope(y[None], 16)[0])


@pytest.mark.parametrize(
    "make", [lambda: EATStop(smoothing=0.0), lambda: EATStop(min_checks=1), lambda: SlopeStop(window_tokens=2)]
)
def test_bad_parameters_are_refused(make):
    with pytest.raises(InputError):
        make()
