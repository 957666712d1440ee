"""Scenario files: what is accepted resolves and round-trips; what is not is one line that names the remedy."""

import pytest

from workbench.catalog import CATALOG, build_controller
from workbench.errors import InputError
from workbench.protocols import DecisionPoint
from workbench.scenario import load_scenario, parse_scenario


def test_resolved_scenario_round_trips():
    plan = parse_scenario({"name": "x", "engine": {"block_size": 32}, "controllers": {"keep": {"kind": "keep-all"}}})
    assert parse_scenario(plan.model_dump(mode="json")) == plan
    assert plan.engine_config(num_blocks=7).block_size == 32
    assert plan.engine_config(num_blocks=7).num_blocks == 7


def test_with_changes_reaches_into_sections_and_validates():
    plan = parse_scenario({}).with_changes(workload__rate_multiplier=2.0, engine__max_running=4)
    assert plan.workload.rate_multiplier == 2.0
    assert plan.engine_config(num_blocks=1).max_running == 4
    with pytest.raises(InputError, match="greater than 0"):
        plan.with_changes(workload__rate_multiplier=0.0)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"workloda": {}}, "did you mean workload?"),
        ({"workload": {"rate_multiplyer": 2}}, "rate_multiplier"),
        ({"workload": {"rate_multiplier": -1}}, "workload.rate_multiplier: input should be greater than 0, got -1"),
        ({"engine": {"block_size": 0}}, "engine.block_size must be at least 1, got 0"),
        ({"engine": {"blok_size": 16}}, "block_size"),
        ({"seeds": []}, "at least one seed"),
        ({"workload": {"trace": "nowhere.csv"}}, "no file at nowhere.csv"),
        ({"controllers": {"temprature": {}}}, "'temperature'"),
    ],
)
def test_bad_scenarios_are_one_line(data, words):
    with pytest.raises(InputError) as caught:
        parse_scenario(data)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [("name = ", "not valid TOML"), ("[engine]\nnum_blocks = 0\n", "engine.num_blocks must be at least 1, got 0")],
)
def test_bad_files_name_the_file(tmp_path, content, words):
    path = tmp_path / "s.toml"
    path.write_text(content)
    with pytest.raises(InputError, match=r"s\.toml") as caught:
        load_scenario(path)
    assert words in str(caught.value)
    with pytest.raises(InputError, match="no such file"):
        load_scenario(tmp_path / "absent.toml")


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({}, "needs `kind`"),
        ({"kind": "pie"}, "did you mean pi"),
        ({"kind": "pi", "vocab_size": 49152}, "needs target_entropy_nats"),
        ({"kind": "pi", "target_entropy_nats": 1.0, "k_j": 0.1}, "k_i"),
        ({"kind": "pi", "target_entropy_nats": "warm"}, "controllers.temperature.target_entropy_nats"),
        ({"kind": "pi", "target_entropy_nats": 1.0, "k_i": 0.2}, "(0, "),
        ({"kind": "pi", "target_entropy_nats": 11.0}, "10.8"),
        ({"kind": "pi", "target_entropy_nats": -1.0}, "0"),
    ],
)
def test_bad_controller_tables_are_one_line(table, words):
    with pytest.raises(InputError) as caught:
        build_controller(DecisionPoint.TEMPERATURE, table, {"vocab_size": 49152, "delay_steps": 0})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_catalog_row_names_its_own_decision_point():
    assert all(cls.point is point for point, rows in CATALOG.items() for cls in rows.values())
