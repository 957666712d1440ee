"""The ledger keeps evidence, decides again from what is kept, and its page, map and short table say what was decided."""

import json
from pathlib import Path

import pytest

from workbench.claims import ledger
from workbench.claims.claim import Measured, Verdict
from workbench.claims.ledger import run_claims
from workbench.claims.page import write_page
from workbench.claims.registry import chosen
from workbench.claims.setting import Setting
from workbench.claims.short_table import write_short_table
from workbench.errors import InputError


def setting(tmp_path: Path) -> Setting:
    return Setting(quick=True, seed=0, directory=tmp_path)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    made: list[str] = []

    def experiment(name: str):
        def measure(setting: Setting):
            made.append(name)
            return {"expansion": Measured(1.0, 1.0, 1.0, "given")}

        return measure

    monkeypatch.setattr(ledger, "experiment", experiment)
    monkeypatch.setattr(ledger, "code_digest", lambda name: "abc" * 20)
    return made


def test_a_rerun_reuses_and_falsified_evidence_changes_the_verdict(calls: list[str], tmp_path: Path) -> None:
    claims = chosen("et-contraction-any-gain")
    first = run_claims(claims, setting(tmp_path), lambda line: None)
    again = run_claims(claims, setting(tmp_path), lambda line: None)
    assert calls == ["counterexamples"]
    assert [row.verdict for row in (*first.rows, *again.rows)] == [Verdict.FALSE, Verdict.FALSE]
    (path,) = (tmp_path / "evidence").iterdir()
    kept = json.loads(path.read_text())
    kept["quantities"]["expansion"] |= {"value": -0.5, "low": -0.5, "high": -0.5}
    path.write_text(json.dumps(kept))
    falsified = run_claims(claims, setting(tmp_path), lambda line: None)
    assert falsified.rows[0].verdict is Verdict.REPRODUCED


def test_page_and_short_table(calls: list[str], tmp_path: Path) -> None:
    done = run_claims(chosen("et-contraction-any-gain"), setting(tmp_path), lambda line: None)
    page = write_page(done, tmp_path / "claims.html", "workbench claims --quick --seed 0").read_text()
    assert "false in general" in page
    assert "<svg" in page
    assert "workbench claims --quick --seed 0 et-contraction-any-gain" in " ".join(page.split())
    target = tmp_path / "README.md"
    target.write_text("before\n<!-- claims -->\nold\n<!-- /claims -->\nafter\n")
    write_short_table(done.rows, "workbench claims", target)
    text = target.read_text()
    assert "| false in general |" in text
    assert "old" not in text
    assert text.startswith("before")
    assert text.endswith("after\n")
    target.write_text("no markers")
    with pytest.raises(InputError, match="claims"):
        write_short_table(done.rows, "workbench claims", target)


def test_an_experiment_without_inputs_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def experiment(name: str):
        def measure(setting: Setting):
            raise InputError("no record here")

        return measure

    monkeypatch.setattr(ledger, "experiment", experiment)
    (row,) = run_claims(chosen("edrm-trend"), setting(tmp_path), lambda line: None).rows
    assert row.verdict is Verdict.INCONCLUSIVE
    assert row.trouble == "no record here"


def test_what_is_not_at_hand_is_not_testable_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (row,) = run_claims(chosen("et-system-vllm"), setting(tmp_path), lambda line: None).rows
    assert row.verdict is Verdict.NOT_TESTABLE
    assert "--vllm" in row.trouble
    assert not row.at_hand


def test_experiments_of_one_core_run_beside_each_other(tmp_path: Path) -> None:
    import os

    claims = [*chosen("et-contraction-any-gain"), *chosen("et-bounded-priority")]
    where: list[str] = []
    ledgers = [run_claims(claims, Setting(True, 0, tmp_path / str(jobs), jobs), where.append) for jobs in (1, 2)]
    assert [row.verdict for row in ledgers[0].rows] == [row.verdict for row in ledgers[1].rows]
    assert ledgers[0].found == ledgers[1].found
    for jobs in ("1", "2"):
        assert len(os.listdir(tmp_path / jobs / "evidence")) == 2


def test_evidence_of_other_code_is_measured_again(
    calls: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    claims = chosen("et-contraction-any-gain")
    run_claims(claims, setting(tmp_path), lambda line: None)
    monkeypatch.setattr(ledger, "code_digest", lambda name: "def" * 20)
    run_claims(claims, setting(tmp_path), lambda line: None)
    assert calls == ["counterexamples", "counterexamples"]


def test_digest_follows_what_decides_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def put(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    put("sims/plant.py", "a")
    put("workbench/claims/page.py", "b")
    monkeypatch.setattr(ledger, "ROOT", tmp_path)
    digest = ledger.code_digest.__wrapped__
    before = digest("routing")
    put("workbench/claims/page.py", "c")
    assert digest("routing") == before
    put("sims/plant.py", "d")
    assert digest("routing") != before
