"""The engine against hand-counted schedules, conservation laws, and the trials users reported."""

import numpy as np
import pytest

from tests.fakes import FormulaExecutor
from workbench.engine.clock import CountedClock
from workbench.engine.config import EngineConfig
from workbench.engine.plant import EnginePlant
from workbench.engine.requests import RequestSpec, RequestStatus
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, OrderAction, SamplingAction


def spec(arrival_s, prompt, output, priority=None) -> RequestSpec:
    n = len(arrival_s)
    zeros = np.zeros(n, np.int64)
    return RequestSpec(
        arrival_s=np.array(arrival_s, float),
        prompt_tokens=np.broadcast_to(np.array(prompt, np.int64), n).copy(),
        output_tokens=np.broadcast_to(np.array(output, np.int64), n).copy(),
        kind=zeros,
        priority=zeros if priority is None else np.array(priority, np.int64),
    )


def drive(plant: EnginePlant, decide=None, limit: int = 2_000_000) -> EnginePlant:
    for _ in range(limit):
        point = plant.advance()
        if point is None:
            return plant
        plant.apply(point, decide(plant.observe(point)))
    raise AssertionError("the plant did not end")


def fcfs_run(requests, executor=None, **config) -> EnginePlant:
    executor = executor or FormulaExecutor()
    return drive(EnginePlant(requests, executor, CountedClock(), EngineConfig(**config)))


def test_one_request_by_hand():
    # 40 prompt tokens in chunks of 16: three steps, the third draws token 0; four more decodes.
    plant = fcfs_run(spec([0.5], 40, 5), num_blocks=10, token_budget=16)
    ledger, steps = plant.ledger, plant.telemetry.step_table()
    assert ledger.first_scheduled_s[0] == 0.5
    assert ledger.first_token_s[0] == 3.5
    assert ledger.finished_s[0] == 7.5
    assert list(steps["num_tokens"]) == [16, 16, 8, 1, 1, 1, 1]
    assert list(steps["kv_blocks_used"]) == [1, 2, 3, 3, 3, 3, 3]  # 44 tokens at most: 3 blocks of 16
    assert plant.pool.num_free[0] == 10


def test_arrival_at_a_steps_end_is_in_the_next_batch_and_ties_go_in_file_order():
    executor = FormulaExecutor()
    plant = fcfs_run(spec([0.0, 1.0, 1.0], 4, 2), executor, num_blocks=10, max_running=2)
    assert [list(b.request_id) for b in executor.batches] == [[0], [0, 1], [1, 2], [2]]
    assert np.all(plant.ledger.status == RequestStatus.COMPLETED)


def test_request_larger_than_the_cache_is_refused_and_the_rest_finish():
    plant = fcfs_run(spec([0.0] * 11, [64] * 5 + [600] + [64] * 5, [8] * 5 + [100] + [8] * 5), num_blocks=40)
    assert plant.ledger.status[5] == RequestStatus.REFUSED
    assert np.count_nonzero(plant.ledger.status == RequestStatus.COMPLETED) == 10


@pytest.mark.parametrize("policy", ["fcfs", "reversing"])
def test_contended_cache_finishes_with_bounded_preemptions(policy):
    # Eight requests of 960 + 1,000 tokens need 123 blocks each; 300 exist. A controller that reverses its order at
    # every step is the worst case for eviction ping-pong.
    requests = spec([0.0] * 8, 960, 1000)
    config = EngineConfig(num_blocks=300)
    controlled = frozenset() if policy == "fcfs" else frozenset({DecisionPoint.ORDER})
    plant = EnginePlant(requests, FormulaExecutor(mass=False), CountedClock(), config, controlled)

    def reverse(observation):
        rank = observation.arrival_rank.copy()
        active = np.flatnonzero(observation.active)
        ranks = np.argsort(np.argsort(rank[active] * (1 if observation.step % 2 else -1)))
        out = np.full(rank.size, rank.size)
        out[active] = ranks
        return OrderAction(rank=out)

    drive(plant, reverse)
    assert np.all(plant.ledger.status == RequestStatus.COMPLETED)
    assert plant.ledger.num_preempted.max() <= 1000 / config.preemption_quantum_tokens + 1
    assert plant.pool.num_free[0] == 300


def test_every_request_is_accounted_for_at_the_horizon():
    plant = fcfs_run(spec([0.0, 0.0, 3.0, 5.0], [4, 9000, 4, 4], 100), num_blocks=2000, horizon_s=5.0)
    status = [RequestStatus(s).name for s in plant.ledger.status]
    assert status == ["RUNNING", "REFUSED", "RUNNING", "NOT_ARRIVED"]


def test_single_server_with_constant_service_meets_pollaczek_khinchine():
    # Batch limit 1 and one token per request: M/D/1. Mean wait rho S / (2 (1 - rho)) = 0.5 S at rho = 0.5.
    rng = np.random.default_rng(7)
    arrivals = np.cumsum(rng.exponential(2.0, 100_000))
    plant = fcfs_run(spec(arrivals, 1, 1), FormulaExecutor(mass=False), num_blocks=100, max_running=1)
    wait = plant.ledger.first_scheduled_s - arrivals
    batches = wait[: 50 * 2000].reshape(50, -1).mean(axis=1)
    half_width = 2.68 * batches.std(ddof=1) / np.sqrt(50)  # 99 %, 49 degrees of freedom
    assert abs(wait.mean() - 0.5) < half_width < 0.05


def test_delay_one_hands_over_the_token_before_the_last():
    seen = []

    def look(observation):
        seen.append((int(observation.token_index[0]), bool(observation.measured[0]), observation.entropy_raw_nats[0]))
        return SamplingAction(temperature=np.ones(observation.num_slots))

    for delay in (0, 1):
        seen.clear()
        config = EngineConfig(num_blocks=10, delay_steps=delay)
        plant = EnginePlant(
            spec([0.0], 4, 5), FormulaExecutor(), CountedClock(), config, frozenset({DecisionPoint.TEMPERATURE})
        )
        drive(plant, look)
        for token, measured, entropy in seen:
            source = token - 1 - delay
            assert measured == (source >= 0)
            assert np.isnan(entropy) if source < 0 else entropy == 2.0 + np.sin(source)


def test_measurement_is_new_once_per_decision_point():
    measured = []

    def order(observation):
        measured.append(observation.measured.copy())
        rank = np.where(observation.active, observation.arrival_rank, observation.num_slots)
        return OrderAction(rank=rank)

    plant = EnginePlant(
        spec([0.0, 0.0], 4, 3),
        FormulaExecutor(),
        CountedClock(),
        EngineConfig(num_blocks=10, max_running=1),
        frozenset({DecisionPoint.ORDER}),
    )
    drive(plant, order)
    # Request 0 (slot 0) draws in steps 0 to 2, request 1 in steps 3 to 5; the decision after a draw sees it once.
    assert [tuple(m) for m in measured] == [(0, 0), (1, 0), (1, 0), (0, 0), (0, 1), (0, 1)]


def test_temperature_is_clamped_by_the_plant_and_the_applied_value_reported():
    applied = []

    def hot(observation):
        applied.append(observation.temperature_applied[0])
        return SamplingAction(temperature=np.full(observation.num_slots, 9.0), temperature_max=1.5)

    plant = EnginePlant(
        spec([0.0], 4, 4),
        FormulaExecutor(),
        CountedClock(),
        EngineConfig(num_blocks=10),
        frozenset({DecisionPoint.TEMPERATURE}),
    )
    drive(plant, hot)
    assert applied[1:] == [1.5, 1.5, 1.5]


def test_backlog_beyond_the_slots_is_served_in_arrival_order():
    executor = FormulaExecutor()
    fcfs_run(spec([0.0] * 6, 4, 2), executor, num_blocks=50, num_slots=2)
    assert [r for r, _ in executor.admitted] == [0, 1, 2, 3, 4, 5]
    assert max(b.slot.size for b in executor.batches) == 2


@pytest.mark.parametrize(
    ("field", "value"),
    [("block_size", 0), ("num_blocks", 0), ("max_running", 0), ("watermark_frac", 1.0), ("temperature", -1.0)],
)
def test_bad_settings_are_one_line(field, value):
    with pytest.raises(InputError, match=f"engine.{field}") as caught:
        EngineConfig(**{"num_blocks": 10, field: value})
    assert "\n" not in str(caught.value)
