"""Arms on disk: a leaf is a directory whose manifest names an arm, with its tables beside it.

    RUN/sim/<cell>/<arm>/seed<k>/manifest.json    "arm", "plant", "load_frac", "memory", "seed", "tables"
    RUN/live/<arm>/seed<k>/manifest.json

Leaves are found by walking, so any depth works, a single `simulate` directory included.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from workbench.errors import InputError
from workbench.metrics.arm import arm_code
from workbench.metrics.records import Records, Slo, records_of

MANIFEST = "manifest.json"
TABLES = ("requests.parquet", "steps.parquet", "sequences.parquet")


@dataclass(frozen=True)
class Cell:
    """What the arms of one comparison share. Ordered: simulated before live, light load first, ample memory first."""

    plant: str
    load_frac: float | None
    memory: str | None

    @property
    def key(self) -> str:
        load = "" if self.load_frac is None else f"-load{self.load_frac:g}"
        return f"{self.plant}{load}{'' if self.memory is None else '-' + self.memory}"

    @property
    def order(self) -> tuple[bool, float, bool, str]:
        return (self.plant != "sim", self.load_frac or 0.0, self.memory == "tight", self.key)


@dataclass(frozen=True)
class Leaf:
    """One arm with one seed on disk."""

    path: Path
    cell: Cell
    code: str
    seed: int
    manifest: Mapping[str, Any]

    @property
    def slo(self) -> Slo:
        """From the manifest's "slo" {"ttft_s", "tpot_s"}; our default where it has none."""
        given = self.manifest.get("slo")
        known = {} if not isinstance(given, dict) else {name: _number(given.get(name)) for name in ("ttft_s", "tpot_s")}
        return Slo(**{name: value for name, value in known.items() if value is not None})

    @property
    def target_entropy_nats(self) -> float | None:
        """The H* that tracking error is measured from, in every arm: the engine's `entropy_target_nats`."""
        scenario = self.manifest.get("scenario")
        engine = scenario.get("engine") if isinstance(scenario, dict) else None
        target = engine.get("entropy_target_nats") if isinstance(engine, dict) else None
        return _number(self.manifest.get("entropy_target_nats", target))

    @property
    def step_cost_max_tokens(self) -> float:
        notes = self.manifest.get("notes")
        found = _number(notes.get("step_cost_max_tokens")) if isinstance(notes, dict) else None
        return float("nan") if found is None else found

    @property
    def num_replicas(self) -> int:
        scenario = self.manifest.get("scenario")
        hardware = scenario.get("hardware") if isinstance(scenario, dict) else None
        return int(_number(hardware.get("num_replicas", 1)) or 1) if isinstance(hardware, dict) else 1

    def frame(self, table: str) -> pl.DataFrame:
        try:
            return pl.read_parquet((self.path / table).read_bytes())
        except (OSError, pl.exceptions.PolarsError) as error:
            first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise InputError(f"{self.path / table} cannot be read ({first}); run that arm again") from error

    def records(self, with_token_times: bool) -> Records:
        """Columns of this arm. Token times (for ITL) are read from sequences.parquet only when asked: it is large."""
        sequences = None
        if with_token_times and (self.path / TABLES[2]).exists():
            sequences = self.frame(TABLES[2])
        return records_of(
            self.frame(TABLES[0]),
            self.frame(TABLES[1]),
            sequences,
            self.slo,
            self.num_replicas,
            self.step_cost_max_tokens,
        )


def find_leaves(run: Path) -> tuple[list[Leaf], list[str]]:
    """(leaves in order, one line for each directory that had to be left out)."""
    if not run.is_dir():
        raise InputError(f"run directory {run} does not exist; give the directory that `workbench run` printed")
    leaves: list[Leaf] = []
    skipped: list[str] = []
    for path in sorted(run.rglob(MANIFEST)):
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            skipped.append(f"{path.relative_to(run)}: not a complete manifest")
            continue
        # Recordings and capacity runs carry a role: they are inputs of a run, not arms to compare.
        if not isinstance(manifest, dict) or not isinstance(manifest.get("arm"), dict) or manifest.get("role"):
            continue
        missing = [name for name in TABLES[:2] if not (path.parent / name).exists()]
        if missing:
            skipped.append(f"{path.parent.relative_to(run)}: {' and '.join(missing)} missing")
            continue
        memory, seed = manifest.get("memory"), _number(manifest.get("seed"))
        cell = Cell(
            str(manifest.get("plant", "sim")),
            _number(manifest.get("load_frac")),
            str(memory) if memory is not None else None,
        )
        leaves.append(Leaf(path.parent, cell, arm_code(manifest["arm"]), int(seed or 0), manifest))
    return sorted(leaves, key=lambda leaf: (leaf.cell.order, leaf.code, leaf.seed)), skipped


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
