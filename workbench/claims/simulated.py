"""The 2x2x2 factorial in the simulator under slices of a real trace: eight arms, common random numbers, loads around capacity.

Arms of one seed share requests, arrivals and draws; each seed takes the next slice of the trace and begins again after the
last. The temperature loop is asked for the mean entropy that the constant temperature gives, so both are compared at
one mean. Cells are memory_load; quantities are those of `paired`, and what holds the baseline back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sims.models import model_named
from workbench.arm_task import ArmTask, run_in_processes
from workbench.claims.claim import Measured
from workbench.claims.interval import over_seeds
from workbench.claims.mechanism import HELD_BY, held_by_shares
from workbench.claims.paired import arm_values, quantities, records_of, value_of
from workbench.claims.setting import Setting
from workbench.claims.trace_slice import trace_rows
from workbench.factorial import FactorialSettings, switches
from workbench.main_job import BASE_TEMPERATURE, MEMORIES, SLO, capacity_per_s
from workbench.metrics.arm import ARM_CODES, BASELINE
from workbench.metrics.records import Records
from workbench.scenario import Scenario, parse_scenario

ANY_TARGET_NATS = 1.0  # of the saturated arm, which has no loop


@dataclass(frozen=True, kw_only=True)
class Case:
    """`requests`, `seeds` and `cells` are (quick, full). A cell is (memory, load as a share of capacity)."""

    name: str
    trace: Path | None  # None: a generator fitted to the Azure conversation trace
    num_rows: int  # of the trace, that slices are taken from
    requests: tuple[int, int]
    seeds: tuple[int, int]
    cells: tuple[tuple[tuple[str, float], ...], tuple[tuple[str, float], ...]]
    hardware: Mapping[str, Any] = field(default_factory=dict)
    engine: Mapping[str, Any] = field(default_factory=dict)

    def scenario(self, setting: Setting, seed: int, memory: str, rate_per_s: float, target_nats: float) -> Scenario:
        count = setting.size(*self.requests)
        source: dict[str, Any] = {}
        if self.trace is not None:
            first = seed % (self.num_rows // count) * count
            source["trace"] = trace_rows(self.trace, first, count, setting.directory / "trace")
        return parse_scenario(
            {
                "name": f"claims: {self.name}, {memory} KV memory",
                "plant": "sim",
                "level": "summary",
                "workload": {"num_requests": count, "rate_per_s": rate_per_s, **source},
                "hardware": {"kv_memory_frac": MEMORIES[memory], **self.hardware},
                "engine": {
                    "temperature": BASE_TEMPERATURE,
                    "entropy_target_nats": target_nats,
                    "max_running": 128,
                    **self.engine,
                },
            }
        )


def attention_flop(records: Records, model: str) -> float:
    """Operations of attention a completed request: all of them less those of the layers' and the output matrices."""
    shape = model_named(model)
    others = (
        np.nansum(records.step("num_tokens")) * shape.dense_flop_per_token
        + np.nansum(records.step("num_sampled")) * shape.output_flop_per_sample
    )
    return float((np.nansum(records.step("flops")) - others) / records.served.num_requests)


def folder(code: str) -> str:
    return "none" if code == BASELINE else code


def measure_case(case: Case, setting: Setting) -> Mapping[str, Measured]:
    seeds = range(setting.seed * 100, setting.seed * 100 + setting.size(*case.seeds))
    cells = setting.size(*case.cells)
    # Everything at once, first come first served, one slice a memory: what the machine serves when it never idles.
    saturated = {
        memory: ArmTask(
            case.scenario(setting, seeds[0], memory, 1e6, ANY_TARGET_NATS),
            seeds[0],
            setting.directory / "capacity" / memory,
            None,
            {"role": "capacity"},
        )
        for memory in dict.fromkeys(memory for memory, _ in cells)
    }
    run_in_processes(list(saturated.values()), setting.jobs, setting.part(0.0, 0.05).tell)
    first = next(iter(saturated.values())).directory
    target = float(np.float32(value_of(records_of(first), "entropy_mean_nats")))
    settings = FactorialSettings(target_entropy_nats=target, temperature_start=BASE_TEMPERATURE)
    arms: dict[str, dict[tuple[str, int], ArmTask]] = {}
    for memory, load in cells:
        rate = load * capacity_per_s(saturated[memory].directory)
        for seed in seeds:
            scenario = case.scenario(setting, seed, memory, rate, target)
            for code in ARM_CODES:
                place = setting.directory / f"{memory}-load{load:g}" / folder(code) / f"seed{seed}"
                arms.setdefault(f"{memory}_{load:g}", {})[code, seed] = ArmTask(
                    scenario.with_changes(controllers=settings.controllers(code)),
                    seed, place, switches(code), {"slo": SLO, "memory": memory, "load_frac": load},
                )  # fmt: skip
    tasks = [task for cell in arms.values() for task in cell.values()]
    run_in_processes(tasks, setting.jobs, setting.part(0.05, 0.97).tell)
    found: dict[str, Measured] = {}
    for key, cell in arms.items():
        records = {code: [records_of(cell[code, seed].directory) for seed in seeds] for code in ARM_CODES}
        values = {code: np.array([arm_values(one) for one in of]) for code, of in records.items()}
        found |= {f"{key}_{name}": one for name, one in quantities(values).items()}
        hardware = cell[BASELINE, seeds[0]].scenario.hardware
        flops = {c: np.array([attention_flop(one, hardware.model) for one in of]) for c, of in records.items()}
        for code in ("P", "STP"):
            saved = -np.log(flops[code] / flops[BASELINE])
            found[f"{key}_{code}_attention_flops"] = over_seeds(saved, lambda v: float(-np.expm1(-v)))
        shares = [held_by_shares(one, hardware.gpu, hardware.model) for one in records[BASELINE]]
        for name in HELD_BY:
            found[f"{key}_held_{name}"] = over_seeds(np.array([share[name] for share in shares]))
    setting.tell(1.0)
    return found
