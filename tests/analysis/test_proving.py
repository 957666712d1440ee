"""The proving loop: broken provers and checkers are failures with a reason, never tracebacks; files as promised."""

import json

import pytest

from workbench.analysis.certificate import Certificate, Falsehood, Verdict
from workbench.analysis.certificates.table import CERTIFICATES
from workbench.analysis.proving import run_certificate, select
from workbench.errors import InputError


def toy(prove=lambda: {"claim": {"n": "1"}, "evidence": {}}, check=lambda w: Verdict(w["claim"]["n"] == "1", "n is 1")):
    return Certificate(
        name="toy",
        statement="n is 1",
        domain="one",
        method="looking",
        argument="it is",
        prove=prove,
        check=check,
        falsified=lambda: [Falsehood("n is 2", {"claim": {"n": "2"}, "evidence": {}})],
    )


def test_a_good_one(tmp_path):
    result = run_certificate(toy(), tmp_path, self_test=True)
    assert result.ok
    assert json.loads((tmp_path / "toy.json").read_text())["claim"] == {"n": "1"}


def test_a_prover_that_fails_is_a_failure(tmp_path):
    def broken():
        raise ArithmeticError("no polytope")

    result = run_certificate(toy(prove=broken), tmp_path, self_test=False)
    assert not result.ok
    assert "no polytope" in result.verdict.reason


def test_a_checker_that_accepts_everything_fails_the_self_test(tmp_path):
    result = run_certificate(toy(check=lambda w: Verdict(True, "sure")), tmp_path, self_test=True)
    assert result.verdict.holds
    assert not result.ok


def test_a_checker_that_crashes_has_not_rejected(tmp_path):
    def crash(witness):
        raise KeyError("evidence")

    result = run_certificate(toy(check=crash), tmp_path, self_test=True)
    assert not result.verdict.holds
    assert not result.rejections[0].rejected


def test_the_checker_sees_only_what_is_in_the_file(tmp_path):
    """A witness that holds a float survives as JSON, and `fraction` refuses it."""
    from workbench.analysis.certificate import fraction

    with pytest.raises(TypeError, match="string"):
        fraction(0.5)
    result = run_certificate(toy(prove=lambda: {"claim": {"n": "1"}, "evidence": {"x": (1, 2)}}), tmp_path, False)
    assert result.ok


def test_selection_by_name_and_pattern_and_a_near_miss():
    assert [c.name for c in select(CERTIFICATES, "delay-*")] == [
        "delay-varying",
        "delay-frozen",
        "delay-counterexample",
    ]
    assert len(select(CERTIFICATES, None)) == len(CERTIFICATES)
    with pytest.raises(InputError, match="tau-identity"):
        select(CERTIFICATES, "tau-identities")


def test_a_directory_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="choose another --out"):
        run_certificate(toy(), tmp_path / "file" / "below", self_test=False)
