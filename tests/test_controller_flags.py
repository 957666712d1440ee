"""An unsafe gain is accepted when asked for, and the report says so."""

from pathlib import Path

import pytest

from tests.test_record_replay import build_plant
from workbench.arm import run_arm
from workbench.errors import InputError
from workbench.metrics import run_figures
from workbench.record import read_manifest
from workbench.report.verdict import verdict_of
from workbench.scenario import parse_scenario


def scenario(**law: object) -> object:
    table = {"kind": "pi", "target_entropy_nats": 1.5} | law
    engine = {"max_running": 6, "max_context_tokens": 512}
    return parse_scenario({"controllers": {"temperature": table}, "engine": engine})


def test_unsafe_gain_reaches_the_report(tmp_path: Path) -> None:
    arm = {"S": False, "T": True, "P": False}
    run_arm(scenario(k_i=3.0, unsafe=True), 0, tmp_path / "arm", arm=arm, build_plant=build_plant)
    flags = read_manifest(tmp_path / "arm")["controller_flags"]
    assert len(flags) == 1
    assert flags[0].startswith("PITemperature: unsafe gain k_i = 3, proven interval (0, ")
    assert any("unsafe gain" in remark for remark in verdict_of(run_figures(tmp_path)).remarks)


def test_without_unsafe_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="pass unsafe=True"):
        run_arm(scenario(k_i=3.0), 0, tmp_path / "arm", build_plant=build_plant)
