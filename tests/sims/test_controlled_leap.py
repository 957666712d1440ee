"""A controlled run in compiled code against the same run stepped through the visible loop: the same bits everywhere."""

from dataclasses import fields, is_dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sims.controlled_leap import can_leap_controlled, leap_controlled
from sims.plant import build_plant
from tests.sims.conftest import VOCAB, NoRecord, made_cost, made_plant, made_process, made_requests
from tests.sims.test_leap import assert_same
from workbench.catalog import build_controller, build_controllers
from workbench.engine.config import EngineConfig
from workbench.loop import close_loop
from workbench.protocols import DecisionPoint
from workbench.scenario import parse_scenario


def drive(plant, controllers):
    """Run to the end; returns the controllers' final states."""
    kept = {}
    meet = plant.meet

    def remembering(given_controllers, states):
        kept["states"] = states
        meet(given_controllers, states)

    plant.meet = remembering
    close_loop(plant, controllers, NoRecord())
    return kept["states"]


def both_ways(requests, arm, config, window=0, **options):
    stepped, controllers = made_plant(requests, arm, config=config, **options)
    first = drive(stepped, controllers)
    leapt, controllers = made_plant(requests, arm, config=config, **options)
    leapt.telemetry.window_steps = window
    assert can_leap_controlled(leapt)
    leapt.leap_controlled = leap_controlled
    second = drive(leapt, controllers)
    assert leapt.leap_controlled is None or leapt.step_index <= window
    return stepped, leapt, first, second


def assert_equal_states(a, b, where):
    """NaN equals NaN; block tables may differ in width where the rest was never measured."""
    if is_dataclass(a):
        for field in fields(a):
            assert_equal_states(getattr(a, field.name), getattr(b, field.name), f"{where}.{field.name}")
    elif isinstance(a, np.ndarray):
        np.testing.assert_array_equal(a, b, err_msg=where)
    else:
        assert a == b, where


LIVES = given(
    seed=st.integers(0, 1000),
    count=st.integers(1, 25),
    rate=st.sampled_from([2.0, 20.0, 500.0]),
    blocks=st.sampled_from([12, 20, 60, 1000]),
    max_running=st.sampled_from([1, 3, 16]),
    budget=st.sampled_from([16, 64, 256]),
    slots=st.sampled_from([None, 4]),
    quantum=st.sampled_from([0, 3, 16]),
    delay=st.sampled_from([0, 2]),
    horizon=st.sampled_from([np.inf, 0.7]),
    window=st.sampled_from([0, 0, 7]),
    noisy=st.booleans(),
    hazard=st.booleans(),
)


def compare(arm, seed, count, rate, blocks, max_running, budget, slots, quantum, delay, horizon, window, noisy, hazard):
    requests = made_requests(count, rate=rate, seed=seed, prompt=(1, 90), output=(1, 50))
    config = EngineConfig(
        num_blocks=blocks, max_running=max_running, token_budget=budget, num_slots=slots, delay_steps=delay,
        preemption_quantum_tokens=quantum, horizon_s=horizon, entropy_target_nats=1.5,
    )  # fmt: skip
    process = made_process(**({"end_intercept": -3.0, "end_slope": 0.1} if hazard else {}), pruning_feedback=0.5)
    cost = made_cost(**({"noise": np.array([0.7, 1.0, 1.3]), "mass_s": 1e-4} if noisy else {}))
    stepped, leapt, first, second = both_ways(requests, arm, config, window, seed=seed, process=process, cost=cost)
    assert_same(stepped, leapt)
    for point in first:
        assert_equal_states(first[point], second[point], point.value)
    np.testing.assert_array_equal(leapt.numbers, stepped.numbers)
    np.testing.assert_array_equal(leapt.flags[:4], stepped.flags[:4])  # RUNNING is brought up to date when looked at
    np.testing.assert_array_equal(leapt.sight.block_mass, stepped.sight.block_mass)
    np.testing.assert_array_equal(leapt.executor.step_time.equations, stepped.executor.step_time.equations)


@settings(max_examples=12)
@LIVES
def test_leaping_with_three_controllers_is_stepping(**life):
    compare("STP", **life)


@pytest.mark.long
@pytest.mark.parametrize("arm", ["S", "T", "P", "ST", "SP", "TP"])
@settings(max_examples=12)
@LIVES
def test_leaping_with_some_of_them_is_stepping(arm, **life):
    compare(arm, **life)


def test_a_keep_rule_never_asked_keeps_its_first_state():
    # One request that ends with its first token: no step decodes. Found by Hypothesis.
    life = {
        "seed": 500,
        "count": 1,
        "rate": 2.0,
        "blocks": 12,
        "max_running": 1,
        "budget": 16,
        "slots": None,
        "quantum": 0,
    }
    compare("STP", **life, delay=0, horizon=np.inf, window=0, noisy=False, hazard=True)


def test_room_for_blocks_grows_on_the_way():
    # 1,500 tokens are 94 blocks of 16, then 188 of 8: more than the compiled run begins with.
    requests = made_requests(3, rate=1000.0, prompt=(1400, 1500), output=(80, 90))
    config = EngineConfig(num_blocks=2000, block_size=8, token_budget=4096, max_chunk_tokens=4096)
    stepped, leapt, first, second = both_ways(requests, "STP", config)
    assert_same(stepped, leapt)
    assert first[DecisionPoint.KEEP].predicted_mass.shape[1] > 128
    assert_equal_states(first[DecisionPoint.KEEP], second[DecisionPoint.KEEP], "keep")


@pytest.mark.long
@pytest.mark.parametrize(
    ("point", "table"),
    [
        ("order", {"kind": "fcfs"}),
        ("temperature", {"kind": "fixed", "temperature": 0.7}),
        ("temperature", {"kind": "gain-scheduled", "target_entropy_nats": 1.5}),
        ("temperature", {"kind": "explore", "target_entropy_nats": 1.5}),
        ("keep", {"kind": "least-mass", "mass_budget": 0.2, "evict": True}),
    ],
)
def test_every_compiled_step_in_a_run(point, table):
    from sims.clock import SimClock
    from sims.executor import SimExecutor
    from sims.mass_process import MassProcess
    from workbench.engine.plant import EnginePlant

    requests = made_requests(20, rate=100.0)
    config = EngineConfig(num_blocks=150, max_running=8, token_budget=128)
    plants = []
    for leap in (None, leap_controlled):
        controllers = build_controllers({DecisionPoint(point): table}, {"vocab_size": VOCAB, "delay_steps": 0})
        mass = MassProcess() if point == "keep" else None
        executor = SimExecutor(made_cost(), made_process(), requests.kind_names, seed=1, mass=mass)
        plant = EnginePlant(requests, executor, SimClock(), config, frozenset(controllers), 0)
        plant.leap_controlled = leap
        drive(plant, controllers)
        plants.append(plant)
    assert plants[1].leap_controlled is None, "it was offered and taken"
    assert_same(*plants)


def test_what_has_no_compiled_step_is_stepped_through():
    context = {"vocab_size": VOCAB, "delay_steps": 0}
    kalman = build_controller(DecisionPoint.ORDER, {"kind": "entropy-aging", "estimator": {"kind": "kalman"}}, context)
    assert kalman.compiled(kalman.init(3), 0) is None
    requests = made_requests(10)
    plant, _ = made_plant(requests, "S")
    plant.telemetry.window_steps = 0
    plant.leap_controlled = leap_controlled
    drive(plant, {DecisionPoint.ORDER: kalman})
    assert np.isfinite(plant.ledger.finished_s).all()


def test_a_built_plant_leaps_where_nothing_else_acts_and_it_pays(monkeypatch):
    def plant_of(**changes):
        base = {"workload": {"num_requests": 5}, "controllers": {"order": {"kind": "entropy-aging"}}}
        return build_plant(parse_scenario({**base, **changes}), 0, frozenset({DecisionPoint.ORDER}), 0)

    assert plant_of().leap_controlled is None, "sooner stepped through than compiled"
    monkeypatch.setattr("sims.plant.LEAP_FROM_TOKENS", 1)
    assert plant_of().leap_controlled is leap_controlled
    slow = {"faults": {"slow": {"mean_gap_s": 5.0, "length_s": 1.0, "factor": 2.0}}}
    assert plant_of(**slow).leap_controlled is None
    assert plant_of(engine={"timeout_s": 10.0}).leap_controlled is None
    assert plant_of(engine={"max_queue": 3}).leap_controlled is None
