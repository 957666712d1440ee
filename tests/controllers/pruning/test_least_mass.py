"""Least-mass pruning: predicted masses, what is never dropped, refresh."""

import numpy as np
import pytest

from controllers.pruning.keep_all import KeepAll
from controllers.pruning.least_mass import LeastMass
from workbench.errors import InputError
from workbench.protocols import KeepObservation, KeepRule, blank_like


def observation(step: int, mass: list[list[float]], **values: object) -> KeepObservation:
    block_mass = np.array(mass, dtype=np.float64)
    rows, width = block_mass.shape
    arrays = blank_like(KeepObservation, rows, block_mass=width)
    arrays["active"][:] = True
    arrays["joined"][:] = step == 0
    arrays["measured"][:] = True
    arrays["request_id"] = np.arange(rows)
    arrays["num_blocks"][:] = width
    arrays["block_mass"] = block_mass
    for name, value in values.items():
        arrays[name] = np.broadcast_to(np.asarray(value, dtype=arrays[name].dtype), arrays[name].shape).copy()
    return KeepObservation(step=step, **arrays)


def test_prediction_is_the_running_mean_of_dense_mass() -> None:
    policy = LeastMass(weight=0.5, refresh_steps=0)
    state = policy.init(1)
    state, action = policy.step(state, observation(0, [[0.6, 0.3, 0.1]]))
    np.testing.assert_allclose(action.score, [[0.6, 0.3, 0.1]])
    state, action = policy.step(state, observation(1, [[0.4, 0.5, 0.1]]))
    np.testing.assert_allclose(action.score, [[0.5, 0.4, 0.1]])
    # The third block was dropped: the others sum to 1 among themselves, which is 0.9 of dense attention.
    state, action = policy.step(state, observation(2, [[0.5, 0.5, np.nan]]))
    np.testing.assert_allclose(action.score, [[0.475, 0.425, 0.1]])


def test_never_measured_blocks_have_no_score_and_rows_without_mass_keep_everything() -> None:
    policy = LeastMass()
    state, action = policy.step(policy.init(2), observation(0, [[0.5, np.nan, 0.5], [np.nan, np.nan, np.nan]]))
    assert np.isnan(action.score[0, 1])
    assert np.isnan(action.score[1]).all()
    # A missing measurement changes nothing.
    _, again = policy.step(state, observation(1, [[0.1, 0.8, 0.1], [0.2, 0.3, 0.5]], measured=[False, False]))
    np.testing.assert_array_equal(again.score, action.score)


def test_refresh_reads_every_block_once() -> None:
    policy = LeastMass(refresh_steps=3)
    state, rules = policy.init(1), []
    for step in range(7):
        state, action = policy.step(state, observation(step, [[0.5, 0.5]]))
        rules.append(int(action.rule[0]))
    least, everything = int(KeepRule.LEAST_MASS), int(KeepRule.ALL)
    assert rules == [least, least, everything, least, least, everything, least]


def test_numbers_reach_the_action() -> None:
    policy = LeastMass(mass_budget=0.05, sink_blocks=2, recent_blocks=3, evict=True)
    _, action = policy.step(policy.init(1), observation(0, [[0.5, 0.5]]))
    got = (action.mass_budget[0], action.sink_blocks[0], action.recent_blocks[0], action.evict[0])
    assert got == (0.05, 2, 3, True)


def test_context_may_grow_and_a_new_request_starts_afresh() -> None:
    policy = LeastMass(weight=0.5)
    state, _ = policy.step(policy.init(1), observation(0, [[1.0]]))
    state, action = policy.step(state, observation(1, [[0.5, 0.5, np.nan]]))
    np.testing.assert_allclose(action.score, [[0.75, 0.5, np.nan]])
    _, action = policy.step(state, observation(2, [[0.2, 0.8, np.nan]], joined=True))
    np.testing.assert_allclose(action.score, [[0.2, 0.8, np.nan]])


def test_keep_all() -> None:
    _, action = KeepAll().step(None, observation(0, [[0.5, 0.5]]))
    assert action.rule[0] == int(KeepRule.ALL)
    assert action.mass_budget[0] == 0.0


@pytest.mark.parametrize(
    "bad",
    [
        {"mass_budget": 1.0},
        {"mass_budget": -0.1},
        {"mass_budget": np.nan},
        {"weight": 0.0},
        {"sink_blocks": -1},
        {"recent_blocks": 0},
        {"refresh_steps": -1},
    ],
)
def test_refusals(bad: dict) -> None:
    with pytest.raises(InputError, match=next(iter(bad))):
        LeastMass(**bad)
