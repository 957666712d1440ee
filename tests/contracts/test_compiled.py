"""Controllers that offer a compiled step: on the scripted plant it decides what `step` decides, and ends in the same state."""

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest
from numba import njit

from controllers.compiled import KeepView, OrderView, TemperatureView, decide
from tests.contracts.scripted_plant import ScriptedPlant
from tests.contracts.table import cases
from workbench.loop import close_loop
from workbench.protocols import DecisionPoint

BLOCKS = 12  # of a slot on the scripted plant
VIEWS = {
    DecisionPoint.ORDER: OrderView,
    DecisionPoint.TEMPERATURE: TemperatureView,
    DecisionPoint.KEEP: KeepView,
}


def offered() -> list[Any]:
    found = []
    for name, controller in cases():
        offer = getattr(controller, "compiled", None)
        if offer is not None and offer(controller.init(3), BLOCKS) is not None:
            found.append(pytest.param(controller, id=f"{controller.point.value}-{name}"))
    return found


def test_the_three_controllers_of_the_papers_offer_one() -> None:
    assert {p.id for p in offered()} >= {"order-entropy-aging", "temperature-pi", "keep-least-mass"}


@njit
def ask(rule, view, out):
    decide(rule, view, out)


class Shadow:
    """A recorder that asks the compiled step beside each decision."""

    def __init__(self, controller: Any, num_slots: int) -> None:
        self.rule = controller.compiled(controller.init(num_slots), BLOCKS)
        self.decisions, self.shown_width = 0, 0

    def decision(self, observation: Any, action: Any, applied: Any) -> None:
        self.decisions += 1
        view_type = VIEWS[observation.point]
        given = {}
        for name in view_type._fields:
            value = observation.block_mass.shape[1] if name == "shown_width" else getattr(observation, name)
            given[name] = np.array(value) if isinstance(value, np.ndarray) else value
        active = observation.active
        if observation.point is DecisionPoint.TEMPERATURE:
            out = np.empty(observation.num_slots)
            ask(self.rule, view_type(**given), out)
            np.testing.assert_array_equal(out[active], action.temperature[active])
            low, high = self.rule.temperature_min, self.rule.temperature_max
            assert (low, high) == (action.temperature_min, action.temperature_max)
        elif observation.point is DecisionPoint.ORDER:
            out = np.empty(observation.num_slots, np.int64)
            ask(self.rule, view_type(**given), out)
            np.testing.assert_array_equal(out, action.rank)
        else:
            self.shown_width = action.score.shape[1]
            out = np.empty(observation.num_slots, np.int64)
            ask(self.rule, view_type(**given), out)
            np.testing.assert_array_equal(out[active], action.rule[active])
            width = action.score.shape[1]
            np.testing.assert_array_equal(self.rule.score[:, :width][active], action.score[active])
            for name in ("mass_budget", "block_budget_frac", "sink_blocks", "recent_blocks", "evict"):
                np.testing.assert_array_equal(getattr(self.rule, name), getattr(action, name))


@pytest.mark.parametrize("controller", offered())
def test_compiled_step_is_the_step(controller: Any) -> None:
    plant = ScriptedPlant(controller.point, seed=1)
    shadow, last = Shadow(controller, plant.num_slots), {}

    class Watched:
        point = controller.point
        init = staticmethod(controller.init)

        @staticmethod
        def step(state: Any, observation: Any) -> Any:
            last["state"], action = controller.step(state, observation)
            return last["state"], action

    close_loop(plant, {controller.point: Watched()}, shadow)
    assert shadow.decisions > 5
    assert_same_state(last["state"], shadow.rule.state(shadow.shown_width))


def assert_same_state(a: Any, b: Any) -> None:
    if is_dataclass(a):
        for field in fields(a):
            assert_same_state(getattr(a, field.name), getattr(b, field.name))
    elif isinstance(a, np.ndarray):
        np.testing.assert_array_equal(a, b)
    else:
        assert a == b
