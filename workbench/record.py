"""What a run leaves on disk: per arm and seed a folder with a manifest and three Parquet tables.

    steps.parquet      a row per engine step (time, energy, FLOPs, KV bytes, queue, KV blocks, mean H and T)
    requests.parquet   a row per request (arrival, first token, end, status, entropic time, NLL)
    sequences.parquet  a row per decision and slot (what replay needs: `point`, `obs_*`, `act_*`, `app_*` where the plant
                       applied something else), and a row per sampled token (`point` = "measure")
    manifest.json      resolved scenario, seed, versions, hardware, git revision, SHA-256 of each table

Levels: `summary` writes no sequences; `window` the first `window_steps` engine steps; `full` all of them. Tables
are byte-identical for a seed on one machine and one set of pins: nothing in them depends on the wall clock. Files are
written under a temporary name and renamed, the manifest last: a folder with a manifest is complete.
"""

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from workbench.engine.plant import EnginePlant
from workbench.engine.requests import RequestStatus
from workbench.errors import InputError
from workbench.protocols import Action, DecisionPoint, Observation
from workbench.scenario import Scenario
from workbench.strict_json import strict_json

MANIFEST = "manifest.json"
TABLES = ("steps", "requests", "sequences")
PACKAGES = (
    "entropic-workbench",
    "numpy",
    "scipy",
    "numba",
    "simpy",
    "pyarrow",
    "polars",
    "torch",
    "triton",
    "transformers",
)


class ArmRecorder:
    """A `Recorder` for one arm and seed; `finish` writes the folder."""

    def __init__(self, level: str, window_steps: int) -> None:
        self.window_steps = {"summary": 0, "window": window_steps, "full": sys.maxsize}[level]
        self._rows: dict[DecisionPoint, list[dict[str, np.ndarray]]] = {}
        self._widths: dict[str, int] = {}

    @property
    def token_window(self) -> int | None:
        """The `window_steps` of the plant's telemetry that goes with this level."""
        return None if self.window_steps == sys.maxsize else self.window_steps

    def decision(self, observation: Observation, action: Action, applied: Action) -> None:
        if observation.step < self.window_steps:
            self.take_rows(observation.point, decision_row(observation, action, applied))

    def take_rows(self, point: DecisionPoint, row: dict[str, np.ndarray]) -> None:
        """Columns of one or more decisions, as `decision_row` makes them."""
        self._widths |= {name: values.shape[1] for name, values in row.items() if values.ndim == 2}
        self._rows.setdefault(point, []).append(row)

    def finish(
        self,
        directory: Path,
        plant: EnginePlant,
        scenario: Scenario,
        seed: int,
        *,
        arm: Mapping[str, Any] | None,
        extra: Mapping[str, Any] | None = None,
        request_columns: Mapping[str, Any] | None = None,
    ) -> Path:
        """Write tables and manifest into `directory`; returns it. Raises `InputError` where nothing can be written."""
        tables = {
            "steps": pa.table(plant.telemetry.step_table()),
            "requests": request_table(plant, request_columns or {}),
        }
        if self.window_steps:
            tables["sequences"] = self.sequence_table(plant.telemetry.tokens)
        manifest = {
            "scenario": scenario.plain(),
            "name": scenario.name,
            "plant": scenario.plant,
            "arm": None if arm is None else dict(arm),
            "seed": seed,
            "num_slots": plant.num_slots,
            "kind_names": list(plant.requests.kind_names),
            "horizon_s": plant.config.horizon_s if np.isfinite(plant.config.horizon_s) else None,
            "num_blocks": plant.config.num_blocks,
            "block_size": plant.config.block_size,
            **(extra or {}),
        }
        return write_arm(directory, tables, manifest)

    def sequence_table(self, tokens: Sequence[Mapping[str, np.ndarray]]) -> pa.Table:
        """Every decision, and `tokens` (columns a step) under the point "measure"."""
        parts = []
        for point, rows in self._rows.items():
            columns = {name: _column([row[name] for row in rows if name in row]) for name in rows[0]}
            length = len(columns["step"])
            parts.append(pa.table({"point": pa.array([point.value] * length).dictionary_encode(), **columns}))
        if tokens:
            columns = {name: _column([row[name] for row in tokens]) for name in tokens[0]}
            length = len(columns["step"])
            parts.append(pa.table({"point": pa.array(["measure"] * length).dictionary_encode(), **columns}))
        if not parts:
            return pa.table({"point": pa.array([], pa.string()), "step": pa.array([], pa.int64())})
        table = pa.concat_tables([part.unify_dictionaries() for part in parts], promote_options="permissive")
        return table.replace_schema_metadata({"widths": json.dumps(self._widths, sort_keys=True)})


def write_arm(directory: Path, tables: Mapping[str, pa.Table], manifest: Mapping[str, Any]) -> Path:
    """Write tables and manifest into `directory`; returns it. Raises `InputError` where nothing can be written."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        hashes = {name: write_table(directory / f"{name}.parquet", table) for name, table in tables.items()}
        whole = {"format": 1, "tables": hashes, "versions": versions(), "machine": machine(), **manifest}
        whole["git_revision"] = git_revision()
        write_atomically(directory / MANIFEST, strict_json(whole).encode())
    except OSError as error:
        raise InputError(f"cannot write {directory}: {error.strerror or error}; finished arms are kept") from None
    return directory


def decision_row(observation: Observation, action: Action, applied: Action) -> dict[str, np.ndarray]:
    """One decision as columns, a row per active slot: what replay needs."""
    slots = np.flatnonzero(observation.active)

    def rows_of(value: Any) -> np.ndarray:
        return value[slots] if isinstance(value, np.ndarray) else np.full(slots.size, value)

    row: dict[str, np.ndarray] = {"step": np.full(slots.size, observation.step), "slot": slots}
    for field in fields(observation):
        value = getattr(observation, field.name)
        if field.name not in ("step", "active") and value is not None:
            row[f"obs_{field.name}"] = rows_of(value)
    for field in fields(action):
        value, real = getattr(action, field.name), getattr(applied, field.name)
        if value is not None:
            row[f"act_{field.name}"] = rows_of(value)
        if real is not value and real is not None:
            row[f"app_{field.name}"] = rows_of(real)
    return row


def _column(parts: list[np.ndarray]) -> pa.Array:
    """One column; two-dimensional parts become lists, blanks at the end of each row left out (they are rebuilt)."""
    if parts[0].ndim == 1:
        return pa.array(np.concatenate(parts))
    values, lengths = [], []
    for part in parts:
        blank = np.isnan(part) if part.dtype == np.float64 else part == 0
        used = np.flatnonzero(~blank.all(axis=0))
        width = int(used[-1]) + 1 if used.size else 0
        values.append(part[:, :width].ravel())
        lengths.append(np.full(part.shape[0], width))
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate(values)))


def request_table(plant: EnginePlant, extra: Mapping[str, Any]) -> pa.Table:
    requests, ledger = plant.requests, plant.ledger
    n = len(requests)
    status = [RequestStatus(code).name.lower() for code in ledger.status]
    return pa.table(
        {
            "request_id": np.arange(n),
            "kind": pa.array([requests.kind_names[k] for k in requests.kind]).dictionary_encode(),
            "priority": requests.priority,
            "prompt_tokens": requests.prompt_tokens,
            "asked_tokens": requests.output_tokens,
            "output_tokens": ledger.generated_tokens,
            "arrival_s": requests.arrival_s,
            "first_scheduled_s": ledger.first_scheduled_s,
            "first_token_s": ledger.first_token_s,
            "finished_s": ledger.finished_s,
            "num_preempted": ledger.num_preempted,
            "recomputed_tokens": ledger.recomputed_tokens,
            "prefix_hit_tokens": ledger.prefix_hit_tokens,
            "num_swapped": ledger.num_swapped,
            "num_retried": ledger.num_retried,
            "replica": ledger.replica,
            "status": pa.array(status).dictionary_encode(),
            **plant.telemetry.request_columns(),
            **extra,
        }
    )


def write_table(path: Path, table: pa.Table) -> str:
    """Write a Parquet table under a temporary name, rename it, and return its SHA-256."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:  # a file object: Arrow takes no path that is not UTF-8
            pq.write_table(table, file, compression="zstd", write_statistics=True)
        digest = hashlib.sha256(temporary.read_bytes()).hexdigest()
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return digest


def write_atomically(path: Path, content: bytes) -> None:
    """The old file, the new file, or none; never half of one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest of one arm. Raises `InputError` if there is none or it is damaged."""
    path = directory / MANIFEST
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{directory}: no {MANIFEST}; not a finished arm of a run") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path}: damaged or unreadable ({error}); run the arm again") from None


def find_arms(run: Path) -> list[Path]:
    """Every finished arm below a run directory (or the directory itself), in name order."""
    if not run.is_dir():
        raise InputError(f"no run directory at {run}")
    arms = sorted(path.parent for path in run.rglob(MANIFEST) if "tables" in read_manifest(path.parent))
    if not arms:
        raise InputError(f"{run}: no finished arm below it (no {MANIFEST})")
    return arms


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return {"system": platform.system(), "processor": model, "num_cores": os.cpu_count()}


def git_revision() -> str | None:
    """Revision of the source tree this package runs from, with `+` where it has uncommitted changes."""
    root = Path(__file__).resolve().parents[1]

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, timeout=10, check=True
        ).stdout

    try:
        return git("rev-parse", "HEAD").strip() + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None
