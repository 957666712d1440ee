"""The 2x2x2 factorial on the real model: SmolLM2-135M on this machine, the live plant, common random numbers.

Eight arms of one seed share prompts, arrival times and sampling noise, and run one after another in an order that turns with
the seed, so that a machine that drifts spares no arm. Loads are shares of what a saturated baseline serves. Time is
measured: other work on the machine widens every interval. Contexts are short (the built-in prompts), so there is little
KV to drop. Quantities as in `paired`: live_LOAD_ARM_NAME, live_LOAD_effect_.., live_LOAD_excess_..
"""

from collections.abc import Mapping

import numpy as np

from workbench.arm_task import ArmTask, run_here
from workbench.claims.claim import Measured
from workbench.claims.paired import arm_values, quantities, records_of, value_of
from workbench.claims.setting import Setting
from workbench.claims.simulated import ANY_TARGET_NATS, folder
from workbench.factorial import FactorialSettings, switches
from workbench.main_job import BASE_TEMPERATURE, SLO
from workbench.metrics.arm import ARM_CODES
from workbench.scenario import Scenario, parse_scenario

SATURATED_PER_S = 1e4


def scenario_of(setting: Setting, seed: int, rate_per_s: float, target_nats: float) -> Scenario:
    requests = setting.size(4, 12)
    return parse_scenario(
        {
            "name": "claims: live arms",
            "plant": "live",
            "level": "summary",
            "workload": {
                "num_requests": requests,
                "first_request": seed * requests,
                "max_tokens": setting.size(12, 32),
                "rate_per_s": rate_per_s,
            },
            "engine": {
                "temperature": BASE_TEMPERATURE,
                "entropy_target_nats": target_nats,
                "max_running": setting.size(2, 6),
            },
        }
    )


def measure(setting: Setting) -> Mapping[str, Measured]:
    seeds = range(setting.seed * 100, setting.seed * 100 + setting.size(4, 5))
    saturated = [
        ArmTask(
            scenario_of(setting, seed, SATURATED_PER_S, ANY_TARGET_NATS), seed,
            setting.directory / "capacity" / f"seed{seed}", None, {"role": "capacity"},
        )
        for seed in seeds[:2]
    ]  # fmt: skip
    run_here(saturated, setting.part(0.0, 0.1).tell)
    records = [records_of(task.directory) for task in saturated]
    target = float(np.float32(np.mean([value_of(r, "entropy_mean_nats") for r in records])))
    # The second arm: the first one pays for what a process does once.
    capacity_per_s = records[-1].num_requests / (records[-1].end_s - records[-1].start_s)
    settings = FactorialSettings(target_entropy_nats=target, temperature_start=BASE_TEMPERATURE, recent_blocks=2)
    arms: dict[tuple[float, str, int], ArmTask] = {}
    for seed in seeds:
        turn = seed % len(ARM_CODES)
        for load in setting.size((1.2,), (0.6, 1.2)):
            scenario = scenario_of(setting, seed, load * capacity_per_s, target)
            for code in (*ARM_CODES[turn:], *ARM_CODES[:turn]):
                arms[load, code, seed] = ArmTask(
                    scenario.with_changes(controllers=settings.controllers(code)), seed,
                    setting.directory / f"load{load:g}" / folder(code) / f"seed{seed}", switches(code),
                    {"slo": SLO, "load_frac": load},
                )  # fmt: skip
    run_here(list(arms.values()), setting.part(0.1, 1.0).tell)
    found: dict[str, Measured] = {}
    for load in dict.fromkeys(load for load, _, _ in arms):
        values = {
            code: np.array([arm_values(records_of(arms[load, code, seed].directory)) for seed in seeds])
            for code in ARM_CODES
        }
        found |= {f"live_{load:g}_{name}": one for name, one in quantities(values).items()}
    return found
