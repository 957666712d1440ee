"""Run recorded observations through the controllers again: every action must come out bit for bit.

This is the proof that a controller is a pure step: the record alone, without the plant, determines what it did. It
also finds a record that was altered: the tables' SHA-256 must match the manifest, and each action the stored one.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from workbench.catalog import build_controllers
from workbench.errors import InputError
from workbench.protocols import (
    BLANKS,
    Controllers,
    DecisionPoint,
    KeepObservation,
    Observation,
    OrderObservation,
    RevealObservation,
    RouteObservation,
    TemperatureObservation,
)
from workbench.record import read_manifest
from workbench.scenario import parse_scenario
from workbench.signals import FloatArray

OBSERVATIONS: dict[DecisionPoint, type[Observation]] = {
    DecisionPoint.ORDER: OrderObservation,
    DecisionPoint.TEMPERATURE: TemperatureObservation,
    DecisionPoint.KEEP: KeepObservation,
    DecisionPoint.REVEAL: RevealObservation,
    DecisionPoint.ROUTE: RouteObservation,
}


@dataclass(frozen=True)
class ReplayResult:
    """`first_difference` is None exactly when every recorded action was reproduced from an unaltered record."""

    num_decisions: int
    first_difference: str | None

    @property
    def ok(self) -> bool:
        return self.first_difference is None


def replay_arm(directory: Path) -> ReplayResult:
    """Replay one arm. Raises `InputError` where it was recorded without sequences (level `summary`)."""
    manifest = read_manifest(directory)
    path = directory / "sequences.parquet"
    if "sequences" not in manifest["tables"]:
        raise InputError(f"{directory}: recorded at level summary; replay needs level window or full")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    altered = hashlib.sha256(content).hexdigest() != manifest["tables"]["sequences"]
    try:
        table = pq.read_table(pa.BufferReader(content))
    except pa.ArrowInvalid as error:
        raise InputError(f"{path}: damaged Parquet file ({error})") from None
    scenario = parse_scenario(manifest["scenario"])
    controllers = build_controllers(scenario.controllers, manifest["controller_context"])
    count, difference = replay_table(table, controllers, manifest["num_slots"])
    if difference is None and altered:
        difference = f"{path.name} is not the recorded one: its SHA-256 differs from the manifest's"
    return ReplayResult(count, difference)


def replay_table(table: pa.Table, controllers: Controllers, num_slots: int) -> tuple[int, str | None]:
    """(decisions replayed, what differed first or None)."""
    states = {point: controller.init(num_slots) for point, controller in controllers.items()}
    widths = json.loads((table.schema.metadata or {}).get(b"widths", b"{}"))
    count = 0
    for point, controller in controllers.items():
        rows = table.filter(pc.equal(table["point"].cast(pa.string()), point.value))
        for observation, recorded in _decisions(rows, point, num_slots, widths):
            states[point], action = controller.step(states[point], observation)
            count += 1
            difference = _compare(action, recorded, observation)
            if difference is not None:
                return count, f"step {observation.step}, {point.value}: {difference}"
    return count, None


def _decisions(
    rows: pa.Table, point: DecisionPoint, num_slots: int, widths: Mapping[str, int]
) -> Iterator[tuple[Observation, dict[str, np.ndarray]]]:
    """Rebuild each observation of a decision point with the recorded actions [rows] beside it."""
    if rows.num_rows == 0:
        return
    columns = {
        name: rows[name].combine_chunks()
        for name in rows.column_names
        if name.startswith(("obs_", "act_")) and rows[name].null_count < rows.num_rows
    }
    flat = {name: c.to_numpy(zero_copy_only=False) for name, c in columns.items() if not pa.types.is_list(c.type)}
    lists = {
        name: (c.flatten().to_numpy(zero_copy_only=False), c.offsets.to_numpy())
        for name, c in columns.items()
        if pa.types.is_list(c.type)
    }
    step, slot = rows["step"].to_numpy(), rows["slot"].to_numpy()
    starts = np.concatenate([[0], np.flatnonzero(np.diff(step)) + 1, [step.size]])
    observation_type = OBSERVATIONS[point]
    for begin, end in pairwise(starts):
        slots = slot[begin:end]

        def values(name: str, begin: int = begin, end: int = end) -> np.ndarray:
            if name in flat:
                return flat[name][begin:end]
            content, offsets = lists[name]
            return content[offsets[begin] : offsets[end]].reshape(end - begin, -1)

        dense: dict[str, Any] = {"step": int(step[begin]), "active": np.zeros(num_slots, bool)}
        dense["active"][slots] = True
        for field in fields(observation_type):
            if field.name in ("step", "active"):
                continue
            name = f"obs_{field.name}"
            if field.type not in BLANKS and name not in columns:
                continue  # optional, and not measured in this run
            dtype, fill = BLANKS.get(field.type, BLANKS[FloatArray])
            shape = (num_slots, widths[name]) if name in widths else (num_slots,)
            array = np.full(shape, -1 if field.name == "request_id" else fill, dtype)
            part = values(name)
            array[(slots, slice(0, part.shape[1])) if part.ndim == 2 else slots] = part
            dense[field.name] = array
        yield (
            observation_type(**dense),
            {name[4:]: values(name) for name in (*flat, *lists) if name.startswith("act_")},
        )


def _compare(action: Any, recorded: dict[str, np.ndarray], observation: Observation) -> str | None:
    slots = np.flatnonzero(observation.active)
    for field in fields(action):
        value = getattr(action, field.name)
        if value is None:
            continue
        if field.name not in recorded:
            return f"{field.name} was not recorded"
        stored = recorded[field.name]
        rows = value[slots] if isinstance(value, np.ndarray) else np.full(slots.size, value)
        if rows.ndim == 2:
            tail = rows[:, stored.shape[1] :]
            blank = np.isnan(tail) if tail.dtype == np.float64 else tail == 0
            rows, full = rows[:, : stored.shape[1]], bool(blank.all())
            if not full:
                return f"{field.name} is wider than recorded"
        same = _same_bits(rows, stored)
        if not same.all():
            where = np.argwhere(~same)[0]
            return (
                f"{field.name} of request {observation.request_id[slots[where[0]]]} is "
                f"{rows[tuple(where)]!r}, recorded {stored[tuple(where)]!r}"
            )
    return None


def _same_bits(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype == np.float64 or b.dtype == np.float64:
        left: FloatArray = np.asarray(a, np.float64)
        right: FloatArray = np.asarray(b, np.float64)
        return (left.view(np.int64) == right.view(np.int64)) | (np.isnan(left) & np.isnan(right))
    return np.asarray(a == b)
