"""One arm of a run: a scenario and a seed through the loop, into one folder of the record.

The plant is the only thing that differs between a simulated and a live arm; controllers come from the same tables.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from controllers.temperature.flags import law_flags
from workbench.catalog import build_controllers
from workbench.engine.plant import EnginePlant
from workbench.errors import InputError
from workbench.loop import close_loop
from workbench.protocols import DecisionPoint
from workbench.record import ArmRecorder
from workbench.scenario import Scenario


class PlantBuilder(Protocol):
    """`sims.plant.build_plant` and `workbench.live.build.build_plant`."""

    def __call__(
        self, scenario: Scenario, seed: int, controlled: frozenset[DecisionPoint], window_steps: int | None
    ) -> EnginePlant: ...


def plant_builder(scenario: Scenario) -> PlantBuilder:
    """The builder for the scenario's plant. The live one imports torch; the simulated one never does."""
    if scenario.plant == "live":
        from workbench.live.build import build_plant
    else:
        from sims.plant import build_plant
    return build_plant


def check_points(scenario: Scenario) -> None:
    """Raises `InputError` where a controller would never be asked, or two kinds of request cannot share a run."""
    diffuses, routed = scenario.diffusion.share_frac > 0.0, DecisionPoint.ROUTE in scenario.controllers
    if DecisionPoint.REVEAL in scenario.controllers and not diffuses:
        raise InputError("controllers.reveal has nothing to reveal: set diffusion.share_frac in (0, 1]")
    if diffuses and routed:
        raise InputError("a router and masked-diffusion requests in one scenario are not offered; run two scenarios")


def run_arm(
    scenario: Scenario,
    seed: int,
    directory: Path,
    *,
    arm: Mapping[str, Any] | None = None,
    extra: Mapping[str, Any] | None = None,
    build_plant: PlantBuilder | None = None,
    on_progress: Callable[[float], None] = lambda share: None,
) -> Path:
    """Run one arm and write its folder; returns it.

    `arm` says which controllers are on, and makes it an arm that
    reports compare (None: reports leave it out); `extra` goes to the manifest.

    `on_progress` is told the share of requests that have arrived and ended, in [0, 1].
    """
    check_points(scenario)
    recorder = ArmRecorder(scenario.level, scenario.window_steps)
    controlled = frozenset(scenario.controllers)
    plant = (build_plant or plant_builder(scenario))(scenario, seed, controlled, recorder.token_window)
    context = {"vocab_size": plant.executor.vocab_size, "delay_steps": plant.config.delay_steps}
    controllers = build_controllers(scenario.controllers, context)
    flags = [flag for law in controllers.values() for flag in law_flags(law, plant.config.delay_steps)]
    plant.on_step = lambda: on_progress(plant.share_done)
    close_loop(plant, controllers, recorder)
    return recorder.finish(
        directory,
        plant,
        scenario,
        seed,
        arm=arm,
        extra={"controller_context": context, "controller_flags": flags, "notes": plant.notes, **(extra or {})},
        request_columns=plant.request_columns(),
    )
