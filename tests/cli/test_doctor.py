"""`workbench doctor`: required parts decide the exit code, gaps come with a remedy, a broken look is a finding."""

import importlib.util
import json

import pytest
import typer

from workbench.cli import doctor as module
from workbench.cli.doctor import doctor


def figures_of(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict]:
    with pytest.raises(typer.Exit) as end:
        doctor(as_json=True)
    body = json.loads(capsys.readouterr().out)
    assert body["ok"] == (end.value.exit_code == 0)
    return end.value.exit_code, body["figures"]


def test_this_environment_has_all_that_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    code, figures = figures_of(capsys)
    assert code == 0
    assert figures["required_missing"] == 0
    assert figures["cores"] >= 1
    assert figures["kernels_is_ours"] == 1


def test_a_missing_core_package_fails_and_says_how_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(module, "find_spec", lambda name: None if name in ("simpy", "torch") else real(name))
    with pytest.raises(typer.Exit) as end:
        doctor(as_json=False)
    text = " ".join(capsys.readouterr().out.split())
    assert end.value.exit_code == 1
    assert "MISSING" in text
    assert "make env" in text
    assert "live runs are not offered" in text


def test_a_look_that_breaks_is_a_line_not_a_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def _broken() -> list:
        raise OSError("the disk is on fire\nand more")

    monkeypatch.setattr(module, "LOOKS", (_broken,))
    code, figures = figures_of(capsys)
    assert (code, figures["broken"], figures["optional_missing"]) == (0, 0, 1)


def test_no_compiler_names_the_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    (check,) = module._compiler()
    assert not check.ok
    assert "falls back to torch" in check.remedy
