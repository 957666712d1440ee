"""Whatever happens, every request is in exactly one place at the end, and no KV block is lost."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sims.clock import SimClock
from sims.dispatcher import POLICIES
from sims.executor import SimExecutor
from sims.faults import Failures, SlowSpells
from sims.fleet import Fleet
from tests.sims.conftest import drive, made_cost, made_process, made_requests
from workbench.engine.config import EngineConfig
from workbench.engine.plant import EnginePlant
from workbench.engine.prompt_blocks import blocks_of_groups
from workbench.engine.requests import RequestStatus as S

COST, PROCESS = made_cost(), made_process()
SETTINGS = dict(
    seed=st.integers(0, 1000),
    count=st.integers(1, 30),
    rate=st.sampled_from([5.0, 50.0, 500.0]),
    blocks=st.sampled_from([12, 20, 60]),
    max_running=st.sampled_from([1, 3, 16]),
    caching=st.booleans(),
    preemption=st.sampled_from(["recompute", "swap"]),
    swap_blocks=st.sampled_from([None, 0, 10]),
    max_queue=st.sampled_from([None, 1, 5]),
    timeout_s=st.sampled_from([np.inf, 0.3, 3.0]),
    ttft_s=st.sampled_from([np.inf, 0.2]),
    cancels=st.booleans(),
    horizon=st.sampled_from([np.inf, 0.7]),
)


def requests_and_config(
    seed, count, rate, blocks, max_running, caching, preemption, swap_blocks, max_queue, timeout_s, ttft_s, cancels, horizon
):  # fmt: skip
    rng = np.random.default_rng(seed)
    requests = made_requests(count, rate=rate, seed=seed, prompt=(1, 150), output=(1, 40))
    if cancels:
        goes = np.where(rng.random(count) < 0.3, requests.arrival_s + rng.exponential(0.5, count), np.inf)
        requests = replace(requests, cancel_s=goes)
    if caching:
        group = rng.integers(0, 2, count)
        requests = replace(requests, prompt_blocks=blocks_of_groups(group, 64, requests.prompt_tokens, 2, 16))
    config = EngineConfig(
        num_blocks=blocks, max_running=max_running, prefix_caching=caching, preemption=preemption,
        swap_blocks=swap_blocks, swap_block_s=1e-4, max_queue=max_queue, timeout_s=timeout_s, ttft_timeout_s=ttft_s,
        horizon_s=horizon, preemption_quantum_tokens=4,
    )  # fmt: skip
    return requests, config


def conserved(requests, config, ledger, engines):
    status, n = ledger.status, len(requests)
    ended = np.isin(status, [S.COMPLETED, S.REFUSED, S.TIMED_OUT, S.CANCELLED])
    inside = np.isin(status, [S.WAITING, S.RUNNING])
    assert np.array_equal(ended | inside | (status == S.NOT_ARRIVED), np.ones(n, bool))
    assert np.array_equal(status == S.COMPLETED, ~np.isnan(ledger.finished_s))
    assert np.all(ledger.generated_tokens[status == S.COMPLETED] == requests.output_tokens[status == S.COMPLETED])
    assert np.all(ledger.generated_tokens <= requests.output_tokens)
    assert np.all(ledger.num_swapped <= ledger.num_preempted)
    assert np.all(ledger.prefix_hit_tokens < requests.prompt_tokens)
    if np.isinf(config.horizon_s):
        assert ended.all()
    held = set()
    for engine in engines:
        here = engine.request_id[engine.occupied].tolist()
        assert len(set(here)) == len(here)
        assert not held & set(here)
        held |= set(here)
        tables = engine.pool.table[engine.pool.table >= 0]
        distinct = len(set(tables.tolist()))
        assert engine.pool.num_free[0] == config.num_blocks - distinct
        if engine.index is None:
            assert distinct == tables.size
        else:
            np.testing.assert_array_equal(np.bincount(tables, minlength=config.num_blocks), engine.index.refs)
        assert not engine.pool.num_held[~engine.occupied].any()
        assert not engine.swapped_blocks[~engine.occupied].any()
        assert np.all(engine.pool.num_held[engine.occupied] * 16 >= 0)
    assert held <= set(np.flatnonzero(inside).tolist())


@settings(max_examples=40)
@given(**SETTINGS)
def test_one_engine(**values):
    requests, config = requests_and_config(**values)
    plant = EnginePlant(
        requests, SimExecutor(COST, PROCESS, ("any",), seed=values["seed"]), SimClock(), config, frozenset(), 0
    )
    drive(plant, {})
    conserved(requests, config, plant.ledger, [plant])


@settings(max_examples=40)
@given(
    replicas=st.integers(1, 3), dispatcher=st.sampled_from(sorted(POLICIES)), fails=st.booleans(), slow=st.booleans(),
    **SETTINGS,
)  # fmt: skip
def test_a_fleet_that_fails(replicas, dispatcher, fails, slow, **values):
    if dispatcher == "prefix-aware":
        values["caching"] = True
    requests, config = requests_and_config(**values)
    seed = values["seed"]
    executors = [SimExecutor(COST, PROCESS, ("any",), seed=seed) for _ in range(replicas)]
    fleet = Fleet(requests, executors, config, dispatcher, window_steps=0, seed=seed)
    for i in range(replicas):
        if fails:
            Failures(mean_gap_s=0.5, repair_s=0.2).start(fleet.env, fleet, seed, i)
        if slow:
            SlowSpells(mean_gap_s=0.2, length_s=0.2).start(fleet.env, executors[i], seed, i)
    drive(fleet, {})
    conserved(requests, config, fleet.ledger, fleet.replicas)
    waiting = set(fleet.held)
    assert all(fleet.ledger.status[r] == S.WAITING for r in waiting)
