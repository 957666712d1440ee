from pathlib import Path

import pytest

from tests.readme_tree import ROOT
from workbench.errors import InputError
from workbench.scenario import load_scenario, parse_scenario
from workbench.scenario_text import scenario_toml

FILES = sorted((ROOT / "workbench" / "scenarios").glob("*.toml"))


def readable(path: Path):
    try:
        return load_scenario(path)
    except InputError:
        return None  # a study, not a scenario


@pytest.mark.parametrize("path", [p for p in FILES if readable(p)], ids=lambda p: p.stem)
def test_every_scenario_file_survives(path, tmp_path):
    scenario = load_scenario(path)
    again = tmp_path / "again.toml"
    again.write_text(scenario_toml(scenario), encoding="utf-8")
    assert load_scenario(again) == scenario


def test_awkward_values_survive(tmp_path):
    scenario = parse_scenario({
        "name": 'two "quotes", a \\ and a\nline, Грюн', "seeds": [3, 1], "engine": {"horizon_s": "inf"},
        "controllers": {"temperature": {"kind": "pi", "target_entropy_nats": 1e-7, "wrap": [{"kind": "rate-limited"}]},
                        "order": {"kind": "mlfq", "quantum_steps": 8}},
    })  # fmt: skip
    path = tmp_path / "s.toml"
    path.write_text(scenario_toml(scenario), encoding="utf-8")
    assert load_scenario(path) == scenario
