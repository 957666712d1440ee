"""A leap over many steps against the engine taking each of them: the same bits in every table."""

import gc
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sims.leap import can_leap, leap_through
from tests.sims.conftest import drive, made_cost, made_plant, made_process, made_requests
from workbench.engine.config import EngineConfig
from workbench.engine.requests import RequestSpec, RequestStatus
from workbench.protocols import DecisionPoint


def both_ways(requests, config, **options):
    stepped, none = made_plant(requests, config=config, **options)
    drive(stepped, none)
    leapt, none = made_plant(requests, config=config, **options)
    leapt.telemetry.window_steps = 0
    assert can_leap(leapt)
    leapt.leap = leap_through
    drive(leapt, none)
    return stepped, leapt


def assert_same(stepped, leapt):
    for name, column in stepped.telemetry.step_table().items():
        np.testing.assert_array_equal(leapt.telemetry.step_table()[name], column, err_msg=name)
    for name, column in stepped.telemetry.request_columns().items():
        np.testing.assert_array_equal(leapt.telemetry.request_columns()[name], column, err_msg=name)
    for name, values in vars(stepped.ledger).items():
        if isinstance(values, np.ndarray):
            np.testing.assert_array_equal(getattr(leapt.ledger, name), values, err_msg=name)
    assert leapt.step_index == stepped.step_index
    assert leapt.clock.now_s == stepped.clock.now_s
    assert leapt.share_done == stepped.share_done
    assert leapt.pool.num_free[0] == stepped.pool.num_free[0]


@settings(max_examples=15)
@given(
    seed=st.integers(0, 1000),
    count=st.integers(1, 25),
    rate=st.sampled_from([2.0, 20.0, 500.0]),
    blocks=st.sampled_from([12, 20, 60, 1000]),
    block_size=st.sampled_from([1, 4, 16]),
    max_running=st.sampled_from([1, 3, 16]),
    budget=st.sampled_from([16, 64, 256]),
    chunk=st.sampled_from([8, 512]),
    slots=st.sampled_from([None, 4]),
    quantum=st.sampled_from([0, 3, 16]),
    watermark=st.sampled_from([0.0, 0.1]),
    horizon=st.sampled_from([np.inf, 0.7]),
    hazard=st.booleans(),
)
def test_leaping_is_stepping(
    seed, count, rate, blocks, block_size, max_running, budget, chunk, slots, quantum, watermark, horizon, hazard
):
    requests = made_requests(count, rate=rate, seed=seed, prompt=(1, 90), output=(1, 50))
    config = EngineConfig(
        num_blocks=blocks * 16 // block_size, block_size=block_size, max_running=max_running, token_budget=budget,
        max_chunk_tokens=chunk, num_slots=slots, preemption_quantum_tokens=quantum, watermark_frac=watermark,
        horizon_s=horizon, entropy_target_nats=1.5,
    )  # fmt: skip
    process = made_process(**({"end_intercept": -3.0, "end_slope": 0.1} if hazard else {}))
    assert_same(*both_ways(requests, config, seed=seed, process=process))


def test_ties_of_arrival_and_step_end(parts):
    # Steps take exactly 1/8 s: arrivals fall on their ends, two at once, one at the horizon.
    cost = made_cost(
        dense_s=np.array([0.0, 0.0]),
        output_s=np.array([0.0, 0.0]),
        host_s=0.125,
        row_s=0.0,
        kv_s_per_token=0.0,
        pair_s=0.0,
    )
    requests = RequestSpec(
        arrival_s=np.array([0.0, 0.125, 0.25, 0.25, 1.0]),
        prompt_tokens=np.full(5, 4),
        output_tokens=np.array([2, 1, 1, 1, 1]),
        kind=np.zeros(5, np.int64),
        priority=np.zeros(5, np.int64),
    )
    config = EngineConfig(num_blocks=50, max_running=2, horizon_s=1.0)
    stepped, leapt = both_ways(requests, config, cost=cost)
    assert_same(stepped, leapt)
    # The first leaves at 0.25, when two more arrive: both are in the next batch, in file order.
    assert stepped.ledger.finished_s[:4].tolist() == [0.25, 0.25, 0.375, 0.375]
    assert stepped.ledger.status[4] == RequestStatus.NOT_ARRIVED


def test_only_a_fresh_plant_without_controllers_can_leap(parts):
    plant, _ = made_plant(parts.requests(), "S")
    assert not can_leap(plant)
    assert DecisionPoint.ORDER in plant.controlled
    plant, _ = made_plant(parts.requests())
    assert not can_leap(plant), "its window wants a row per token"


@pytest.mark.parametrize("delay", [0, 2])
def test_a_leap_is_much_faster_than_stepping(delay):
    import time

    requests = made_requests(60, rate=1000.0, output=(200, 300))
    config = EngineConfig(num_blocks=2000, max_running=64, delay_steps=delay)
    both_ways(requests, config)
    times = []
    for leap in (None, leap_through):
        plant, none = made_plant(requests, config=config)
        plant.telemetry.window_steps = 0
        plant.leap = leap
        start = time.process_time()
        drive(plant, none)
        times.append(time.process_time() - start)
    assert times[1] < times[0] / 3


def test_a_plant_that_leapt_is_freed_at_once():
    plant, none = made_plant(made_requests(5, rate=20.0), config=EngineConfig(num_blocks=1000))
    plant.telemetry.window_steps, plant.leap = 0, leap_through
    drive(plant, none)
    assert plant.telemetry.num_steps > 0
    gone = weakref.ref(plant)
    gc.disable()
    try:
        del plant
        assert gone() is None
    finally:
        gc.enable()


def test_steps_that_are_not_kept_change_no_request():
    tables = []
    for keeps_steps in (True, False):
        plant, none = made_plant(made_requests(5, rate=20.0), config=EngineConfig(num_blocks=1000))
        plant.telemetry.window_steps, plant.telemetry.keeps_steps, plant.leap = 0, keeps_steps, leap_through
        drive(plant, none)
        assert (plant.telemetry.num_steps > 0) == keeps_steps
        tables.append((plant.ledger.finished_s, plant.telemetry.sums))
    for kept, unkept in zip(*tables, strict=True):
        np.testing.assert_array_equal(kept, unkept)
