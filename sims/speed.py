"""How fast the simulator runs: the two scenarios of `workbench bench sim`.

Both run in compiled code: without controllers many steps in one leap (`sims.leap`), with three of them every step with the
controllers' own compiled steps between (`sims.controlled_leap`). A controlled step of 256 sequences spends about three
tenths of its time on drawing the tokens, a quarter on block masses and choices, a fifth in the loop with the controllers' own
steps, the rest on the engine's tables.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sims.arrivals import azure_lengths, poisson_arrivals, requests_at
from sims.calibration import builtin_calibration
from sims.clock import SimClock
from sims.controlled_leap import leap_controlled
from sims.executor import SimExecutor
from sims.gpus import GPUS
from sims.leap import leap_through
from sims.models import MODELS
from sims.roofline import roofline_step_cost
from sims.traces import read_trace
from workbench.catalog import build_controllers
from workbench.engine.config import EngineConfig
from workbench.engine.plant import EnginePlant
from workbench.loop import close_loop
from workbench.protocols import Controllers, DecisionPoint

CONTROLLERS = {
    DecisionPoint.ORDER: {"kind": "entropy-aging"},
    DecisionPoint.TEMPERATURE: {"kind": "pi", "target_entropy_nats": 1.8},
    DecisionPoint.KEEP: {"kind": "least-mass", "mass_budget": 0.05},
}


@dataclass(frozen=True)
class Speed:
    """`per_s` tokens or requests a processor second; `step_us` processor time of an engine step."""

    per_s: float
    step_us: float
    mean_running: float


class _NoRecord:
    def decision(self, observation: object, action: object, applied: object) -> None:
        pass


def _timed(make: Callable[[], tuple[EnginePlant, Controllers]], repeats: int) -> tuple[float, EnginePlant]:
    """Best processor seconds of `repeats` runs after one to compile, and the last plant."""
    best, plant = np.inf, None
    for turn in range(repeats + 1):
        plant, controllers = make()
        start = time.process_time()
        close_loop(plant, controllers, _NoRecord())
        if turn:
            best = min(best, time.process_time() - start)
    assert plant is not None
    return best, plant


def controlled_tokens_per_s(repeats: int, *, running: int = 256, output_tokens: int = 400) -> Speed:
    """Llama-3-8B on an H100: `running` sequences of 128 prompt tokens decode together under all three controllers."""
    prompt, output = np.full(running, 128), np.full(running, output_tokens)
    requests = requests_at(np.zeros(running), prompt, output)
    calibration = builtin_calibration()
    cost = roofline_step_cost(GPUS["H100"], MODELS["Llama-3-8B"])
    config = EngineConfig(num_blocks=20_000, max_context_tokens=1024, num_slots=running, max_running=running)
    context = {"vocab_size": calibration.process.vocab, "delay_steps": 0}

    def make() -> tuple[EnginePlant, Controllers]:
        executor = SimExecutor(cost, calibration.process, requests.kind_names, mass=calibration.mass)
        plant = EnginePlant(requests, executor, SimClock(), config, frozenset(CONTROLLERS), 0)
        plant.leap_controlled = leap_controlled
        return plant, build_controllers(CONTROLLERS, context)

    seconds, plant = _timed(make, repeats)
    steps = plant.telemetry.step_table()
    return Speed(steps["num_sampled"].sum() / seconds, seconds / plant.step_index * 1e6, steps["num_running"].mean())


def vidur_like_requests_per_s(trace: Path | None, repeats: int, *, count: int = 5000) -> tuple[Speed, str]:
    """One A100, Llama-2-7B, the Azure conversation lengths, Poisson at 2 a second, at most 128 running, chunks of 512.

    Requests longer than the model's 4,096 tokens are served (the KV memory holds them), so that none is left out.
    """
    if trace is None:
        prompt, output = azure_lengths("azure-conversation", count, 0)
        notes = "lengths from the built-in generator, no trace given"
    else:
        read = read_trace(trace)
        prompt, output = read.prompt_tokens[:count], read.output_tokens[:count]
        notes = f"lengths of {read.name}"
    requests = requests_at(poisson_arrivals(count, 2.0, 0), prompt, output)
    gpu, model = GPUS["A100-80G"], MODELS["Llama-2-7B"]
    cost = roofline_step_cost(gpu, model)
    config = EngineConfig(
        num_blocks=model.kv_capacity_tokens(gpu) // 16, max_context_tokens=16_384, max_running=128, token_budget=512,
        max_chunk_tokens=512,
    )  # fmt: skip
    process = builtin_calibration().process

    def make() -> tuple[EnginePlant, Controllers]:
        plant = EnginePlant(
            requests, SimExecutor(cost, process, requests.kind_names), SimClock(), config, frozenset(), 0
        )
        plant.leap = leap_through
        return plant, {}

    seconds, plant = _timed(make, repeats)
    steps = plant.telemetry.step_table()
    speed = Speed(count / seconds, seconds / plant.step_index * 1e6, float(steps["num_running"].mean()))
    return speed, f"{notes}; entropies drawn for every token"


def sweep_efficiency(points: int = 48) -> tuple[float, float]:
    """(points a second on one process, share of twice that on two), by the clock on the wall, start of the workers included."""
    from workbench.scenario import parse_scenario
    from workbench.sweep import LocalWorkers, grid_points, simulate_task, tasks_of

    base = {"workload": {"num_requests": 12_000}, "controllers": {"order": {"kind": "entropy-aging"}}}
    rates = [0.5 + 0.25 * i for i in range(points)]
    tasks = tasks_of(parse_scenario(base), grid_points([("workload.rate_per_s", rates)]), [0])
    simulate_task(tasks[0].scenario, 0)  # what is compiled stays compiled
    seconds = []
    for jobs in (1, 2):
        start = time.perf_counter()
        for _ in LocalWorkers(jobs).run(tasks):
            pass
        seconds.append(time.perf_counter() - start)
    return points / seconds[0], seconds[0] / (2.0 * seconds[1])
