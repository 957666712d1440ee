"""The one closed loop: advance, observe, step, apply, record. Nothing else closes it.

Within one engine step decisions come in the order of `DecisionPoint`: order, then temperature and keep, then (after the
forward pass) reveal and route; a router that looks at no probe is asked before the order. A live plant with a delay asks for
keep rules first and for temperatures while the pass runs: only sampling needs them. A plant stops only where a
controller is present; elsewhere it follows its default (first come first served, the scenario's temperature, every block
kept). Where no decision is recorded a simulated plant may take the same steps in compiled code (`sims.controlled_leap`).
"""

from typing import Protocol

from workbench.protocols import Action, Controllers, LeapingPlant, Observation, Plant


class Recorder(Protocol):
    def decision(self, observation: Observation, action: Action, applied: Action) -> None: ...


def close_loop(plant: Plant, controllers: Controllers, recorder: Recorder) -> None:
    """Drive `plant` with `controllers` until every request has ended."""
    states = {point: controller.init(plant.num_slots) for point, controller in controllers.items()}
    if isinstance(plant, LeapingPlant):
        plant.meet(controllers, states)
    while (point := plant.advance()) is not None:
        observation = plant.observe(point)
        states[point], action = controllers[point].step(states[point], observation)
        applied = plant.apply(point, action)
        recorder.decision(observation, action, applied)
