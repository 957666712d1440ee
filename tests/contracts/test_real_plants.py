"""The same promises in the simulator and on a real (tiny, random) model: valid actions, delay 0 and 1, replay = record."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.checks import check_action
from tests.contracts.table import KNOBS
from workbench.arm import plant_builder, run_arm
from workbench.catalog import CATALOG, WRAPPERS, build_controller, build_controllers
from workbench.errors import InputError
from workbench.loop import close_loop
from workbench.protocols import DecisionPoint, SamplingAction
from workbench.record import read_manifest
from workbench.replay import replay_arm
from workbench.scenario import Scenario, parse_scenario

POINTS = (DecisionPoint.ORDER, DecisionPoint.TEMPERATURE, DecisionPoint.KEEP)


def tables() -> list[Any]:
    """A `[controllers.<point>]` table for every row, and PI within every wrapper."""
    rows = [
        pytest.param(point, {"kind": kind} | KNOBS.get((point, kind), {}), id=f"{point.value}-{kind}")
        for point in POINTS
        for kind in CATALOG[point]
    ]
    pi = {"kind": "pi", "target_entropy_nats": 1.5}
    for name in (name for name, wrapper in WRAPPERS.items() if wrapper.action_type is SamplingAction):
        rows.append(pytest.param(DecisionPoint.TEMPERATURE, pi | {"wrap": [{"kind": name}]}, id=f"{name}(pi)"))
    return rows


every_table = pytest.mark.parametrize(("point", "table"), tables())


def controller_table(table: dict[str, Any], plant_delay: int) -> dict[str, Any]:
    """Inside a delay wrapper the law must be built for plant and wrapper together."""
    if any(wrap["kind"] == "delayed" for wrap in table.get("wrap", [])):
        return table | {"delay_steps": plant_delay + 1}
    return table


def sim_scenario(point: DecisionPoint, table: dict[str, Any], delay_steps: int) -> Scenario:
    return parse_scenario(
        {
            "level": "full",
            "workload": {"num_requests": 12, "arrivals": "poisson", "rate_per_s": 60.0, "max_tokens": 12},
            "hardware": {"model": "Llama-3-8B", "gpu": "H100"},
            "engine": {"max_running": 4, "token_budget": 256, "delay_steps": delay_steps},
            "controllers": {point: controller_table(table, delay_steps)},
        }
    )


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(model directory, prompt file) of a random Llama."""
    from tests.live.tiny import save, tiny_reference

    directory = save(tiny_reference("llama"), tmp_path_factory.mktemp("tiny"))
    prompts = directory / "prompts.jsonl"
    lines = [{"token_ids": [3 + (7 * i + j) % 90 for j in range(4 + 9 * (i % 4))]} for i in range(6)]
    prompts.write_text("\n".join(json.dumps(line) for line in lines))
    return directory, prompts


def live_scenario(model: tuple[Path, Path], point: DecisionPoint, table: dict[str, Any], delay_steps: int) -> Scenario:
    return parse_scenario(
        {
            "plant": "live",
            "level": "full",
            "workload": {"num_requests": 6, "prompts": str(model[1]), "max_tokens": 10},
            "live": {"model": str(model[0]), "dtype": "fp32", "backend": "torch"},
            "engine": {"max_running": 3, "token_budget": 64, "delay_steps": delay_steps, "block_size": 4},
            "controllers": {point: controller_table(table, delay_steps)},
        }
    )


class Checked:
    """A recorder that checks each action as it is taken."""

    def __init__(self) -> None:
        self.count = 0

    def decision(self, observation: Any, action: Any, applied: Any) -> None:
        check_action(action, observation)
        check_action(applied, observation)
        self.count += 1


def valid_actions(scenario: Scenario, point: DecisionPoint) -> int:
    plant = plant_builder(scenario)(scenario, 0, frozenset({point}), None)
    context = {"vocab_size": plant.executor.vocab_size, "delay_steps": plant.config.delay_steps}
    log = Checked()
    close_loop(plant, build_controllers(scenario.controllers, context), log)
    return log.count


def needs_keys(point: DecisionPoint, table: dict[str, Any]) -> bool:
    return point is DecisionPoint.KEEP and bool(
        getattr(build_controller(point, table, {"vocab_size": 50, "delay_steps": 0}), "needs_keys", False)
    )


@pytest.mark.parametrize(
    "kind", [k for k in CATALOG[DecisionPoint.KEEP] if needs_keys(DecisionPoint.KEEP, {"kind": k})]
)
def test_the_simulator_has_no_keys_and_says_so(kind: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="reads keys, which the simulator does not have"):
        run_arm(sim_scenario(DecisionPoint.KEEP, {"kind": kind}, 0), 0, tmp_path)


@every_table
@pytest.mark.parametrize("delay_steps", [0, 1])
def test_simulated(point: DecisionPoint, table: dict[str, Any], delay_steps: int, tmp_path: Path) -> None:
    if needs_keys(point, table):
        pytest.skip("needs keys: real model and tapes only")
    scenario = sim_scenario(point, table, delay_steps)
    arms = [run_arm(scenario, 0, tmp_path / name) for name in ("a", "b")]
    assert read_manifest(arms[0])["tables"] == read_manifest(arms[1])["tables"]
    result = replay_arm(arms[0])
    assert result.ok, result.first_difference
    assert result.num_decisions > 10


@every_table
@pytest.mark.parametrize("delay_steps", [0, 1])
def test_live(
    tiny_model: tuple[Path, Path], point: DecisionPoint, table: dict[str, Any], delay_steps: int, tmp_path: Path
) -> None:
    result = replay_arm(run_arm(live_scenario(tiny_model, point, table, delay_steps), 0, tmp_path / "a"))
    assert result.ok, result.first_difference
    assert result.num_decisions > 10


@every_table
def test_actions_are_valid(tiny_model: tuple[Path, Path], point: DecisionPoint, table: dict[str, Any]) -> None:
    assert needs_keys(point, table) or valid_actions(sim_scenario(point, table, 0), point) > 10
    assert valid_actions(live_scenario(tiny_model, point, table, 0), point) > 10
