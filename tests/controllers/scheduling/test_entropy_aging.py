"""Entropy with aging: the score, the wait bound, starvation without aging."""

import numpy as np
import pytest

from controllers.scheduling.completion_aware import CompletionAware
from controllers.scheduling.entropy_aging import EntropyAging
from controllers.scheduling.entropy_ratio import EntropyRatio
from controllers.scheduling.expected_reduction import LastDrop
from tests.controllers.scheduling.queue_plant import observation, requests_in_order, run_queue
from workbench.errors import InputError

P, ALPHA, N, B = 2.0, 0.1, 32, 8


def hot_and_one_cold(scheduler: object, num_steps: int, **knobs: object) -> int:
    """Request 0 scores 0; 31 others always score P: a served one leaves and a new one takes its place."""

    def arrivals(step: int, present: list[int]) -> list[int]:
        if step == 0:
            return list(range(N))
        start = N + (step - 1) * B
        return list(range(start, start + N - len(present)))

    # Requests need one unit each, so none is ever measured: the prior decides. Kind is 0 for all, so the cold one is
    # made cold through an estimator that knows it.
    waits = run_queue(scheduler, num_steps, B, arrivals, lambda r, k: 1.0, work=lambda r: 1, num_slots=N, **knobs)
    return waits.longest[0]


class ColdZero:
    """Expected reduction: 0 for request 0, plenty for everybody else."""

    def init(self, capacity: int) -> None:
        return None

    def step(self, state: None, obs: object) -> tuple[None, np.ndarray]:
        return None, np.where(obs.request_id == 0, 0.0, 1.0)


def rule(alpha: float) -> EntropyAging:
    return EntropyAging(aging_nats_per_s=alpha, ratio_max_nats_per_s=P, cost_min_s=1e-3, estimator=ColdZero())


def test_cold_request_waits_no_longer_than_the_bound() -> None:
    assert rule(ALPHA).wait_bound_steps(N, B) == 20 + 4 + 1
    assert hot_and_one_cold(rule(ALPHA), 200) <= 25


def test_without_aging_it_starves_and_says_so() -> None:
    assert rule(0.0).wait_bound_steps(N, B) == np.inf
    assert hot_and_one_cold(rule(0.0), 100) == 99
    assert hot_and_one_cold(rule(0.0), 300) == 299
    assert "starv" in (EntropyRatio.__doc__ or "")


def test_preemption_does_not_reset_the_age() -> None:
    """The cold request holds KV in some steps and loses it in others; its wait is the same."""
    plain = hot_and_one_cold(rule(ALPHA), 200)
    assert hot_and_one_cold(rule(ALPHA), 200, running=lambda r, step: step % 3 == 0) == plain


def test_score_is_the_ratio_clipped_plus_age() -> None:
    scheduler = EntropyAging(
        aging_nats_per_s=10.0,
        ratio_max_nats_per_s=1000.0,
        cost_min_s=1e-3,
        prior_reduction_nats=(0.1, 0.2),
        estimator=LastDrop(),
    )
    state = scheduler.init(4)
    cost = np.array([1e-3, 2e-3, 1e-9, 1e-3])
    kinds = np.array([0, 1, 0, 7])
    first = observation(4, 0, kind=kinds, marginal_step_s=cost)
    state, action = scheduler.step(state, first)
    # Priors 0.1, 0.2, 0.1, 0.2 over costs floored at 1 ms: 100, 100, 100, 200. Equal ones go to the older.
    assert requests_in_order(action, first) == [3, 0, 1, 2]
    for step, h in ((1, [3.0, 3.0, 3.0, 3.0]), (2, [2.5, 2.5, 1.0, 3.5])):
        obs = observation(4, step, kind=kinds, marginal_step_s=cost, measured=True, entropy_raw_nats=h, served=False)
        state, action = scheduler.step(state, obs)
    # Drops 0.5, 0.5, 2, 0: 500, 250, 2000 clipped to 1000, 0; all aged alike.
    assert requests_in_order(action, obs) == [2, 0, 1, 3]
    assert list(state.age_steps) == [2, 2, 2, 2]
    # Row 3 waits, the others are served: it passes them once 10 x age makes up the difference.
    for step in range(3, 120):
        obs = observation(4, step, marginal_step_s=cost, served=[True, True, True, False])
        state, action = scheduler.step(state, obs)
        if requests_in_order(action, obs)[0] == 3:
            break
    assert state.age_steps[3] == 101


def test_missing_cost_counts_as_the_floor() -> None:
    scheduler = EntropyAging(cost_min_s=1e-3)
    obs = observation(2, 0, marginal_step_s=[1e-3 * 1.5, np.nan])
    _, action = scheduler.step(scheduler.init(2), obs)
    assert requests_in_order(action, obs) == [1, 0]


def test_nearly_finished_work_is_not_punished() -> None:
    """Flat entropy near the end: the plain rule ranks it last, the completion-aware rule first."""
    knobs = {"aging_nats_per_s": 1.0, "cost_min_s": 1e-3}
    for scheduler, expected in (
        (EntropyAging(estimator=LastDrop(), **knobs), [0, 1]),
        (CompletionAware(estimator=LastDrop(), use_oracle=True, completion_nats=20.0, **knobs), [1, 0]),
        (CompletionAware(estimator=LastDrop(), use_oracle=True, completion_nats=0.0, **knobs), [0, 1]),
    ):
        state = scheduler.init(2)
        for step, h in ((0, [2.0, 0.5]), (1, [1.0, 0.5])):
            obs = observation(2, step, measured=True, entropy_raw_nats=h, remaining_tokens_oracle=[500.0, 3.0])
            state, action = scheduler.step(state, obs)
        assert requests_in_order(action, obs) == expected


@pytest.mark.parametrize(
    "bad",
    [
        {"aging_nats_per_s": -1.0},
        {"aging_nats_per_s": np.inf},
        {"ratio_max_nats_per_s": 0.0},
        {"cost_min_s": 0.0},
        {"cost_min_s": np.nan},
        {"prior_reduction_nats": ()},
        {"prior_reduction_nats": (-1.0,)},
    ],
)
def test_refusals(bad: dict) -> None:
    for scheduler in (EntropyAging, CompletionAware):
        with pytest.raises(InputError, match=next(iter(bad))):
            scheduler(**bad)
