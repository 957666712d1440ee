"""The simulated executor inside the shared engine: accounts add up, arms share their random numbers."""

from dataclasses import replace

import numpy as np
import pytest

from sims.executor import SimExecutor
from sims.mass_process import MassProcess
from workbench.engine.executor import Batch
from workbench.engine.requests import RequestStatus
from workbench.errors import InputError
from workbench.protocols import KeepAction, KeepRule


@pytest.mark.parametrize("arm", ["", "S", "T", "P", "STP"])
def test_every_request_completes_with_its_tokens(parts, arm):
    requests = parts.requests()
    plant = parts.drive(*parts.plant(requests, arm))
    assert np.all(plant.ledger.status == RequestStatus.COMPLETED)
    np.testing.assert_array_equal(plant.ledger.generated_tokens, requests.output_tokens)
    steps = plant.telemetry.step_table()
    assert steps["num_tokens"].sum() == (requests.prompt_tokens + requests.output_tokens - 1).sum()
    assert np.all(steps["kv_bytes_read"] <= steps["kv_bytes_dense"])
    assert ("P" in arm) == bool(np.any(steps["kv_bytes_read"] < steps["kv_bytes_dense"]))
    assert plant.pool.num_free[0] == plant.config.num_blocks


def test_time_is_the_step_cost_of_each_batch(parts):
    requests = parts.requests(6)
    plant = parts.drive(*parts.plant(requests))
    steps = plant.telemetry.step_table()
    assert np.all(np.diff(steps["start_s"]) >= steps["elapsed_s"][:-1] - 1e-12)
    cost = parts.cost()
    first = cost.step_s(np.array([0]), requests.prompt_tokens[:1], np.array([True]))
    assert steps["elapsed_s"][0] == pytest.approx(first)


def test_the_engine_learns_its_cost_as_a_real_one_does(parts):
    """An order goes by what the steps so far have taught; where the true cost is linear, that becomes the true cost."""
    cost = parts.cost(output_s=np.zeros(2), row_s=0.0, pair_s=0.0)
    plant, controllers = parts.plant(parts.requests(200), cost=cost)
    start, tokens = np.array([50, 400]), np.array([1, 1])
    executor = plant.executor
    assert executor.marginal_step_s(start, tokens) == pytest.approx([1e-3, 1e-3], rel=0.1)  # the prior of any engine
    parts.drive(plant, controllers)
    known = (cost.dense_s[2] - cost.dense_s[1]) * tokens + cost.kv_s_per_token * (start + tokens)
    assert executor.marginal_step_s(start, tokens) == pytest.approx(known, rel=0.01)


def test_arms_see_the_same_raw_entropies(parts):
    requests = parts.requests()

    def raw(arm):
        plant = parts.drive(*parts.plant(requests, arm))
        tokens = {k: np.concatenate([t[k] for t in plant.telemetry.tokens]) for k in plant.telemetry.tokens[0]}
        order = np.lexsort((tokens["token_index"], tokens["request_id"]))
        return tokens["entropy_raw_nats"][order]

    plain = raw("")
    for arm in ("S", "T", "P", "STP"):
        np.testing.assert_array_equal(raw(arm), plain, err_msg=arm)


def test_two_runs_of_one_seed_are_the_same_and_another_seed_is_not(parts):
    requests = parts.requests(20)
    tables = [parts.drive(*parts.plant(requests, "STP", seed=s)).telemetry.request_columns() for s in (1, 1, 2)]
    np.testing.assert_array_equal(tables[0]["tau_nats"], tables[1]["tau_nats"])
    assert np.any(tables[0]["tau_nats"] != tables[2]["tau_nats"])


def test_preemption_changes_no_token(parts):
    requests = parts.requests(30, rate=1000.0)
    ample, tight = (parts.drive(*parts.plant(requests, "P", num_blocks=n)) for n in (2000, 40))
    assert tight.ledger.num_preempted.sum() > 0
    assert ample.ledger.num_preempted.sum() == 0
    for name in ("net_drop_nats", "nll_raw_nats"):
        np.testing.assert_allclose(tight.telemetry.request_columns()[name], ample.telemetry.request_columns()[name])


def test_pruning_shortens_the_steps_it_reads_less_in(parts):
    requests = parts.requests(10, prompt=(400, 500), output=(40, 60))
    cost = parts.cost(kv_s_per_token=1e-5)
    dense, pruned = (parts.drive(*parts.plant(requests, arm, cost=cost)) for arm in ("", "P"))
    assert np.nanmax(pruned.ledger.finished_s) < np.nanmax(dense.ledger.finished_s)
    dropped = pruned.telemetry.request_columns()["dropped_mass_mean"]
    assert np.all(dropped >= 0.0)
    # The controller knows masses of earlier steps only, so what is really dropped scatters about its budget.
    assert 0.01 < dropped.mean() < 0.08


def test_eviction_frees_blocks_of_running_requests(parts):
    requests = parts.requests(10, prompt=(400, 500), output=(40, 60), rate=1000.0)
    plant, controllers = parts.plant(requests, "P", num_blocks=1000)
    point = next(iter(controllers))
    kept = parts.drive(plant, controllers).telemetry.step_table()["kv_blocks_used"]
    plant, controllers = parts.plant(requests, "P", num_blocks=1000)
    freed = parts.drive(plant, {point: replace(controllers[point], evict=True)}).telemetry.step_table()[
        "kv_blocks_used"
    ]
    assert freed.sum() < 0.9 * kept.sum()


def test_a_slow_gpu_takes_longer_and_burns_idle_power_meanwhile(parts):
    requests = parts.requests(5)
    plant, controllers = parts.plant(requests)
    plant.executor.slowdown = 2.0
    slow = parts.drive(plant, controllers).telemetry.step_table()
    usual = parts.drive(*parts.plant(requests)).telemetry.step_table()
    assert slow["elapsed_s"][0] == pytest.approx(2.0 * usual["elapsed_s"][0])
    assert slow["energy_j"][0] - usual["energy_j"][0] == pytest.approx(50.0 * usual["elapsed_s"][0])


def batch_of(slots, start, blocks, table_width=64):
    n = len(slots)
    return Batch(
        step=0, slot=np.array(slots), request_id=np.array(slots), start=np.array(start), num_tokens=np.ones(n, int),
        samples=np.ones(n, bool), token_index=np.ones(n, int), prompt_tokens=np.array(start),
        output_tokens=np.full(n, 99), kind=np.zeros(n, int), num_blocks=np.array(blocks),
        slot_block_table=np.zeros((8, table_width), np.int32), block_size=16,
    )  # fmt: skip


def window(rule=KeepRule.WINDOW, slots=8, width=64, **changes):
    fields = dict(
        rule=np.full(slots, int(rule)), mass_budget=np.zeros(slots), block_budget_frac=np.ones(slots),
        sink_blocks=np.ones(slots, int), recent_blocks=np.full(slots, 2), score=np.full((slots, width), np.nan),
        evict=np.zeros(slots, bool),
    )  # fmt: skip
    return KeepAction(**{**fields, **changes})


def test_kv_bytes_of_a_pruned_row_count_whole_blocks_and_the_part_full_last_one(parts):
    executor = SimExecutor(parts.cost(), parts.process(), ("any",), mass=MassProcess())
    executor.admit(3, 3)
    result = executor.execute(batch_of([3], [100], [7]), None, window())
    # Context 101 in 7 blocks, the last holds 5. Kept: the first, the last two.
    assert result.kv_bytes_read == (16 + 16 + 5) * 1e5
    assert result.kv_bytes_dense == 101 * 1e5
    assert result.block_mass is not None
    np.testing.assert_array_equal(np.isnan(result.block_mass[0]), [False, True, True, True, True, False, False])
    assert np.nansum(result.block_mass[0]) == pytest.approx(1.0)
    again = executor.execute(batch_of([3], [101], [7]), None, window())
    assert again.block_mass is None, "nothing new to tell"
    np.testing.assert_array_equal(again.dropped_mass, result.dropped_mass)


def test_rules_that_need_keys_are_refused(parts):
    executor = SimExecutor(parts.cost(), parts.process(), ("any",), mass=MassProcess())
    executor.admit(0, 0)
    with pytest.raises(InputError, match="CERTIFIED reads keys"):
        executor.execute(batch_of([0], [100], [7]), None, window(KeepRule.CERTIFIED))


def test_slots_and_blocks_may_exceed_what_was_first_made_room_for(parts):
    executor = SimExecutor(parts.cost(), parts.process(), ("any",), mass=MassProcess())
    for slot in (0, 500):
        executor.admit(slot, slot)
    first = executor.execute(batch_of([0], [100], [7]), None, None)
    batch = batch_of([0, 500], [101, 2000], [7, 126])
    both = executor.execute(batch, None, None)
    assert np.isfinite(both.entropy_raw_nats).all()
    assert first.token_id[0] >= 0


def test_bad_options_are_refused(parts):
    with pytest.raises(InputError, match="seed"):
        SimExecutor(parts.cost(), parts.process(), ("any",), seed=-1)
    with pytest.raises(InputError, match="temperature"):
        SimExecutor(parts.cost(), parts.process(), ("any",), temperature=np.inf)
