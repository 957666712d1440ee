"""`workbench report`: one strict object, the files it names exist, torn arms are left out, bad input is one line."""

import json
from pathlib import Path

import pytest
import typer

from tests.metrics.fake_run import fake_tables, write_leaf
from workbench.cli.report import report
from workbench.errors import InputError


def test_json_is_one_object_and_names_what_was_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for code in ("-", "P", "STP"):
        write_leaf(tmp_path / code, fake_tables(code, 0), code=code, seed=0, plant="sim")
    (tmp_path / "STP" / "steps.parquet").write_bytes(b"torn")
    with pytest.raises(typer.Exit) as end:
        report(tmp_path, traces=True, as_json=True)
    printed = capsys.readouterr()
    body = json.loads(printed.out, parse_constant=lambda text: pytest.fail(text))
    assert end.value.exit_code == 0
    assert body["ok"] is True
    assert body["figures"] | {"requests": 0, "completed": 0} == {
        "cells": 1, "arms": 2, "arms_left_out": 1, "requests": 0, "completed": 0, "refused": 0,
    }  # fmt: skip
    assert all(Path(path).exists() for path in body["paths"].values())
    assert {"report", "figures", "trace-sim-baseline", "trace-sim-P"} <= set(body["paths"])
    assert "steps.parquet cannot be read" in printed.err


def test_people_read_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for code in ("-", "P"):
        for seed in range(3):
            write_leaf(tmp_path / code / f"seed{seed}", fake_tables(code, seed), code=code, seed=seed, plant="sim")
    with pytest.raises(typer.Exit):
        report(tmp_path, traces=False, as_json=False)
    text = " ".join(capsys.readouterr().out.split())
    assert "Pruning simulated In simulation it cuts" in text
    assert not list(tmp_path.glob("trace-*"))


def test_an_empty_directory_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no finished arm"):
        report(tmp_path, traces=True, as_json=True)


def test_a_study_of_unmask_shows_its_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from workbench.unmasking.page import write_study
    from workbench.unmasking.study import Study

    study = Study(name="s", title="t", intro="i", command="c", columns=("a",), rows=[(1.5,)], figures={"f": 2.0})
    study.state("two is two", True)
    write_study(study, tmp_path / "good")
    study.state("two is three", False)
    write_study(study, tmp_path / "bad")
    (tmp_path / "good" / "report.html").unlink()
    for name, code in (("good", 0), ("bad", 1)):
        with pytest.raises(typer.Exit) as end:
            report(tmp_path / name, traces=True, as_json=True)
        body = json.loads(capsys.readouterr().out)
        assert end.value.exit_code == code
        assert body["ok"] is (code == 0)
        assert body["figures"] == {"f": 2.0}
        assert "two is two" in Path(body["paths"]["report"]).read_text()
    with pytest.raises(typer.Exit):
        report(tmp_path / "bad", traces=True, as_json=False)
    assert "FAILS  two is three" in capsys.readouterr().out
