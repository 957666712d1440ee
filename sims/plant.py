"""The simulated plant: the shared engine with a simulated executor on a SimPy clock.

Time is SimPy's: an engine step is one event, and an idle engine waits with one. Other processes (faults) live in the same
environment and act between steps; several replicas, or one that can fail, are a `sims.fleet.Fleet`. Interval convention: a step covers [t, t + dt); what happens at exactly t + dt, an
arrival included, is in before the next batch is formed, after that step's completions have freed their blocks.
"""

from dataclasses import replace

import numpy as np

from sims.calibration import Calibration, builtin_calibration, read_calibration
from sims.clock import SimClock
from sims.controlled_leap import can_leap_controlled, leap_controlled
from sims.dispatcher import make_policy
from sims.executor import SimExecutor
from sims.faults import Failures, SlowSpells
from sims.fleet import Fleet
from sims.gpus import gpu_named
from sims.leap import can_leap, leap_through
from sims.models import ModelShape, model_named
from sims.roofline import roofline_step_cost
from sims.step_cost import StepCost
from sims.workload import build_requests
from workbench.engine.config import EngineConfig
from workbench.engine.diffusion import DiffusionEnginePlant
from workbench.engine.plant import EnginePlant
from workbench.engine.requests import RequestSpec
from workbench.engine.routing import RoutedEnginePlant
from workbench.errors import InputError
from workbench.protocols import DecisionPoint
from workbench.routing.regimes import simulated_regimes
from workbench.scenario import Scenario
from workbench.unmasking.rows import masked_requests, measures_divergence

LEAP_FROM_TOKENS = (
    1_000_000  # each set of controllers is compiled once, some half a minute; fewer tokens are stepped sooner
)
THIS_MACHINE = "calibrated"  # as `hardware.gpu`: the step cost fitted to the record, on the machine it was made on


def build_plant(
    scenario: Scenario, seed: int, controlled: frozenset[DecisionPoint], window_steps: int | None
) -> EnginePlant | Fleet:
    """The simulated plant of a scenario. Raises `InputError`."""
    calibration = (
        read_calibration(scenario.hardware.calibration) if scenario.hardware.calibration else builtin_calibration()
    )
    requests, notes = build_requests(
        scenario.workload,
        calibration,
        seed,
        scenario.engine_config(1) if scenario.engine.get("prefix_caching") else None,
    )
    regimes = rows = None
    if DecisionPoint.ROUTE in controlled or scenario.routing.evaluation is not None:
        requests, regimes, notes["regimes"] = simulated_regimes(scenario, requests, seed)
    elif scenario.diffusion.share_frac > 0.0:
        looks = measures_divergence(scenario.controllers.get(DecisionPoint.REVEAL))
        requests, rows, notes["diffusion"] = masked_requests(
            requests, scenario.diffusion, seed, measure_divergence=looks
        )
    longest = requests if regimes is None else regimes.longest(requests)
    cost, num_blocks, context, hardware = served_by(scenario, calibration, longest)
    # A scenario may set its own context limit or block count; the model's are the default.
    settings = scenario.engine_config(num_blocks)
    if "max_context_tokens" not in scenario.engine:
        scenario = scenario.with_changes(engine={**scenario.engine, "max_context_tokens": context})
        settings = scenario.engine_config(num_blocks)
    if settings.preemption == "swap" and "swap_block_s" not in scenario.engine:
        settings = replace(settings, swap_block_s=swap_block_s(scenario, cost, settings.block_size))

    def executor() -> SimExecutor:
        return SimExecutor(
            cost, calibration.process, requests.kind_names, seed=seed, temperature=settings.temperature,
            mass=calibration.mass if DecisionPoint.KEEP in controlled else None, draw_ends=not requests.length_known,
        )  # fmt: skip

    faults, replicas = scenario.faults, scenario.hardware.num_replicas
    slow = SlowSpells(**faults.slow.model_dump()) if faults.slow else None
    if replicas > 1 or faults.failure:
        if rows is not None or regimes is not None:
            raise InputError(
                "masked-diffusion or routed requests on several replicas, or one that fails, are not offered; "
                "leave out hardware.num_replicas and faults.failure"
            )
        plant = Fleet(
            requests, [executor() for _ in range(replicas)], settings, scenario.hardware.dispatcher,
            controlled=controlled, window_steps=window_steps, seed=seed,
        )  # fmt: skip
        for i, engine in enumerate(plant.replicas):
            if slow:
                slow.start(plant.env, engine.executor, seed, i)
            if faults.failure:
                Failures(**faults.failure.model_dump()).start(plant.env, plant, seed, i)
    else:
        make_policy(
            scenario.hardware.dispatcher, 1, seed, requests.prompt_blocks
        )  # a name that nobody knows is refused
        clock = SimClock()
        common = (requests, executor(), clock, settings)
        if rows is not None:
            plant = DiffusionEnginePlant(*common, rows, controlled, window_steps)
            plant.request_columns = lambda: rows.columns(plant.iterations)
        elif regimes is not None and DecisionPoint.ROUTE in controlled:
            plant = RoutedEnginePlant(*common, regimes, controlled, window_steps)
            plant.request_columns = plant.route_columns
        else:
            plant = EnginePlant(*common, controlled, window_steps)
            if regimes is not None:
                plant.request_columns = lambda: regimes.standard_columns(plant.ledger)
        if slow:
            slow.start(clock.env, plant.executor, seed)
        elif can_leap(plant):
            plant.leap = leap_through
        elif requests.output_tokens.sum() >= LEAP_FROM_TOKENS and can_leap_controlled(plant):
            plant.leap_controlled = leap_controlled
    if replicas > 1:
        hardware = f"{replicas} replicas ({scenario.hardware.dispatcher}), each {hardware}"
    plant.notes = {
        **notes, "hardware": hardware, "step_cost": cost.source, "step_cost_max_tokens": cost.max_tokens,
        "entropy_process": calibration.process.source, "mass_process": calibration.mass.source,
    }  # fmt: skip
    if settings.preemption == "swap":
        plant.notes["swap"] = (
            f"{settings.swap_block_s * 1e6:.3g} us to copy a KV block one way; nothing else runs meanwhile"
        )
    return plant


def swap_block_s(scenario: Scenario, cost: StepCost, block_size: int) -> float:
    """Seconds to copy a KV block over PCIe, each GPU of the group its share at its data sheet's rate."""
    if scenario.hardware.gpu == THIS_MACHINE:
        raise InputError(
            "engine.preemption = swap on a calibrated machine needs engine.swap_block_s, seconds to copy a KV block; "
            "a GPU of the table brings its own"
        )
    gpu, model = gpu_named(scenario.hardware.gpu), model_named(scenario.hardware.model)
    group = scenario.hardware.num_gpus if scenario.hardware.num_gpus > 1 else model.num_gpus
    return block_size * cost.kv_bytes_per_token / (group * gpu.host_bytes_per_s)


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
