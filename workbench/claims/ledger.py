"""Run the experiments that claims need, keep what they measured, and decide. A rerun reuses what is finished.

OUT/evidence/<experiment>-<size>-seed<k>.json     quantities with intervals, and how long it took
OUT/runs/<experiment>-<size>-seed<k>-<revision>/  its runs, resumable by themselves
"""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from workbench.claims.claim import Claim, Measured, Verdict, decide
from workbench.claims.experiments import experiment
from workbench.claims.setting import Setting
from workbench.errors import InputError
from workbench.record import git_revision, strict_json, write_atomically


@dataclass(frozen=True)
class Row:
    """One decided claim. `trouble`: why its experiment gave nothing."""

    claim: Claim
    verdict: Verdict
    found: Mapping[str, Measured]
    trouble: str = ""


@dataclass(frozen=True)
class Ledger:
    """Decided claims, and everything their experiments measured: experiment -> quantity."""

    rows: Sequence[Row]
    found: Mapping[str, Mapping[str, Measured]]


def measured(name: str, setting: Setting, out: Path) -> Mapping[str, Measured]:
    """The quantities of one experiment, from disk where this size, seed and revision has been measured."""
    key = f"{name}-{'quick' if setting.quick else 'full'}-seed{setting.seed}"
    path = out / "evidence" / f"{key}.json"
    revision = git_revision()
    if path.is_file():
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept.get("revision") == revision:
            return {q: _read(one) for q, one in kept["quantities"].items()}
    started = time.monotonic()
    # Runs of another revision are not taken for this one's.
    place = out / "runs" / f"{key}-{(revision or 'unversioned')[:12]}"
    here = Setting(setting.quick, setting.seed, place, setting.jobs, setting.tell)
    found = experiment(name)(here)
    body = {"experiment": name, "revision": revision, "seconds": round(time.monotonic() - started, 1)}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, strict_json(body | {"quantities": {q: _plain(m) for q, m in found.items()}}).encode())
    return found


def _plain(found: Measured) -> dict[str, object]:
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(found).items()}


def _read(kept: Mapping[str, object]) -> Measured:
    ends = {"low": -math.inf, "high": math.inf}
    return Measured(**{k: ends.get(k, 0.0) if v is None else v for k, v in kept.items()})  # type: ignore[arg-type]


def run_claims(claims: Sequence[Claim], setting: Setting, out: Path, say: Callable[[str], None]) -> Ledger:
    """Every claim decided, in order. An experiment that fails leaves its claims inconclusive, and says why."""
    names = list(dict.fromkeys(c.experiment for c in claims if c.experiment is not None))
    found: dict[str, Mapping[str, Measured]] = {}
    trouble: dict[str, str] = {}
    for k, name in enumerate(names):
        part = Setting(
            setting.quick, setting.seed, out, setting.jobs, lambda share, k=k: setting.tell((k + share) / len(names))
        )
        started = time.monotonic()
        try:
            found[name] = measured(name, part, out)
        except InputError as error:
            trouble[name] = str(error)
        say(f"{name}: {trouble.get(name) or f'{len(found[name])} quantities, {time.monotonic() - started:.0f} s'}")
    rows = []
    for claim in claims:
        of = found.get(claim.experiment or "", {})
        mine = {q.name: of[q.name] for q in claim.quantities if q.name in of}
        rows.append(Row(claim, decide(claim, mine), mine, trouble.get(claim.experiment or "", "")))
    return Ledger(rows, found)
