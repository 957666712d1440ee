"""Claims that are theorems: their certificates recomputed and checked. A violation of 0 is a proof, 1 a failed check."""

from collections.abc import Mapping

from workbench.analysis.certificates.table import CERTIFICATES
from workbench.analysis.proving import run_certificate, select
from workbench.claims.claim import Measured
from workbench.claims.interval import exact
from workbench.claims.setting import Setting

NAMES = (
    "gain-bound",
    "clamp-contraction",
    "bounded-priority",
    "scheduler-wait",
    "scheduler-starvation",
    "tau-identity",
)


def measure(setting: Setting) -> Mapping[str, Measured]:
    found = {}
    for k, name in enumerate(NAMES):
        (certificate,) = select(CERTIFICATES, name)
        result = run_certificate(certificate, setting.directory / "witnesses", self_test=False)
        found[name] = exact(0.0 if result.ok else 1.0, f"certificate {name}: {certificate.method}")
        if name == "scheduler-starvation":
            # The certificate proves that starvation happens: its success is the counterexample.
            found["starves"] = exact(1.0 if result.ok else 0.0, f"certificate {name}: {certificate.method}")
        setting.tell((k + 1) / len(NAMES))
    return found
