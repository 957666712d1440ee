"""What every controller and wrapper promises, over the whole catalog, on a scripted plant."""

import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from tests.contracts.checks import check_action, frozen_copy, per_slot, same
from tests.contracts.scripted_plant import WIDTH, ScriptedPlant
from tests.contracts.table import cases, named_cases
from workbench.catalog import CATALOG
from workbench.loop import close_loop
from workbench.protocols import DecisionPoint, OrderAction

every_controller = pytest.mark.parametrize("controller", named_cases())


@dataclass
class Log:
    """A recorder: decisions as they came, and for each request what was said about it."""

    decisions: list[tuple[Any, Any]] = field(default_factory=list)
    per_request: dict[int, list[Any]] = field(default_factory=dict)

    def decision(self, observation: Any, action: Any, applied: Any) -> None:
        self.decisions.append((observation, action))
        for slot in np.flatnonzero(observation.active):
            row = per_slot(action, slot)
            if isinstance(action, OrderAction):
                row = [observation.step]
            self.per_request.setdefault(int(observation.request_id[slot]), []).append(row)

    def orders(self, requests: frozenset[int]) -> list[list[int]]:
        """The order of the given requests in every decision in which one of them is active."""
        result = []
        for observation, action in self.decisions:
            rank = {int(r): action.rank[s] for s, r in enumerate(observation.request_id) if int(r) in requests}
            if rank:
                result.append(sorted(rank, key=rank.__getitem__))
        return result


def run(controller: Any, **script: Any) -> Log:
    log = Log()
    plant = ScriptedPlant(controller.point, **script)
    close_loop(plant, {controller.point: controller}, log)
    assert log.decisions
    return log


BASE: dict[int, Log] = {}


def base(controller: Any) -> Log:
    """The plain run, made once for each controller."""
    if id(controller) not in BASE:
        BASE[id(controller)] = run(controller, seed=1)
    return BASE[id(controller)]


@every_controller
def test_deterministic_and_bounded(controller: Any) -> None:
    first, again = base(controller), run(copy.deepcopy(controller), seed=1)
    assert same(first.decisions, again.decisions)
    for observation, action in first.decisions:
        check_action(action, observation)


@pytest.mark.parametrize("controller", named_cases(delay_steps=1))
def test_delay_it_was_built_for(controller: Any) -> None:
    for observation, action in run(controller, seed=1, delay_steps=1).decisions:
        check_action(action, observation)


@every_controller
def test_delay_it_was_not_built_for(controller: Any) -> None:
    for observation, action in run(controller, seed=1, delay_steps=2).decisions:
        check_action(action, observation)


@every_controller
def test_state_and_observation_untouched(controller: Any) -> None:
    state = controller.init(8)
    for observation, _ in base(controller).decisions:
        before = frozen_copy((state, observation))
        new, _ = controller.step(state, observation)
        assert same(before, (state, observation))
        state = new


@every_controller
def test_replay_equals_record(controller: Any) -> None:
    log = base(controller)
    state = controller.init(8)
    for observation, action in log.decisions:
        state, replayed = controller.step(state, observation)
        assert same(action, replayed)


@every_controller
def test_slot_permutation(controller: Any) -> None:
    order = np.random.default_rng(5).permutation(8)
    straight, permuted = base(controller), run(controller, seed=1, slot_order=order)
    for (_, action), (_, moved) in zip(straight.decisions, permuted.decisions, strict=True):
        for slot in range(8):
            assert same(per_slot(action, slot), per_slot(moved, order[slot]))


@every_controller
def test_others_do_not_disturb(controller: Any) -> None:
    """Every request that stays is treated alike when half of the others never come."""
    everyone = base(controller)
    some = frozenset(r for r in everyone.per_request if r % 2 == 0)
    without = run(controller, seed=1, requests=some)
    assert set(without.per_request) == some
    for request in some:
        assert same(everyone.per_request[request], without.per_request[request])
    if controller.point is DecisionPoint.ORDER:
        assert everyone.orders(some) == without.orders(some)


@every_controller
def test_inactive_rows_are_not_read(controller: Any) -> None:
    clean, dirty = base(controller), run(controller, seed=1, garbage=True)
    for (observation, action), (_, other) in zip(clean.decisions, dirty.decisions, strict=True):
        for slot in np.flatnonzero(observation.active):
            assert same(per_slot(action, slot), per_slot(other, slot))


@every_controller
def test_missing_measurements(controller: Any) -> None:
    """With nothing ever measured the action is still valid; a temperature law then holds its first T."""
    for share in (0.5, 1.0):
        log = run(controller, seed=1, missing_frac=share)
        for observation, action in log.decisions:
            check_action(action, observation)
        if share == 1.0 and controller.point is DecisionPoint.TEMPERATURE:
            for rows in log.per_request.values():
                assert same(rows, [rows[0]] * len(rows))


@every_controller
def test_nothing_active_is_accepted(controller: Any) -> None:
    observation, _ = base(controller).decisions[0]
    nobody = replace(
        observation,
        active=np.zeros(8, np.bool_),
        joined=np.zeros(8, np.bool_),
        measured=np.zeros(8, np.bool_),
        request_id=np.full(8, -1),
    )
    state = controller.init(8)
    _, action = controller.step(state, nobody)
    check_action(action, nobody)


def test_every_row_of_the_catalog_is_here() -> None:
    names = {name for name, _ in cases()}
    assert names >= {kind for rows in CATALOG.values() for kind in rows}
    assert {kind.point for kind in WIDTH} == set(DecisionPoint)
