"""Run the experiments that claims need, keep what they measured, and decide. A rerun reuses what is finished.

OUT/evidence/<experiment>-<size>-seed<k>.json   quantities with intervals, and how long it took
OUT/runs/<experiment>-<size>-seed<k>-<code>/    its runs, resumable by themselves

Evidence belongs to the code that measured it: a digest of every source file that can decide a number. A change of the ledger's
words, thresholds or page leaves it valid, and verdicts are computed anew from it.
"""

import hashlib
import json
import math
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from workbench.claims.claim import Claim, Measured, Verdict, decide
from workbench.claims.experiments import EXPERIMENTS, SINGLE, experiment
from workbench.claims.not_at_hand import NotAtHand
from workbench.claims.setting import Setting, unheard
from workbench.errors import InputError
from workbench.record import git_revision, write_atomically
from workbench.strict_json import strict_json

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("controllers", "kernels", "sims", "workbench")
SUFFIXES = (".py", ".cpp", ".json", ".toml")
# What is said about numbers, and how they are shown, decides none of them.
WORDS = ("workbench/cli/", "workbench/report/", "workbench/claims/papers/", "workbench/analysis/pictures/")
WORD_FILES = tuple(
    f"workbench/claims/{name}.py"
    for name in ("authority_map", "claim", "factorial_chart", "ledger", "page", "picture", "registry", "short_table")
)


@dataclass(frozen=True)
class Row:
    """One decided claim. `trouble`: why its experiment gave nothing; `at_hand` False: what it needs is not on this machine."""

    claim: Claim
    verdict: Verdict
    found: Mapping[str, Measured]
    trouble: str = ""
    at_hand: bool = True


@dataclass(frozen=True)
class Ledger:
    """Decided claims, everything their experiments measured (experiment -> quantity), and how long each took when it was measured."""

    rows: Sequence[Row]
    found: Mapping[str, Mapping[str, Measured]]
    seconds: Mapping[str, float]


@cache
def code_digest(name: str) -> str:
    """Of every source file that can decide a number of experiment `name`: all but words, and other experiments it does not import."""
    folder = Path(__file__).parent / "experiments"
    own = folder / f"{name}.py"
    text = own.read_text(encoding="utf-8") if own.is_file() else ""
    others = {p for p in folder.glob("*.py") if p != own and f"claims.experiments.{p.stem} " not in text}
    digest = hashlib.sha256()
    for source in SOURCES:
        for path in sorted((ROOT / source).rglob("*")):
            place = path.relative_to(ROOT).as_posix()
            if path.suffix not in SUFFIXES or place.startswith(WORDS) or place in WORD_FILES or path in others:
                continue
            digest.update(place.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def measured(name: str, setting: Setting) -> tuple[Mapping[str, Measured], float]:
    """The quantities of one experiment and the seconds it took, from disk where this size, seed and code has been measured.

    `setting.directory` is the ledger's.
    """
    out, key = setting.directory, f"{name}-{setting.size('quick', 'full')}-seed{setting.seed}"
    path, code = out / "evidence" / f"{key}.json", code_digest(name)
    given = str(setting.vllm) if name == "factorial_vllm" else None
    if path.is_file():
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept.get("code") == code and kept.get("given") == given:
            return {q: _read(one) for q, one in kept["quantities"].items()}, float(kept["seconds"])
    started = time.monotonic()
    # Runs of other code are not taken for this one's.
    found = experiment(name)(replace(setting, directory=out / "runs" / f"{key}-{code[:12]}"))
    seconds = round(time.monotonic() - started, 1)
    body = {"experiment": name, "code": code, "revision": git_revision(), "given": given, "seconds": seconds}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, strict_json(body | {"quantities": {q: _plain(m) for q, m in found.items()}}).encode())
    return found, seconds


def _plain(found: Measured) -> dict[str, object]:
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(found).items()}


def _read(kept: Mapping[str, object]) -> Measured:
    ends = {"low": -math.inf, "high": math.inf}
    return Measured(**{k: ends.get(k, 0.0) if v is None else v for k, v in kept.items()})  # type: ignore[arg-type]


Result = tuple[Mapping[str, Measured], float]


@contextmanager
def side_by_side(names: Sequence[str], setting: Setting) -> Iterator[dict[str, "Future[Result]"]]:
    """Experiments of one core each at work in processes of their own; nothing is started for one alone, or with one job."""
    if len(names) < 2 or setting.jobs < 2:
        yield {}
        return
    quiet = replace(setting, tell=unheard)
    # The longest first: they are the last of the table.
    with ProcessPoolExecutor(setting.jobs, multiprocessing.get_context("spawn")) as pool:
        try:
            yield {name: pool.submit(measured, name, quiet) for name in reversed(names)}
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def run_claims(claims: Sequence[Claim], setting: Setting, say: Callable[[str], None]) -> Ledger:
    """Every claim decided, in order. An experiment that fails leaves its claims inconclusive, and says why; one whose inputs
    are not at hand leaves them not testable here."""
    needed = {c.experiment for c in claims}
    names = [name for name in EXPERIMENTS if name in needed]
    found: dict[str, Mapping[str, Measured]] = {}
    seconds: dict[str, float] = {}
    trouble: dict[str, InputError] = {}
    beside = [name for name in names if name in SINGLE]
    with side_by_side(beside, setting) as started:
        for k, name in enumerate(names):
            say(f"[{k + 1}/{len(names)}] {name}")
            part = setting.part(k / len(names), (k + 1) / len(names))
            try:
                found[name], seconds[name] = started[name].result() if name in started else measured(name, part)
                say(f"    {len(found[name])} quantities, measured in {seconds[name]:.0f} s")
            except InputError as error:
                trouble[name] = error
                say(f"    {'needs ' if isinstance(error, NotAtHand) else ''}{error}")
            part.tell(1.0)
    rows = []
    for claim in claims:
        of, error = found.get(claim.experiment or "", {}), trouble.get(claim.experiment or "")
        mine = {q.name: of[q.name] for q in claim.quantities if q.name in of}
        if isinstance(error, NotAtHand):
            rows.append(Row(claim, Verdict.NOT_TESTABLE, mine, f"it needs {error}", at_hand=False))
        else:
            rows.append(Row(claim, decide(claim, mine), mine, str(error) if error else ""))
    return Ledger(rows, found, seconds)
