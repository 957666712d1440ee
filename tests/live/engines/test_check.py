"""What stops a vLLM server before it starts, told by the process that checks."""

import json
import os
import subprocess
import sys

import pytest

from tests.live.engines.vllm_env import toml
from tests.readme_tree import ROOT
from workbench.errors import InputError
from workbench.live.engines.check import EngineFacts, check_environment
from workbench.live.engines.deployment import FOLDER_VARIABLE, SCENARIO_VARIABLE

PI = {"kind": "pi", "target_entropy_nats": 1.0}
ORDER = {"order": {"kind": "entropy-aging"}}
SMOLLM2 = EngineFacts(vocab_size=49152, asynchronous=True, ordered_by_us=True)


def facts(**changed):
    return EngineFacts(**{**SMOLLM2.__dict__, **changed})


CASES = {
    "unknown controller": ({"controllers": {"temperature": {"kind": "pid2"}}}, SMOLLM2, "kind in controllers.temperature 'pid2'"),
    "unknown knob": ({"controllers": {"temperature": {"kind": "pi", "target": 1.0}}}, SMOLLM2, "key in controllers.temperature"),
    "not offered": ({"controllers": {"keep": {"kind": "least-mass"}}}, SMOLLM2, "controllers.keep is not offered by vllm"),
    "bad range": ({"controllers": {"temperature": {"kind": "fixed", "temperature": -1.0}}}, SMOLLM2, "Fixed.temperature must be"),
    "gain": ({"controllers": {"temperature": {**PI, "k_i": 0.2}}}, SMOLLM2, "PITemperature.k_i must be in (0,"),
    "gain for this vocabulary": ({"controllers": {"temperature": {**PI, "k_i": 0.06}}}, facts(vocab_size=151936), "k_i"),
    "target": ({"controllers": {"temperature": {**PI, "target_entropy_nats": 11.0}}}, SMOLLM2, "target"),
    "delay": ({"controllers": ORDER}, SMOLLM2, "engine.delay_steps is 0"),
    "scheduler": ({"engine": {"delay_steps": 1}, "controllers": ORDER}, facts(ordered_by_us=False), "without --scheduler-cls"),
    "policy": ({"engine": {"delay_steps": 1}, "controllers": ORDER}, facts(policy="priority"), "--scheduling-policy priority"),
}  # fmt: skip


@pytest.fixture
def scenario(tmp_path, monkeypatch):
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    monkeypatch.setenv(SCENARIO_VARIABLE, str(tmp_path / "scenario.toml"))

    def write(table, name="scenario.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(toml(table), encoding="utf-8")

    return write


@pytest.mark.parametrize("what", CASES)
def test_what_does_not_fit_the_engine_is_refused(scenario, what):
    table, engine, expected = CASES[what]
    scenario(table)
    with pytest.raises(InputError) as refused:
        check_environment(engine)
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_same_scenarios_run_where_they_fit(scenario):
    scenario({"controllers": {"temperature": {**PI, "k_i": 0.06}}})
    check_environment(SMOLLM2)
    scenario({"engine": {"delay_steps": 1}, "controllers": ORDER})
    check_environment(SMOLLM2)
    scenario({"controllers": ORDER})
    check_environment(facts(asynchronous=False))


def test_every_scenario_that_a_request_may_name_is_checked(scenario, tmp_path, monkeypatch):
    monkeypatch.delenv(SCENARIO_VARIABLE)
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "laws"))
    with pytest.raises(InputError, match="no such folder"):
        check_environment(SMOLLM2)
    scenario({"controllers": {"temperature": PI}}, "laws/a.toml")
    check_environment(SMOLLM2)
    scenario({"engine": {"delay_steps": 1}, "controllers": ORDER}, "laws/b.toml")
    with pytest.raises(InputError, match=r"b.toml in ENTROPIC_SCENARIOS orders requests"):
        check_environment(SMOLLM2)


def test_the_process_says_it_in_one_line_and_ends_with_2(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "workbench.live.engines.check", json.dumps(SMOLLM2.__dict__)], cwd=ROOT, check=False,
        capture_output=True, text=True, env=os.environ | {SCENARIO_VARIABLE: str(tmp_path / "none.toml")},
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "no such file" in done.stderr
