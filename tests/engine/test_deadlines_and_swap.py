"""Timeouts, cancellations, queue limit, swap: by hand, and against the engine without them."""

from dataclasses import replace

import numpy as np
import pytest

from tests.engine.test_plant import drive, spec
from tests.fakes import FormulaExecutor
from workbench.engine.clock import CountedClock
from workbench.engine.config import EngineConfig
from workbench.engine.plant import EnginePlant
from workbench.engine.requests import RequestStatus as S
from workbench.errors import InputError


def run(requests, **config):
    plant = EnginePlant(requests, FormulaExecutor(mass=False), CountedClock(), EngineConfig(**config))
    drive(plant)
    assert plant.pool.num_free[0] == plant.config.num_blocks
    return plant


def test_a_timeout_acts_at_the_next_step_boundary_and_an_end_at_the_deadline_is_in_time():
    # Steps of 1 s: 4 tokens end at 4 s.
    for timeout, status, tokens in ((4.0, S.COMPLETED, 4), (3.9, S.TIMED_OUT, 4), (2.5, S.TIMED_OUT, 3)):
        plant = run(spec([0.0], 4, 4), num_blocks=10, timeout_s=timeout)
        assert plant.ledger.status[0] == status
        assert plant.ledger.generated_tokens[0] == tokens
        assert np.isnan(plant.ledger.finished_s[0]) == (status != S.COMPLETED)


def test_waiting_for_the_first_token_has_its_own_deadline():
    plant = run(spec([0.0, 0.0, 0.0], 4, 6), num_blocks=10, max_running=1, ttft_timeout_s=7.0)
    # The first ends at 6, the second's first token comes at 7, in time; the third has none by 7.
    assert plant.ledger.status.tolist() == [S.COMPLETED, S.COMPLETED, S.TIMED_OUT]
    assert np.isnan(plant.ledger.first_scheduled_s[2])


def test_a_client_who_goes_away_frees_its_blocks():
    requests = replace(spec([0.0, 0.0], 30, 100), cancel_s=np.array([2.5, np.inf]))
    plant = run(requests, num_blocks=10)
    assert plant.ledger.status.tolist() == [S.CANCELLED, S.COMPLETED]
    assert plant.ledger.generated_tokens.tolist() == [3, 100]
    used = plant.telemetry.step_table()["kv_blocks_used"]
    assert used[2] == 2 * 2  # 32 tokens each
    assert used[3] == 3  # 33 of the one that is left


def test_the_earlier_deadline_names_the_reason():
    requests = replace(spec([0.0, 0.0], 4, 50), cancel_s=np.array([5.0, 3.0]))
    assert run(requests, num_blocks=20, timeout_s=4.0).ledger.status.tolist() == [S.TIMED_OUT, S.CANCELLED]


def test_a_full_queue_turns_away_and_the_rest_is_served():
    plant = run(spec([0.0] * 6, 4, 2), num_blocks=10, max_running=1, max_queue=2)
    assert np.bincount(plant.ledger.status, minlength=7)[[S.COMPLETED, S.REFUSED]].tolist() == [2, 4]


def contended(**config):
    return run(spec([0.0] * 6, 64, 60), num_blocks=20, preemption_quantum_tokens=4, **config)


def test_swapped_kv_is_not_computed_again_and_its_copies_take_their_time():
    recompute, free, slow = (
        contended(), contended(preemption="swap"), contended(preemption="swap", swap_block_s=0.25),
    )  # fmt: skip
    assert recompute.ledger.recomputed_tokens.sum() > 0
    for plant in (free, slow):
        assert np.all(plant.ledger.status == S.COMPLETED)
        assert plant.ledger.recomputed_tokens.sum() == 0
        assert plant.ledger.num_swapped.tolist() == plant.ledger.num_preempted.tolist()
        assert plant.ledger.num_swapped.sum() > 0
    computed = [p.telemetry.step_table()["num_tokens"].sum() for p in (recompute, free, slow)]
    assert computed[1] == computed[2] == 6 * (64 + 59)
    assert computed[0] == computed[1] + recompute.ledger.recomputed_tokens.sum()
    # Same batches, so the difference is the copies: each block once out and once back.
    extra_s = slow.clock.now_s - free.clock.now_s
    assert extra_s > 0.0
    assert extra_s / 0.25 == pytest.approx(round(extra_s / 0.25))
    assert round(extra_s / 0.25) % 2 == 0


def test_a_full_host_memory_falls_back_to_recompute():
    none = contended(preemption="swap", swap_blocks=0)
    some = contended(preemption="swap", swap_blocks=8)
    plain = contended()
    assert none.ledger.num_swapped.sum() == 0
    np.testing.assert_array_equal(none.ledger.finished_s, plain.ledger.finished_s)
    assert 0 < some.ledger.num_swapped.sum() < some.ledger.num_preempted.sum()


@pytest.mark.parametrize(
    ("key", "value"),
    [("preemption", "page"), ("swap_blocks", -1), ("max_queue", 0), ("timeout_s", 0.0), ("ttft_timeout_s", -1.0)],
)
def test_bad_settings_are_one_line(key, value):
    with pytest.raises(InputError, match=f"engine.{key}"):
        EngineConfig(num_blocks=4, **{key: value})
