"""Small parts for simulator tests: a cheap machine, a synthetic entropy law, engine settings, a driver."""

from dataclasses import replace

import numpy as np
import pytest

from sims.clock import SimClock
from sims.entropy_process import EntropyProcess, KindLaw
from sims.executor import SimExecutor
from sims.mass_process import MassProcess
from sims.step_cost import StepCost
from workbench.catalog import build_controllers
from workbench.engine.config import EngineConfig
from workbench.engine.plant import EnginePlant
from workbench.engine.requests import RequestSpec
from workbench.loop import close_loop

VOCAB = 1000


class NoRecord:
    def decision(self, observation, action, applied):
        pass


def made_cost(**changes) -> StepCost:
    fields = dict(
        name="made up",
        dense_s=np.concatenate([[0.0], 5e-3 + 1e-5 * np.arange(1, 1025)]),
        output_s=np.array([0.0, 1e-5]),
        host_s=1e-3,
        row_s=2e-6,
        kv_s_per_token=2e-7,
        pair_s=1e-9,
        dense_flop_per_token=1e9,
        output_flop_per_sample=1e8,
        attention_flop_per_pair=1e4,
        weight_bytes=1e9,
        kv_bytes_per_token=1e5,
        power_idle_w=50.0,
        power_peak_w=300.0,
        flop_per_s=1e14,
        bytes_per_s=1e12,
        source="made up",
    )
    return StepCost(**{**fields, **changes})


def made_process(**changes) -> EntropyProcess:
    rng = np.random.default_rng(0)
    shapes = np.column_stack([rng.gamma(1.0, 2.0, 200), rng.uniform(0.6, 2.0, 200), rng.uniform(0.0, 0.1, 200)])
    feedback = {"temperature_feedback": 0.0, "pruning_feedback": 0.0}
    return EntropyProcess(vocab=VOCAB, laws=(KindLaw(name="any", shapes=shapes, **{**feedback, **changes}),))


def made_requests(count=40, *, rate=20.0, prompt=(20, 200), output=(5, 60), seed=0) -> RequestSpec:
    rng = np.random.default_rng(seed)
    return RequestSpec(
        arrival_s=np.cumsum(rng.exponential(1 / rate, count)),
        prompt_tokens=rng.integers(*prompt, count),
        output_tokens=rng.integers(*output, count),
        kind=np.zeros(count, np.int64),
        priority=np.zeros(count, np.int64),
    )


TABLES = {
    "S": {"order": {"kind": "entropy-aging"}},
    "T": {"temperature": {"kind": "pi", "target_entropy_nats": 1.5}},
    "P": {"keep": {"kind": "least-mass", "mass_budget": 0.05}},
}


def made_plant(requests, arm="", *, config=None, seed=0, cost=None, process=None, executor=None, mass=True, **engine):
    """(plant, controllers) of an arm: letters S, T, P as in the factorial."""
    from workbench.protocols import DecisionPoint

    config = config or EngineConfig(**{"num_blocks": 400, "max_running": 16, "token_budget": 256, **engine})
    tables = {k: v for letter in arm for k, v in TABLES[letter].items()}
    controllers = build_controllers(
        {DecisionPoint(k): v for k, v in tables.items()},
        {"vocab_size": VOCAB, "delay_steps": config.delay_steps},
    )
    executor = executor or SimExecutor(
        cost or made_cost(), process or made_process(), requests.kind_names, seed=seed,
        mass=MassProcess() if mass and "P" in arm else None, draw_ends=True,
    )  # fmt: skip
    return EnginePlant(requests, executor, SimClock(), config, frozenset(controllers)), controllers


def drive(plant, controllers):
    close_loop(plant, controllers, NoRecord())
    return plant


@pytest.fixture
def parts():
    """Namespace of the makers above, so that tests need no import of this file."""

    class Parts:
        cost = staticmethod(made_cost)
        process = staticmethod(made_process)
        requests = staticmethod(made_requests)
        plant = staticmethod(made_plant)
        drive = staticmethod(drive)
        replace = staticmethod(replace)

    return Parts
