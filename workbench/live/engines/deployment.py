"""A scenario carried into another engine: which of its controllers run there, checked once before anything is served.

The controllers are the objects of `controllers/`, built from the scenario's tables as in every other run. An engine that
cannot carry out a decision refuses the scenario; it never runs a part of it in silence.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.errors import InputError, unknown_name
from workbench.protocols import Controllers, DecisionPoint
from workbench.scenario import Scenario, load_scenario, parse_scenario

SCENARIO_VARIABLE = "ENTROPIC_SCENARIO"  # the scenario file of a server
FOLDER_VARIABLE = "ENTROPIC_SCENARIOS"  # folder of the files that a request may name
SEED_VARIABLE = "ENTROPIC_SEED"  # seed of the draws, instead of the scenario's first
RECORD_VARIABLE = "ENTROPIC_RECORD"  # folder to record into; unset: nothing is recorded

# Decision points an engine carries out, and why it refuses the others.
OFFERED: dict[str, frozenset[DecisionPoint]] = {
    "vllm": frozenset({DecisionPoint.ORDER, DecisionPoint.TEMPERATURE}),
    "transformers": frozenset({DecisionPoint.TEMPERATURE, DecisionPoint.KEEP}),
    "transformers-masked": frozenset({DecisionPoint.REVEAL}),
}
WHY_NOT: dict[tuple[str, DecisionPoint], str] = {
    ("vllm", DecisionPoint.KEEP): "its public hooks (scheduler, logits processor) do not reach the KV blocks of a row",
    ("vllm", DecisionPoint.REVEAL): "its public hooks do not reach masked positions before they are drawn",
    ("vllm", DecisionPoint.ROUTE): "a prompt is chosen before the engine sees it; route in front of the server",
    ("transformers", DecisionPoint.ORDER): "generate serves one fixed batch; there is nothing to order",
    ("transformers", DecisionPoint.REVEAL): "a decoder reveals one token at a time; use a masked model",
    ("transformers", DecisionPoint.ROUTE): "a prompt is chosen before generate sees it; route in front of it",
}


@dataclass(frozen=True)
class Deployment:
    """What runs in the engine. `context` is what the record needs to build the same controllers again."""

    scenario: Scenario
    controllers: Controllers
    context: Mapping[str, Any]
    flags: tuple[str, ...]  # what is not certified, one sentence each

    @property
    def seed(self) -> int:
        """Of the draws: the environment's, else the scenario's first."""
        given = os.environ.get(SEED_VARIABLE, "")
        return int(given) if given.isdigit() else self.scenario.seeds[0]

    @property
    def delay_steps(self) -> int:
        return int(self.context["delay_steps"])


def deploy(scenario: Scenario | Path | str | Mapping[str, Any], engine: str, vocab_size: int) -> Deployment:
    """The scenario's controllers for an engine and a vocabulary. Raises `InputError` (one line)."""
    if isinstance(scenario, Path | str):
        scenario = load_scenario(Path(scenario))
    elif isinstance(scenario, Mapping):
        scenario = parse_scenario(dict(scenario))
    check_offered(scenario, engine)
    # Imported here: vLLM's CPU worker fails to start in a process that has loaded Numba, which controllers compile with.
    from controllers.temperature.flags import law_flags
    from workbench.catalog import build_controllers

    context = {"vocab_size": vocab_size, "delay_steps": scenario.engine_config(1).delay_steps}
    controllers = build_controllers(scenario.controllers, context)
    delay_steps = int(context["delay_steps"])
    flags = tuple(flag for law in controllers.values() for flag in law_flags(law, delay_steps))
    return Deployment(scenario, controllers, context, flags)


def check_offered(scenario: Scenario, engine: str) -> None:
    """Raises `InputError` where the engine has no way to carry out a decision of the scenario."""
    if engine not in OFFERED:
        raise unknown_name("engine", engine, OFFERED)
    for point in scenario.controllers:
        if point not in OFFERED[engine]:
            why = WHY_NOT.get((engine, point), "this engine has no such decision")
            raise InputError(f"controllers.{point.value} is not offered by {engine}: {why}; leave the table out")


def check_delay(scenario: Scenario, asynchronous: bool) -> None:
    """Raises `InputError` where an order would be made before the measurement its delay asks for."""
    if asynchronous and DecisionPoint.ORDER in scenario.controllers and scenario.engine_config(1).delay_steps < 1:
        raise InputError(
            "engine.delay_steps is 0, but with asynchronous scheduling an order is made before the last token is "
            "measured; set delay_steps = 1, or start vLLM with --no-async-scheduling"
        )


def check_policy(policy: str) -> None:
    """Raises `InputError` for a scheduling policy of vLLM's own beside our order."""
    if policy != "fcfs":
        raise InputError(
            f"--scheduling-policy {policy} and a scheduling controller both order requests; leave the policy at "
            "fcfs (the controller priority-classes reads the same priorities)"
        )


def scenario_from_environment() -> Path | None:
    """The server's scenario file, None where the variable is not set. Raises `InputError` if there is no such file."""
    name = os.environ.get(SCENARIO_VARIABLE)
    if not name:
        return None
    path = Path(name).expanduser()
    if not path.is_file():
        raise InputError(f"{SCENARIO_VARIABLE}={name}: no such file; give the path of a scenario")
    return path


def scenario_of_request(name: str) -> Path:
    """The file a request names, inside the server's own folder. Raises `InputError`."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        raise InputError(f"entropic_scenario {name!r}: this server offers none; start it with {FOLDER_VARIABLE}=FOLDER")
    known = {path.stem: path for path in sorted(Path(folder).expanduser().glob("*.toml"))}
    if name not in known:  # only names of that folder, so that a request cannot reach another file
        raise unknown_name("entropic_scenario", str(name), known)
    return known[name]
