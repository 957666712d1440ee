"""Where each controller and each pair moves latency, throughput and dtau/dC: the simulator over six settings of a server.

    rows      one setting varied from the base (H100, Llama-3-8B, prompts of 1,024 tokens on average, 16 sequences a batch):
              context length, batch, GPU, model
    columns   KV memory (all of it, or room for 12 average requests) and arrival rate (a share of the cell's own capacity)

Requests are slices of the Azure conversation trace with lengths scaled to the row's mean prompt and to 48 output tokens on
average, so that a cell is cheap; eight arms of one seed share requests and draws. A cell and a seed are one task, kept on
disk, so a run resumes. Quantities, [row] and [column] as in ROWS and COLUMNS, arm as in `metrics.arm`:

    [row]/[column]/ARM_NAME       gain over the baseline (see `paired`)
    [row]/[column]/ARM_d_NAME     what changed, in the simulator's own accounting (CHANGES)
    [row]/[column]/held_NAME      what the baseline is held by (see `mechanism`)
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sims.arrivals import azure_lengths, poisson_arrivals
from sims.traces import read_trace
from workbench.arm import run_arm
from workbench.arm_task import run_in_processes
from workbench.claims.claim import Measured
from workbench.claims.interval import over_seeds
from workbench.claims.mechanism import HELD_BY, held_by_shares
from workbench.claims.paired import TOLD, arm_values, gains, records_of, value_of
from workbench.claims.setting import Setting
from workbench.claims.trace_slice import trace_rows
from workbench.factorial import FactorialSettings
from workbench.main_job import BASE_TEMPERATURE, find_trace
from workbench.metrics.arm import ARM_CODES, BASELINE
from workbench.metrics.records import Records
from workbench.record import write_atomically
from workbench.scenario import Scenario, parse_scenario
from workbench.signals import FloatArray, IntArray
from workbench.strict_json import strict_json

OUTPUT_TOKENS = 48  # mean of a request
TIGHT_REQUESTS = 12  # average requests that tight KV memory holds
BLOCK_TOKENS = 16


@dataclass(frozen=True)
class Row:
    """One setting away from the base."""

    label: str
    prompt_tokens: int = 1024
    batch: int = 16
    gpu: str = "H100"
    model: str = "Llama-3-8B"


ROWS = {
    "base": Row("base: H100, 8B, 1k, 16"),
    "context-256": Row("context 256", prompt_tokens=256),
    "context-4096": Row("context 4,096", prompt_tokens=4096),
    "batch-4": Row("batch 4", batch=4),
    "batch-64": Row("batch 64", batch=64),
    "A100": Row("A100", gpu="A100-80G"),
    "L4": Row("L4", gpu="L4"),
    "Llama-2-7B": Row("Llama-2-7B", model="Llama-2-7B"),
    "Llama-3-70B": Row("Llama-3-70B, 4 GPUs", model="Llama-3-70B"),
}
COLUMNS = tuple((memory, load) for memory in ("ample", "tight") for load in (0.5, 0.9, 1.3))
QUICK_ROWS = ("base", "context-4096")
QUICK_COLUMNS = (("ample", 0.5), ("ample", 1.3), ("tight", 1.3))
# What changed under an arm: name -> how (difference in units of the baseline's latency, or logarithm of the ratio)
CHANGES = ("queue", "service", "recomputed", "kv_read", "tau", "busy")


def column_key(memory: str, load: float) -> str:
    return f"{memory}_{load:g}"


@dataclass(frozen=True)
class CellTask:
    """One cell under one seed: the saturated baseline for its capacity, then eight arms at the asked loads."""

    row: str
    memory: str
    loads: tuple[float, ...]
    seed: int
    num_requests: int
    trace: Path | None
    directory: Path

    @property
    def path(self) -> Path:
        return self.directory / f"{self.row}-{self.memory}-seed{self.seed}.json"

    @property
    def finished(self) -> bool:
        return self.path.is_file()

    def run(self) -> None:
        if self.finished:
            return
        scratch = self.directory / "scratch" / self.path.stem
        one = ROWS[self.row]
        saturated = self._records(scratch, BASELINE, 1e6, 1.0)
        capacity_per_s = saturated.num_requests / (saturated.end_s - saturated.start_s)
        target = float(np.float32(value_of(saturated, "entropy_mean_nats")))
        found: dict[str, Any] = {"scenario": self.scenario(capacity_per_s, target).plain(), "cells": {}}
        for load in self.loads:
            arms = {c: self._records(scratch, c, load * capacity_per_s, target) for c in ARM_CODES}
            found["cells"][column_key(self.memory, load)] = {
                "values": {code: _plain(arm_values(of)) for code, of in arms.items()},
                "changes": {
                    code: changes(arms[BASELINE], of) for code, of in arms.items() if code != BASELINE
                },
                "held": held_by_shares(arms[BASELINE], one.gpu, one.model, one.batch),
            }  # fmt: skip
        shutil.rmtree(scratch, ignore_errors=True)
        self.directory.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, strict_json(found).encode())

    def scenario(self, rate_per_s: float, target_nats: float) -> Scenario:
        one = ROWS[self.row]
        requests = self._requests()
        engine: dict[str, Any] = {
            "temperature": BASE_TEMPERATURE, "entropy_target_nats": target_nats, "max_running": one.batch,
        }  # fmt: skip
        if self.memory == "tight":
            mean = (one.prompt_tokens + OUTPUT_TOKENS) * TIGHT_REQUESTS
            longest = max(p + o for p, o in requests)
            engine["num_blocks"] = max(mean, longest + 2 * BLOCK_TOKENS) // BLOCK_TOKENS
        return parse_scenario(
            {
                "name": f"claims: {one.label}, {self.memory} KV memory",
                "plant": "sim",
                "level": "summary",
                "workload": {
                    "trace": self._workload(requests),
                    "num_requests": self.num_requests,
                    "rate_per_s": rate_per_s,
                },
                "hardware": {"gpu": one.gpu, "model": one.model},
                "engine": engine,
            }
        )

    def _records(self, scratch: Path, code: str, rate_per_s: float, target_nats: float) -> Records:
        settings = FactorialSettings(target_entropy_nats=target_nats, temperature_start=BASE_TEMPERATURE)
        scenario = self.scenario(rate_per_s, target_nats).with_changes(controllers=settings.controllers(code))
        return records_of(run_arm(scenario, self.seed, scratch / f"{code}-{rate_per_s:.6g}"))

    def _requests(self) -> list[tuple[int, int]]:
        """(prompt, output) tokens of each request."""
        lengths = _lengths(self.trace, self.seed, self.num_requests, self.directory)
        factors = [ROWS[self.row].prompt_tokens / lengths[0].mean(), OUTPUT_TOKENS / lengths[1].mean()]
        prompt, output = (np.maximum(np.rint(x * f), 1).astype(int) for x, f in zip(lengths, factors, strict=True))
        return list(zip(np.minimum(prompt, 6000).tolist(), np.minimum(output, 512).tolist(), strict=True))

    def _workload(self, requests: list[tuple[int, int]]) -> Path:
        path = self.directory / "requests" / f"{self.row}-seed{self.seed}.csv"
        if not path.is_file():
            at = poisson_arrivals(self.num_requests, 1.0, self.seed)
            lines = [f"{t:.9f},{p},{o}" for t, (p, o) in zip(at, requests, strict=True)]
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, ("arrival_s,prompt_tokens,output_tokens\n" + "\n".join(lines) + "\n").encode())
        return path.resolve()


def _lengths(trace: Path | None, seed: int, count: int, directory: Path) -> tuple[IntArray, IntArray]:
    if trace is None:
        return azure_lengths("azure-conversation", count, seed)
    first = seed % (18_000 // count) * count
    rows = read_trace(trace_rows(trace, first, count, directory / "trace"))
    return rows.prompt_tokens, rows.output_tokens


def _plain(values: FloatArray) -> list[float | None]:
    return [float(v) if np.isfinite(v) else None for v in values]


def changes(before: Records, after: Records) -> dict[str, float]:
    """What an arm changed: waiting and serving in units of the baseline's mean latency, the rest as differences or logs."""
    queue = [value_of(r, "queue_wait_mean_s") for r in (before, after)]
    whole = [value_of(r, "e2e_mean_s") for r in (before, after)]
    busy = [float(np.nansum(r.step("elapsed_s"))) for r in (before, after)]
    return {
        "queue": (queue[1] - queue[0]) / whole[0],
        "service": (whole[1] - queue[1] - whole[0] + queue[0]) / whole[0],
        "recomputed": value_of(after, "recomputed_frac") - value_of(before, "recomputed_frac"),
        "kv_read": float(np.log(value_of(after, "kv_gb_per_request") / value_of(before, "kv_gb_per_request"))),
        "tau": float(np.log(value_of(after, "tau_nats") / value_of(before, "tau_nats"))),
        "busy": float(np.log(busy[1] / busy[0])),
    }


def measure(setting: Setting) -> Mapping[str, Measured]:
    seeds = range(setting.seed * 100, setting.seed * 100 + setting.size(4, 5))
    chosen = setting.size(QUICK_COLUMNS, COLUMNS)
    by_memory: dict[str, tuple[float, ...]] = {}
    for memory, load in chosen:
        by_memory[memory] = (*by_memory.get(memory, ()), load)
    tasks = [
        CellTask(row, memory, loads, seed, setting.size(32, 48), find_trace(None), setting.directory)
        for row in setting.size(QUICK_ROWS, tuple(ROWS))
        for memory, loads in by_memory.items()
        for seed in seeds
    ]
    run_in_processes(tasks, setting.jobs, setting.tell)
    found: dict[str, Measured] = {}
    for row in dict.fromkeys(task.row for task in tasks):
        for memory, load in chosen:
            key = column_key(memory, load)
            kept = [
                json.loads(task.path.read_text(encoding="utf-8"))["cells"][key]
                for task in tasks
                if task.row == row and task.memory == memory
            ]
            found |= {f"{row}/{key}/{name}": one for name, one in cell_quantities(kept).items()}
    return found | shares(found)


def cell_quantities(kept: list[Any]) -> dict[str, Measured]:
    """Of one cell, from its seeds."""
    values = {c: np.array([one["values"][c] for one in kept], dtype=np.float64) for c in ARM_CODES}
    found = gains(values, TOLD)
    for code in ARM_CODES:
        if code != BASELINE:
            for name in CHANGES:
                found[f"{code}_d_{name}"] = over_seeds(np.array([one["changes"][code][name] for one in kept]))
    return found | {
        f"held_{name}": over_seeds(np.array([one["held"][name] for one in kept], dtype=np.float64)) for name in HELD_BY
    }


def shares(found: Mapping[str, Measured]) -> dict[str, Measured]:
    """everywhere_NAME: the share of cells in which all three together gain. Its ends count only cells whose interval decides:
    from the share that surely gains to one minus the share that surely does not."""
    told = {}
    for name in TOLD:
        cells = [one for key, one in found.items() if key.endswith(f"/STP_{name}")]
        sure = sum(one.low > 0.0 for one in cells) / len(cells)
        never = sum(one.high <= 0.0 for one in cells) / len(cells)
        better = sum(one.value > 0.0 for one in cells) / len(cells)
        told[f"everywhere_{name}"] = Measured(
            better, sure, 1.0 - never, f"{len(cells)} cells, decided ones count", len(cells)
        )
    return told
