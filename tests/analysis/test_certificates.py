"""Every certificate holds, its checker rejects every falsehood, and no checker accepts a witness without its evidence."""

import copy
import json

import pytest

from workbench.analysis.certificates.table import CERTIFICATES
from workbench.analysis.proving import run_certificate

NAMES = [c.name for c in CERTIFICATES]


def test_names_are_unique_and_the_list_is_complete():
    assert len(set(NAMES)) == len(NAMES) >= 22
    required = {
        "entropy-gain", "max-varentropy", "max-varentropy-values", "gain-bound", "clamp-contraction", "pi-jury",
        "pi-varying", "delay-frozen", "delay-varying", "delay-counterexample", "projection", "drift-bound", "anti-windup",
        "explore-expands", "gain-scheduled-two-cycle", "scheduler-wait", "scheduler-starvation", "bounded-priority",
        "tau-identity", "entropy-bracket", "renormalised-top-k", "pruning-output", "dropped-mass", "total-correlation",
        "iteration-bound",
    }  # fmt: skip
    assert required <= set(NAMES)


@pytest.mark.parametrize("certificate", CERTIFICATES, ids=NAMES)
def test_holds_and_rejects_falsehoods(certificate, tmp_path):
    result = run_certificate(certificate, tmp_path, self_test=True)
    assert result.verdict.holds, result.verdict.reason
    assert result.rejections
    assert [r.change for r in result.rejections if not r.rejected] == []
    assert not any("the checker failed" in r.reason for r in result.rejections)
    assert all((certificate.statement, certificate.domain, certificate.method, certificate.argument))
    witness = json.loads(result.witness.read_text())
    assert witness["statement"] == certificate.statement


EVIDENCE_FREE = {"reachable-set", "delay-frozen"}  # the checker needs nothing but the claim (or a sample point)


@pytest.mark.parametrize("certificate", [c for c in CERTIFICATES if c.name not in EVIDENCE_FREE], ids=lambda c: c.name)
def test_a_damaged_proof_is_not_accepted(certificate):
    """Without evidence nothing is proved."""
    witness = json.loads(json.dumps(certificate.prove()))
    damaged = copy.deepcopy(witness)
    damaged["evidence"] = {}
    try:
        accepted = certificate.check(damaged).holds
    except (KeyError, ValueError, IndexError):
        accepted = False
    assert not accepted
