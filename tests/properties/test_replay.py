"""Replay equals the run for any script, and a step cannot see whether its observation is a copy."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contracts.checks import same
from tests.contracts.table import cases
from tests.contracts.test_contracts import run

BARE = [
    pytest.param(c, id=f"{c.point.value}-{name}") for name, c in cases() if "(" not in name and c.init(1) is not None
]


@pytest.mark.parametrize("controller", BARE)
@settings(max_examples=4)
@given(seed=st.integers(0, 10**6), delay_steps=st.integers(0, 3), missing=st.floats(0.0, 1.0))
def test_replay(controller: object, seed: int, delay_steps: int, missing: float) -> None:
    log = run(controller, seed=seed, delay_steps=delay_steps, missing_frac=missing, num_steps=12, num_slots=4)
    state = controller.init(4)
    for observation, action in log.decisions:
        state, again = controller.step(copy.deepcopy(state), copy.deepcopy(observation))
        assert same(action, again)
