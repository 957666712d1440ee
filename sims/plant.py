"""The simulated plant: the shared engine with a simulated executor on a SimPy clock.

Time is SimPy's: an engine step is one event, and an idle engine waits with one. Other processes (faults) live in the same
environment and act between steps. Interval convention: a step covers [t, t + dt); what happens at exactly t + dt, an
arrival included, is in before the next batch is formed, after that step's completions have freed their blocks.
"""

from typing import Any

import numpy as np
import simpy

from sims.arrivals import (
    azure_like,
    gamma_arrivals,
    poisson_arrivals,
    requests_at,
    requests_from_trace,
)
from sims.calibration import Calibration, builtin_calibration, read_calibration
from sims.executor import SimExecutor
from sims.gpus import gpu_named
from sims.leap import can_leap, leap_through
from sims.models import ModelShape, model_named
from sims.roofline import roofline_step_cost
from sims.step_cost import StepCost
from sims.traces import read_trace
from workbench.engine.config import EngineConfig
from workbench.engine.plant import EnginePlant
from workbench.engine.requests import RequestSpec
from workbench.errors import InputError
from workbench.protocols import DecisionPoint
from workbench.scenario import Scenario, Workload

THIS_MACHINE = "calibrated"  # as `hardware.gpu`: the step cost fitted to the record, on the machine it was made on


class SimClock:
    """A `Clock` on a SimPy environment, one event a call."""

    def __init__(self, env: simpy.Environment | None = None) -> None:
        self.env = env or simpy.Environment()

    @property
    def now_s(self) -> float:
        return float(self.env.now)

    def advance(self, elapsed_s: float) -> None:
        self.env.run(until=self.env.timeout(elapsed_s))

    def wait_until(self, time_s: float) -> None:
        if time_s > self.env.now:
            # A timeout's time is a sum of floats: set the clock to exactly `time_s`.
            self.env.run(until=time_s)


def build_requests(workload: Workload, calibration: Calibration, seed: int) -> tuple[RequestSpec, dict[str, Any]]:
    """The requests of a scenario, and notes on where they come from."""
    kinds = calibration.kinds
    notes: dict[str, Any] = {}
    if workload.trace is not None:
        trace = read_trace(workload.trace, format=workload.trace_format)
        spec = requests_from_trace(
            trace, first=workload.first_request, count=workload.num_requests, rate_multiplier=workload.rate_multiplier,
            rate_per_s=workload.rate_per_s, kinds=kinds, seed=seed,
        )  # fmt: skip
        notes["workload"] = (
            f"{trace.summary()}; requests {workload.first_request} to {workload.first_request + len(spec)}"
        )
        notes["workload_notes"] = list(trace.notes)
    else:
        spec = azure_like(
            workload.generator, workload.num_requests, rate_multiplier=workload.rate_multiplier,
            rate_per_s=workload.rate_per_s, kinds=kinds, seed=seed,
        )  # fmt: skip
        notes["workload"] = (
            f"no trace given: {len(spec)} requests drawn from the published statistics of {workload.generator}"
        )
    if workload.arrivals != "trace":
        rate = workload.rate_per_s or (len(spec) - 1) / max(float(spec.arrival_s[-1]), 1e-9) / workload.rate_multiplier
        rate *= workload.rate_multiplier
        make = {
            "poisson": lambda: poisson_arrivals(len(spec), rate, seed),
            "gamma": lambda: gamma_arrivals(len(spec), rate, 2.0, seed),
        }
        spec = requests_at(make[workload.arrivals](), spec.prompt_tokens, spec.output_tokens, kinds=kinds, seed=seed)
        notes["arrivals"] = f"{workload.arrivals} at {rate:.4g} requests/s instead of the recorded times"
    if workload.max_tokens is not None:
        spec = RequestSpec(**{**vars(spec), "output_tokens": np.minimum(spec.output_tokens, workload.max_tokens)})
    return spec, notes


def build_plant(
    scenario: Scenario, seed: int, controlled: frozenset[DecisionPoint], window_steps: int | None
) -> EnginePlant:
    """The simulated plant of a scenario. Raises `InputError`."""
    calibration = (
        read_calibration(scenario.hardware.calibration) if scenario.hardware.calibration else builtin_calibration()
    )
    requests, notes = build_requests(scenario.workload, calibration, seed)
    cost, num_blocks, context, hardware = served_by(scenario, calibration, requests)
    # A scenario may set its own context limit or block count; the model's are the default.
    settings = scenario.engine_config(num_blocks)
    if "max_context_tokens" not in scenario.engine:
        scenario = scenario.with_changes(engine={**scenario.engine, "max_context_tokens": context})
        settings = scenario.engine_config(num_blocks)
    executor = SimExecutor(
        cost, calibration.process, requests.kind_names, seed=seed, temperature=settings.temperature,
        mass=calibration.mass if DecisionPoint.KEEP in controlled else None, draw_ends=not requests.length_known,
    )  # fmt: skip
    plant = EnginePlant(requests, executor, SimClock(), settings, controlled, window_steps)
    if can_leap(plant):
        plant.leap = leap_through
    plant.notes = {
        **notes, "hardware": hardware, "step_cost": cost.source, "step_cost_max_tokens": cost.max_tokens,
        "entropy_process": calibration.process.source, "mass_process": calibration.mass.source,
    }  # fmt: skip
    return plant


def served_by(scenario: Scenario, calibration: Calibration, requests: RequestSpec) -> tuple[StepCost, int, int, str]:
    """(step cost, KV blocks, context limit, one line saying what serves)."""
    hardware, engine = scenario.hardware, scenario.engine_config(1)
    if hardware.gpu == THIS_MACHINE:
        if calibration.step_cost is None:
            raise InputError(f"hardware.gpu = {THIS_MACHINE!r} needs hardware.calibration with a fitted step cost")
        blocks = ample_blocks(requests, engine)
        return calibration.step_cost, blocks, calibration.max_context_tokens, calibration.step_cost.name
    gpu, model = gpu_named(hardware.gpu), model_named(hardware.model)
    group = hardware.num_gpus if hardware.num_gpus > 1 else model.num_gpus
    shape = ModelShape(**{**vars(model), "num_gpus": group})
    tokens = shape.kv_capacity_tokens(gpu, memory_share=hardware.memory_frac)
    blocks = max(1, int(tokens * hardware.kv_memory_frac) // engine.block_size)
    cost = roofline_step_cost(
        gpu, shape, max_tokens=max(2048, engine.token_budget), max_rows=max(64, engine.max_running), num_gpus=group
    )
    text = f"{cost.name}, {blocks:,} KV blocks of {engine.block_size} tokens"
    return cost, blocks, shape.max_context_tokens, text


def ample_blocks(requests: RequestSpec, engine: EngineConfig) -> int:
    """Blocks that hold the `max_running` longest requests whole, watermark included."""
    need = np.sort(-(-(requests.prompt_tokens + requests.output_tokens) // engine.block_size))[::-1]
    return int(need[: engine.max_running].sum() / (1.0 - engine.watermark_frac)) + 2
