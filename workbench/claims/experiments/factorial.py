"""The 2x2x2 factorial in the simulator: an H100 with Llama-3-8B under the Azure conversation trace, common random numbers.

Arms of one seed share requests, arrivals and draws; each seed takes the next slice of the trace, and begins
again after the last. Every quantity is a mean of
paired log ratios over seeds: gain = exp(mean ln(arm / baseline)) - 1, oriented so that more is better; super-additivity
is ln gain of all three minus the sum of the three alone (multiplicative null), or the same with gains (additive null).
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from workbench.claims.claim import Measured
from workbench.claims.interval import over_seeds
from workbench.claims.setting import Setting
from workbench.factorial import FactorialSettings, switches
from workbench.main_job import BASE_TEMPERATURE, MEMORIES, SLO, ArmTask, capacity_per_s, find_trace, run_in_processes
from workbench.metrics.figure import Undefined, Value
from workbench.metrics.leaf import Cell, Leaf
from workbench.metrics.records import Records
from workbench.metrics.table import BY_NAME
from workbench.record import read_manifest
from workbench.scenario import Scenario, parse_scenario
from workbench.signals import FloatArray

ARMS = ("-", "S", "T", "P", "STP")
# name of the gain: (metric, +1 higher is better, -1 lower is better)
GAINS = {
    "latency": ("e2e_mean_s", -1),
    "throughput": ("output_tokens_per_s", +1),
    "tau_per_busy_s": ("tau_per_busy_s", +1),
    "tau_per_tflop": ("tau_per_tflop", +1),
    "tau_per_kv_gb": ("tau_per_kv_gb", +1),
    "tau_per_j": ("tau_per_j", +1),
    "kv_bytes": ("kv_gb_per_request", -1),
    "energy": ("energy_per_token_j", -1),
    "entropy_error": ("entropy_error_nats", -1),
}
# What the baseline is held by in a cell, from the simulator's own accounting: name of the share, metric, divisor or none.
HELD_BY = {
    "queue_share": ("queue_wait_mean_s", "e2e_mean_s"),
    "kv_peak_frac": ("kv_used_peak_frac", None),
    "preemptions": ("preemptions_per_request", None),
}
ANY_TARGET_NATS = 1.0  # of the saturated arm, which has no loop
SLICED_REQUESTS = 18_000  # slices are taken from so many; the trace has 19,366
LOADS_FULL = (0.6, 0.95, 1.2)
LOADS_QUICK = (1.2,)


def scenario_of(setting: Setting, seed: int, memory: str, rate_per_s: float, target_nats: float) -> Scenario:
    trace = find_trace(None)
    requests = 60 if setting.quick else 300
    return parse_scenario(
        {
            "name": f"claims: H100, Llama-3-8B, {memory} KV memory",
            "plant": "sim",
            "level": "summary",
            "workload": {
                "trace": trace,
                "num_requests": requests,
                "first_request": seed % (SLICED_REQUESTS // requests) * requests if trace else 0,
                "rate_per_s": rate_per_s,
            },
            "hardware": {"kv_memory_frac": MEMORIES[memory]},
            "engine": {"temperature": BASE_TEMPERATURE, "entropy_target_nats": target_nats, "max_running": 128},
        }
    )


def measure(setting: Setting) -> Mapping[str, Measured]:
    num_seeds = 5 if setting.quick else 8
    seeds = range(setting.seed * 100, setting.seed * 100 + num_seeds)
    memories = ("tight",) if setting.quick else ("ample", "tight")
    found: dict[str, Measured] = {}
    saturated = {
        memory: ArmTask(
            scenario_of(setting, seeds[0], memory, 1e6, ANY_TARGET_NATS),
            seeds[0],
            setting.directory / "capacity" / memory,
            None,
            {"role": "capacity"},
        )
        for memory in memories
    }
    run_in_processes(list(saturated.values()), setting.jobs, lambda share: setting.tell(0.1 * share))
    # The loop is asked for the mean entropy that the constant temperature gives, so both are compared at one mean.
    target = float(np.float32(value_of(saturated[memories[0]].directory, "entropy_mean_nats")))
    settings = FactorialSettings(target_entropy_nats=target, temperature_start=BASE_TEMPERATURE)
    cells: dict[str, dict[tuple[str, int], ArmTask]] = {}
    for memory in memories:
        capacity = capacity_per_s(saturated[memory].directory)
        for load in LOADS_QUICK if setting.quick else LOADS_FULL:
            cell = cells.setdefault(f"{memory}_{load:g}", {})
            for code in ARMS:
                for seed in seeds:
                    scenario = scenario_of(setting, seed, memory, load * capacity, target).with_changes(
                        controllers=settings.controllers(code)
                    )
                    folder = setting.directory / f"{memory}-load{load:g}" / code.replace("-", "none") / f"seed{seed}"
                    cell[code, seed] = ArmTask(scenario, seed, folder, switches(code), {"slo": SLO, "memory": memory})
    tasks = [task for cell in cells.values() for task in cell.values()]
    run_in_processes(tasks, setting.jobs, lambda share: setting.tell(0.1 + 0.85 * share))
    for key, cell in cells.items():
        values = {code: np.array([arm_values(cell[code, seed].directory) for seed in seeds]) for code in ARMS}
        found |= {f"{key}_{name}": one for name, one in quantities(values).items()}
        base = [cell["-", seed].directory for seed in seeds]
        for name, (metric, per) in HELD_BY.items():
            shares = [value_of(d, metric) / (value_of(d, per) if per else 1.0) for d in base]
            found[f"{key}_held_{name}"] = over_seeds(np.array(shares))
    setting.tell(1.0)
    return found


def arm_values(directory: Path) -> FloatArray:
    """The metrics of GAINS of one arm, NaN where undefined."""
    records = records_of(directory)
    return np.array([_number(BY_NAME[metric].compute(records)) for metric, _ in GAINS.values()])


def value_of(directory: Path, metric: str) -> float:
    return _number(BY_NAME[metric].compute(records_of(directory)))


def records_of(directory: Path) -> Records:
    leaf = Leaf(directory, Cell("sim", None, None), "-", 0, read_manifest(directory))
    return leaf.records(with_token_times=False)


def _number(value: Value) -> float:
    return np.nan if isinstance(value, Undefined) else value


def quantities(values: Mapping[str, FloatArray]) -> dict[str, Measured]:
    """Gains of every arm and the two super-additivities from values[arm][seed, metric]."""
    found = {}
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = {code: np.log(x) for code, x in values.items()}
    for m, (name, (_, sign)) in enumerate(GAINS.items()):
        ratio = {code: sign * (logs[code][:, m] - logs["-"][:, m]) for code in values if code != "-"}
        for code, x in ratio.items():
            # A fall is told as a share of the baseline, a rise likewise.
            found[f"{code}_{name}"] = over_seeds(x, lambda v, s=sign: float(s * np.expm1(s * v)))
        found[f"excess_log_{name}"] = over_seeds(ratio["STP"] - sum(ratio[c] for c in "STP"))
        shares = {code: sign * np.expm1(sign * x) for code, x in ratio.items()}
        found[f"excess_add_{name}"] = over_seeds(shares["STP"] - sum(shares[c] for c in "STP"))
    return found
