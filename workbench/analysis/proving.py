"""Recompute certificates: search for a witness, write it, read it back, check it; with falsehoods for the self-test."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from workbench.analysis.certificate import Certificate, Verdict
from workbench.errors import InputError, unknown_name
from workbench.record import write_atomically
from workbench.strict_json import strict_json


@dataclass(frozen=True)
class Rejection:
    """One falsehood and what the checker said. A checker that raises has not rejected: it is broken."""

    change: str
    rejected: bool
    reason: str


@dataclass(frozen=True)
class Result:
    certificate: Certificate
    verdict: Verdict
    prove_s: float
    check_s: float
    witness: Path | None
    rejections: tuple[Rejection, ...]

    @property
    def ok(self) -> bool:
        return self.verdict.holds and all(r.rejected for r in self.rejections)

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.certificate.name,
            "statement": self.certificate.statement,
            "domain": self.certificate.domain,
            "method": self.certificate.method,
            "holds": self.verdict.holds,
            "reason": self.verdict.reason,
            "prove_s": round(self.prove_s, 3),
            "check_s": round(self.check_s, 3),
            "falsehoods": [{"change": r.change, "rejected": r.rejected, "reason": r.reason} for r in self.rejections],
        }


def select(certificates: Sequence[Certificate], pattern: str | None) -> list[Certificate]:
    """All, one by name, or several by a shell pattern such as "delay-*". Raises `InputError` for none."""
    if pattern is None:
        return list(certificates)
    found = [c for c in certificates if fnmatchcase(c.name, pattern)]
    if not found:
        raise unknown_name("certificate", pattern, [c.name for c in certificates])
    return found


def run_certificate(certificate: Certificate, directory: Path, self_test: bool) -> Result:
    """Prove and check one; with `self_test` also hand its checker every falsehood. Witness in `directory`."""
    started = time.perf_counter()
    try:
        witness = certificate.prove()
    except Exception as error:
        failed = Verdict(False, f"no witness: {type(error).__name__}: {error}")
        return Result(certificate, failed, time.perf_counter() - started, 0.0, None, ())
    prove_s = time.perf_counter() - started
    path = directory / f"{certificate.name}.json"
    header = {"name": certificate.name, "statement": certificate.statement, "domain": certificate.domain}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_atomically(path, strict_json({**header, "method": certificate.method, **witness}).encode())
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}; choose another --out") from None
    started = time.perf_counter()
    verdict = _checked(certificate, json.loads(path.read_text(encoding="utf-8")))
    check_s = time.perf_counter() - started
    rejections = tuple(_rejections(certificate)) if self_test else ()
    return Result(certificate, verdict, prove_s, check_s, path, rejections)


def _checked(certificate: Certificate, witness: dict[str, Any]) -> Verdict:
    try:
        return certificate.check(witness)
    except Exception as error:
        return Verdict(False, f"the checker failed: {type(error).__name__}: {error}")


def _rejections(certificate: Certificate) -> list[Rejection]:
    found = []
    for falsehood in certificate.falsified():
        try:
            verdict = certificate.check(json.loads(strict_json(falsehood.witness)))
            found.append(Rejection(falsehood.change, not verdict.holds, verdict.reason))
        except Exception as error:
            found.append(Rejection(falsehood.change, False, f"the checker failed: {type(error).__name__}: {error}"))
    return found


def run_all(
    certificates: Sequence[Certificate], directory: Path, self_test: bool, tell: Callable[[float], None]
) -> list[Result]:
    """One after the other; `tell` gets the share done."""
    results = []
    for index, certificate in enumerate(certificates):
        results.append(run_certificate(certificate, directory, self_test))
        tell((index + 1) / len(certificates))
    return results
