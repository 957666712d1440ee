"""`python -m workbench.live.engines.check FACTS`: the scenarios in the environment, checked before an engine starts.

FACTS is JSON, the fields of `EngineFacts`: what the engine has been configured to, as far as a scenario depends on it. One
line and exit 2 for the first problem. A process of its own, because controllers load Numba.
"""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import InputError
from workbench.live.engines.deployment import (
    FOLDER_VARIABLE,
    check_delay,
    check_offered,
    check_policy,
    deploy,
    scenario_from_environment,
)
from workbench.protocols import DecisionPoint
from workbench.scenario import load_scenario


@dataclass(frozen=True)
class EngineFacts:
    """Of an engine about to start."""

    vocab_size: int
    asynchronous: bool  # a step is scheduled while the one before it runs
    ordered_by_us: bool  # started with our scheduler class
    policy: str = "fcfs"


def check_environment(facts: EngineFacts, engine: str = "vllm") -> None:
    """Raises `InputError` for the first scenario that cannot run."""
    path = scenario_from_environment()
    if path is not None:
        _check(path, facts, engine)
    if name := os.environ.get(FOLDER_VARIABLE):
        folder = Path(name).expanduser()
        if not folder.is_dir():
            raise InputError(f"{FOLDER_VARIABLE}={name}: no such folder")
        for each in sorted(folder.glob("*.toml")):
            _check_named(each, facts, engine)


def _check(path: Path, facts: EngineFacts, engine: str) -> None:
    """The server's own scenario."""
    scenario = load_scenario(path)
    check_offered(scenario, engine)
    deploy(scenario, engine, facts.vocab_size)
    if DecisionPoint.ORDER in scenario.controllers and not facts.ordered_by_us:
        raise InputError(
            f"{path.name} has [controllers.order], but vLLM was started without --scheduler-cls "
            "workbench.live.engines.vllm_scheduler.entropy_scheduler; add it, or leave the table out"
        )
    if facts.ordered_by_us:
        check_policy(facts.policy)
    check_delay(scenario, facts.asynchronous)


def _check_named(path: Path, facts: EngineFacts, engine: str) -> None:
    """One that requests may name: for its temperature law."""
    scenario = load_scenario(path)
    check_offered(scenario, engine)
    deploy(scenario, engine, facts.vocab_size)
    if DecisionPoint.ORDER in scenario.controllers:
        raise InputError(
            f"{path.name} in {FOLDER_VARIABLE} orders requests; only the server's own scenario may: leave the table out"
        )


if __name__ == "__main__":
    try:
        check_environment(EngineFacts(**json.loads(sys.argv[1])))
    except InputError as problem:
        print(f"error: {' '.join(str(problem).split())}", file=sys.stderr)
        sys.exit(2)
