"""`python -m workbench.live.engines.check`: the scenarios in the environment, checked as far as no model is needed."""

import os
import sys
from dataclasses import fields
from pathlib import Path

from workbench.catalog import CATALOG, build_controllers
from workbench.errors import InputError
from workbench.live.engines.deployment import FOLDER_VARIABLE, check_offered, scenario_from_environment
from workbench.scenario import Scenario, load_scenario


def check_environment(engine: str = "vllm") -> None:
    """Raises `InputError` for the first scenario that cannot run."""
    path = scenario_from_environment()
    paths = [] if path is None else [path]
    if name := os.environ.get(FOLDER_VARIABLE):
        folder = Path(name).expanduser()
        if not folder.is_dir():
            raise InputError(f"{FOLDER_VARIABLE}={name}: no such folder")
        paths += sorted(folder.glob("*.toml"))
    for each in paths:
        scenario = load_scenario(each)
        check_offered(scenario, engine)
        check_structure(scenario)


def check_structure(scenario: Scenario) -> None:
    """Kinds, knobs and ranges, with any gain and target: what those may be depends on the vocabulary."""
    tables = {}
    for point, table in scenario.controllers.items():
        kind = CATALOG[point].get(str(table.get("kind")))
        loose = kind is not None and any(field.name == "unsafe" for field in fields(kind))
        tables[point] = {**table, "unsafe": True} if loose else table
    build_controllers(tables, {"vocab_size": 1 << 17, "delay_steps": scenario.engine_config(1).delay_steps})


if __name__ == "__main__":
    try:
        check_environment()
    except InputError as problem:
        print(f"error: {' '.join(str(problem).split())}", file=sys.stderr)
        sys.exit(2)
