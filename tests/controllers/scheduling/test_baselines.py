"""FCFS, SRPT, shortest predicted, MLFQ, priority classes: order and mean time in system against brute force."""

import numpy as np
import pytest

from controllers.scheduling.fcfs import FCFS
from controllers.scheduling.mlfq import MLFQ
from controllers.scheduling.priority_classes import PriorityClasses
from controllers.scheduling.remaining_length import EntropyTrend
from controllers.scheduling.shortest_predicted import ShortestPredicted
from controllers.scheduling.srpt import SRPTOracle
from tests.controllers.scheduling.queue_plant import observation, requests_in_order, run_queue
from workbench.errors import InputError


def time_in_system(scheduler: object, work: dict[int, int], arrival: dict[int, int]) -> int:
    waits = run_queue(
        scheduler,
        200,
        1,
        lambda step, present: [r for r, at in arrival.items() if at == step],
        lambda r, k: 1.0,
        work=work.__getitem__,
    )
    finished = {r: max(step for step, order in enumerate(waits.served_order) if order and order[0] == r) for r in work}
    return sum(finished[r] + 1 - arrival[r] for r in work)


def test_srpt_is_optimal_on_one_server() -> None:
    """Against dynamic programming over every preemptive schedule."""
    from functools import cache

    rng = np.random.default_rng(0)
    for _ in range(10):
        work = {r: int(rng.integers(1, 5)) for r in range(4)}
        arrival = {r: int(rng.integers(0, 5)) for r in range(4)}

        @cache
        def best(step: int, left: tuple[int, ...], at: tuple[int, ...]) -> int:
            if not any(left):
                return 0
            here = [r for r in range(4) if left[r] and at[r] <= step]
            present = len(here)
            if not here:
                return best(step + 1, left, at)
            return present + min(best(step + 1, tuple(x - (i == r) for i, x in enumerate(left)), at) for r in here)

        optimum = best(0, tuple(work.values()), tuple(arrival.values()))
        # Requests are named in order of arrival, as in a trace.
        names = {old: new for new, old in enumerate(sorted(arrival, key=lambda r: (arrival[r], r)))}
        got = time_in_system(
            SRPTOracle(), {names[r]: w for r, w in work.items()}, {names[r]: a for r, a in arrival.items()}
        )
        assert got == optimum


def test_srpt_puts_unknown_lengths_last_by_arrival() -> None:
    obs = observation(4, remaining_tokens_oracle=[np.nan, 9.0, np.nan, 3.0])
    _, action = SRPTOracle().step(None, obs)
    assert requests_in_order(action, obs) == [3, 1, 0, 2]


def test_fcfs_finishes_in_order_of_arrival() -> None:
    assert time_in_system(FCFS(), {0: 5, 1: 1}, {0: 0, 1: 0}) == 5 + 6
    assert time_in_system(SRPTOracle(), {0: 5, 1: 1}, {0: 0, 1: 0}) == 1 + 6


def test_mlfq_sinks_long_work_and_boosts_the_waiting() -> None:
    order = run_queue(
        MLFQ(quantum_steps=2, boost_steps=10),
        60,
        1,
        lambda step, present: {0: [0], 3: [1]}.get(step, []),
        lambda r, k: 1.0,
        work=lambda r: 30,
    ).served_order
    assert order[3][0] == 1  # the newcomer goes first: request 0 has used its quantum
    waits = run_queue(
        MLFQ(quantum_steps=2, num_levels=4, boost_steps=10),
        200,
        1,
        lambda step, present: [step],  # a stream of newcomers that never leaves level 0 to the old one
        lambda r, k: 1.0,
        work=lambda r: 50 if r == 0 else 1,
        num_slots=256,
    )
    assert waits.longest[0] <= 11
    starved = run_queue(
        MLFQ(quantum_steps=2, boost_steps=0),
        200,
        1,
        lambda step, present: [step],
        lambda r, k: 1.0,
        work=lambda r: 50 if r == 0 else 1,
        num_slots=256,
    )
    assert starved.longest[0] > 150


def test_priority_classes_and_promotion() -> None:
    obs = observation(4, priority=[2, 0, 1, 0])
    scheduler = PriorityClasses()
    _, action = scheduler.step(scheduler.init(4), obs)
    assert requests_in_order(action, obs) == [1, 3, 2, 0]
    scheduler, order = PriorityClasses(promote_steps=3), []
    state = scheduler.init(2)
    for step in range(8):
        obs = observation(2, step, priority=[2, 1], served=[False, step > 0])
        state, action = scheduler.step(state, obs)
        order.append(requests_in_order(action, obs)[0])
    assert order == [1, 1, 1, 0, 0, 0, 0, 0]  # after 3 waits class 2 counts as 1, and the older goes first


def test_length_predictor_learns_a_trend_that_is_there() -> None:
    """Traces whose entropy falls as the end comes near: fitted beats the prior, and ranks by what is left."""
    rng = np.random.default_rng(0)
    traces = [
        np.clip(0.5 + 2.0 * np.arange(n)[::-1] / 200 + 0.2 * rng.standard_normal(n), 0.0, None)
        for n in rng.integers(30, 400, 60)
    ]
    kinds = [0] * len(traces)
    prior = EntropyTrend(prior_tokens=(100.0,))
    fit = prior.fitted(traces, kinds)
    assert fit.b_level > 0.0
    assert prior.explained(traces, kinds) <= 0.05
    assert fit.explained(traces, kinds) > 0.5
    scheduler = ShortestPredicted(predictor=fit)
    state = scheduler.init(2)
    for step in range(30):
        obs = observation(
            2, step, measured=True, generated_tokens=step, entropy_raw_nats=[3.0 - 0.01 * step, 0.8 - 0.01 * step]
        )
        state, action = scheduler.step(state, obs)
    assert requests_in_order(action, obs) == [1, 0]


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: MLFQ(num_levels=0), "num_levels"),
        (lambda: MLFQ(quantum_steps=0), "quantum_steps"),
        (lambda: MLFQ(boost_steps=-1), "boost_steps"),
        (lambda: PriorityClasses(promote_steps=-1), "promote_steps"),
        (lambda: EntropyTrend(prior_tokens=()), "prior_tokens"),
        (lambda: EntropyTrend(slow_weight=0.5), "slow_weight"),
        (lambda: EntropyTrend(b_level=np.inf), "b_level"),
    ],
)
def test_refusals(build: object, match: str) -> None:
    with pytest.raises(InputError, match=match):
        build()
