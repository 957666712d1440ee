"""A scenario as the text of a TOML file: what `load_scenario` reads back as the same scenario."""

import json
from collections.abc import Mapping
from typing import Any

from workbench.scenario import Scenario


def scenario_toml(scenario: Scenario) -> str:
    """One line a section, nested tables inline; what is not set is left out."""
    return "".join(f"{_key(name)} = {_value(value)}\n" for name, value in _given(scenario.plain()))


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(name)} = {_value(item)}" for name, item in _given(value)) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)  # numbers, booleans and strings are written alike


def _given(table: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in table.items() if value is not None]


def _key(name: str) -> str:
    return json.dumps(str(name), ensure_ascii=False)
