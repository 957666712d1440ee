"""The main job, end to end: record on the real model, calibrate, simulate the factorial, run it live, report.

    RUN/record/T<x>/seed0        the real model on the built-in prompts, every step recorded
    RUN/calibration.json         entropy process, mass process and step cost fitted to it
    RUN/sim/<cell>/<arm>/seed<k> eight arms x four loads x two memories x seeds, a trace on a GPU that is not here
    RUN/live/<arm>/seed<k>       the same eight arms on the real model
    RUN/report.html

Every arm that is finished stays; the same command resumes where it was interrupted, because an arm whose manifest
holds the same resolved scenario and seed is not run again.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from workbench.arm_task import ArmTask, run_here, run_in_processes
from workbench.errors import InputError
from workbench.factorial import ARM_CODES, FactorialSettings, switches
from workbench.metrics import BASELINE, RunFigures
from workbench.scenario import Scenario, parse_scenario

BASE_TEMPERATURE = 0.7  # constant temperature of the arms without a loop, and of the live baseline
RECORD_TEMPERATURES = (BASE_TEMPERATURE, 1.0)
TRACE = Path("data/traces/azure_llm_2023/AzureLLMInferenceTrace_conv.csv")
SLO = {"ttft_s": 2.0, "tpot_s": 0.05}
HEADLINE = ("ttft_p50_s", "tpot_p50_s", "e2e_p99_s", "output_tokens_per_s", "entropy_error_nats", "nll_nats")


@dataclass(frozen=True, kw_only=True)
class JobSize:
    """How much of everything. `quick` takes the same path at small size."""

    record_prompts: int
    record_tokens: int
    sim_requests: int
    sim_seeds: tuple[int, ...]
    loads: tuple[float, ...]
    live_requests: int
    live_tokens: int
    live_seeds: tuple[int, ...]
    window_steps: int


FULL = JobSize(
    record_prompts=30, record_tokens=128, sim_requests=2000, sim_seeds=(0, 1), loads=(0.5, 0.8, 0.95, 1.1),
    live_requests=30, live_tokens=96, live_seeds=(0, 1), window_steps=400,
)  # fmt: skip
QUICK = JobSize(
    record_prompts=24, record_tokens=24, sim_requests=200, sim_seeds=(0,), loads=(0.5, 0.8, 0.95, 1.1),
    live_requests=8, live_tokens=16, live_seeds=(0,), window_steps=100,
)  # fmt: skip

# Share of the KV memory that the weights leave: all of it, or so little that requests queue for blocks.
MEMORIES = {"ample": 1.0, "tight": 0.08}


def find_trace(asked: Path | None) -> Path | None:
    """The trace to replay: the one asked for, else the Azure 2023 conversation trace in $ENTROPIC_DATA or beside the
    source tree (../shared/data); None where neither holds it, and then a generator fitted to it is used."""
    if asked is not None:
        if not asked.is_file():
            raise InputError(f"no trace file at {asked}; give an existing path to --trace")
        return asked.resolve()
    return find_data(TRACE)


def find_data(path: Path) -> Path | None:
    """A file of the public data, such as data/traces/..., in $ENTROPIC_DATA or beside the source tree; None where neither has it."""
    root = os.environ.get("ENTROPIC_DATA")
    folders = [Path(root)] if root else [Path(__file__).resolve().parents[2] / "shared"]
    for folder in folders:
        for candidate in (folder / path, folder / path.relative_to("data")):
            if candidate.exists():
                return candidate
    return None


def record_tasks(run: Path, size: JobSize, model: str, backend: str) -> list[ArmTask]:
    """The real model on the built-in prompts at each recording temperature, everything measured, nothing steered."""
    tasks = []
    for temperature in RECORD_TEMPERATURES:
        scenario = parse_scenario(
            {
                "name": f"record at T = {temperature:g}",
                "plant": "live",
                "level": "full",
                "workload": {"num_requests": size.record_prompts, "max_tokens": size.record_tokens},
                "engine": {"temperature": temperature, "max_running": 16},
                "live": {"model": model, "backend": backend},
                "controllers": {"keep": {"kind": "keep-all"}},  # measures block masses, drops nothing
            }
        )
        directory = run / "record" / f"T{temperature:g}" / "seed0"
        tasks.append(ArmTask(scenario, 0, directory, None, {"role": "record"}))
    return tasks


def recorded_target_nats(record: Path) -> float:
    """Mean tempered entropy of a recorded arm, over tokens: what the loop is asked to hold."""
    tokens = pl.read_parquet((record / "sequences.parquet").read_bytes()).filter(pl.col("point") == "measure")
    return float(np.float32(tokens["entropy_nats"].mean()))


def simulated_scenario(
    size: JobSize, *, trace: Path | None, calibration: Path, seed: int, memory: str, rate_per_s: float, target: float
) -> Scenario:
    """A slice of the trace on an H100 with Llama-3-8B; each seed takes the next slice."""
    return parse_scenario(
        {
            "name": f"H100, Llama-3-8B, {memory} KV memory",
            "plant": "sim",
            "level": "summary",
            "window_steps": size.window_steps,
            "workload": {
                "trace": trace,
                "num_requests": size.sim_requests,
                "first_request": seed * size.sim_requests if trace else 0,
                "rate_per_s": rate_per_s,
            },
            "hardware": {"calibration": calibration, "kv_memory_frac": MEMORIES[memory]},
            "engine": {"temperature": BASE_TEMPERATURE, "entropy_target_nats": target, "max_running": 128},
        }
    )


def capacity_tasks(run: Path, size: JobSize, trace: Path | None, calibration: Path, target: float) -> list[ArmTask]:
    """Everything at once, first come first served: what the machine serves a second when it never idles."""
    return [
        ArmTask(
            simulated_scenario(
                size, trace=trace, calibration=calibration, seed=0, memory=memory, rate_per_s=1e6, target=target
            ),
            0,
            run / "capacity" / memory / "seed0",
            None,
            {"role": "capacity", "memory": memory},
        )
        for memory in MEMORIES
    ]


def capacity_per_s(arm: Path) -> float:
    """Requests a second in the middle of a saturated run: between the 20th and the 80th percentile of completions."""
    requests = pl.read_parquet((arm / "requests.parquet").read_bytes())
    done = np.sort(requests["finished_s"].drop_nans().drop_nulls().to_numpy())
    if done.size < 10:
        raise InputError(f"{arm}: only {done.size} requests completed; capacity needs at least 10")
    low, high = int(0.2 * done.size), int(0.8 * done.size)
    return float((high - low) / (done[high] - done[low]))


def factorial_tasks(
    run: Path, size: JobSize, trace: Path | None, calibration: Path, target: float, capacity: dict[str, float]
) -> list[ArmTask]:
    settings = FactorialSettings(target_entropy_nats=target, temperature_start=BASE_TEMPERATURE)
    tasks = []
    for memory in MEMORIES:
        for load in size.loads:
            for code in ARM_CODES:
                for seed in size.sim_seeds:
                    scenario = simulated_scenario(
                        size,
                        trace=trace,
                        calibration=calibration,
                        seed=seed,
                        memory=memory,
                        rate_per_s=load * capacity[memory],
                        target=target,
                    ).with_changes(
                        controllers=settings.controllers(code),
                        level="window" if seed == 0 and load == 0.95 else "summary",
                    )
                    directory = run / "sim" / f"load{load:g}-{memory}" / _folder(code) / f"seed{seed}"
                    extra = {"load_frac": load, "memory": memory, "slo": SLO, "capacity_per_s": capacity[memory]}
                    tasks.append(ArmTask(scenario, seed, directory, switches(code), extra))
    return tasks


def live_tasks(run: Path, size: JobSize, model: str, backend: str, target: float, rate_per_s: float) -> list[ArmTask]:
    settings = FactorialSettings(target_entropy_nats=target, temperature_start=BASE_TEMPERATURE, recent_blocks=2)
    tasks = []
    for seed in size.live_seeds:
        for code in ARM_CODES:
            scenario = parse_scenario(
                {
                    "name": "live arms",
                    "plant": "live",
                    "level": "full",
                    "workload": {
                        "num_requests": size.live_requests,
                        "max_tokens": size.live_tokens,
                        "rate_per_s": rate_per_s,
                    },
                    "engine": {"temperature": BASE_TEMPERATURE, "entropy_target_nats": target, "max_running": 8},
                    "live": {"model": model, "backend": backend},
                    "controllers": settings.controllers(code),
                }
            )
            directory = run / "live" / _folder(code) / f"seed{seed}"
            tasks.append(ArmTask(scenario, seed, directory, switches(code), {"slo": SLO}))
    return tasks


def _folder(code: str) -> str:
    return "none" if code == BASELINE else code


def live_rate_per_s(record: Path, size: JobSize) -> float:
    """An arrival rate at which the recorded model is about 80 % busy with the live arms' answers."""
    steps = pl.read_parquet((record / "steps.parquet").read_bytes())
    tokens_per_s = steps["num_sampled"].sum() / steps["elapsed_s"].sum()
    requests = pl.read_parquet((record / "requests.parquet").read_bytes())
    return float(0.8 * tokens_per_s / min(size.live_tokens, requests["output_tokens"].mean()))


def main_job(
    run: Path, size: JobSize, *, model: str, backend: str, trace: Path | None, jobs: int, stage: Callable[[str], Any]
) -> Iterator[str]:
    """Run all stages; yields a line for people after each. `stage(name)` is a context manager that gives a progress."""
    from sims.calibrate import calibrate
    from sims.calibration import write_calibration

    records = record_tasks(run, size, model, backend)
    with stage("record on the real model") as tell:
        run_here(records, tell)
    baseline = records[0].directory
    target = recorded_target_nats(baseline)
    yield f"recorded {len(records)} arms; mean entropy at T = {BASE_TEMPERATURE:g} is {target:.2f} nats, the loop's target"

    calibration = run / "calibration.json"
    with stage("calibrate"):
        write_calibration(calibration, calibrate(run / "record", arms=[task.directory for task in records]))
    yield f"calibrated: {calibration}"

    saturated = capacity_tasks(run, size, trace, calibration, target)
    with stage("capacity of the simulated machine") as tell:
        run_in_processes(saturated, jobs, tell)
    capacity = {task.extra["memory"]: capacity_per_s(task.directory) for task in saturated}
    source = trace.name if trace else "generated requests (no trace at hand: fitted to the published statistics)"
    yield f"{source}: " + ", ".join(f"{memory} memory {rate:.2f} requests/s" for memory, rate in capacity.items())

    with stage("simulate the factorial") as tell:
        run_in_processes(factorial_tasks(run, size, trace, calibration, target, capacity), jobs, tell)
    with stage("run the eight arms live") as tell:
        run_here(live_tasks(run, size, model, backend, target, live_rate_per_s(baseline, size)), tell)
    yield "eight arms simulated and run live"


def job_figures(found: RunFigures) -> dict[str, float | int | None]:
    """Name to number: `<plant>_<load>_<memory>_<arm>_<metric>` of the headline metrics, and how many arms ran."""
    figures: dict[str, float | int | None] = {"cells": len(found.cells), "arms": sum(len(c.arms) for c in found.cells)}
    for cell in found.cells:
        for code in cell.arms:
            for metric in HEADLINE:
                figures[f"{cell.cell.key}_{_folder(code)}_{metric}"] = cell.value(code, metric)
    return figures
