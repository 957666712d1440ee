import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.routing.descriptors import describe
from controllers.routing.running_descriptors import RunningDescriptors

NAMES = ("num_measured", "sum_nats", "trend", "avnr", "avnr_sample")


def stream(traces):
    state = RunningDescriptors.empty(*traces.shape)
    for column in traces.T:
        state = state.push(column, np.ones(len(traces), dtype=bool))
    return state


def same(a, b):
    for name in NAMES:
        assert getattr(a, name) == pytest.approx(getattr(b, name), rel=1e-9, abs=1e-12, nan_ok=True), name


def test_equals_batched_at_every_token():
    rng = np.random.default_rng(0)
    traces = rng.gamma(1.5, 1.0, (6, 40))
    traces[1] = np.round(traces[1])  # many ties
    traces[2] = 0.1  # constant
    traces[3, ::7] = np.nan  # missing
    state = RunningDescriptors.empty(6, 40)
    for t in range(40):
        state = state.push(traces[:, t], np.ones(6, dtype=bool))
        same(state.read(), describe(traces[:, : t + 1]))


@given(st.lists(st.sampled_from([0.0, 0.1, 0.5, 1.0, 2.5, float("nan")]), min_size=1, max_size=25))
def test_equals_batched_under_ties_and_gaps(values):
    trace = np.array([values])
    same(stream(trace).read(), describe(trace))


def test_inactive_slots_and_given_state_are_untouched():
    traces = np.random.default_rng(1).gamma(1.5, 1.0, (3, 10))
    state = stream(traces)
    before = {name: value.copy() for name, value in vars(state).items()}
    after = state.push(np.array([1.0, 2.0, 3.0]), np.array([False, False, False]))
    for name, value in before.items():
        assert np.array_equal(getattr(after, name), value, equal_nan=True)
        assert np.array_equal(getattr(state, name), value, equal_nan=True)


def test_restart_empties_only_the_named_slots():
    traces = np.random.default_rng(2).gamma(1.5, 1.0, (3, 10))
    state = stream(traces).restart(np.array([False, True, False]))
    got = state.read()
    assert list(got.num_measured) == [10, 0, 10]
    assert got.trend[0] == describe(traces).trend[0]
    # The restarted slot carries nothing over, not even the last value.
    again = state.push(np.array([9.0, 1.0, 9.0]), np.array([False, True, False]))
    assert again.num_steps[1] == 0


def test_tokens_beyond_the_probe_are_ignored():
    trace = np.random.default_rng(3).gamma(1.5, 1.0, (1, 8))
    state = stream(trace)
    more = state.push(np.array([5.0]), np.array([True]))
    same(more.read(), describe(trace))
