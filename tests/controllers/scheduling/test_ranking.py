"""Urgencies to a total order, against a plain sort."""

import numpy as np

from controllers.scheduling.fcfs import FCFS
from controllers.scheduling.ranking import order_by_urgency
from tests.controllers.scheduling.queue_plant import observation, requests_in_order


def test_equals_a_plain_sort_with_ties_to_the_older() -> None:
    rng = np.random.default_rng(0)
    for n in (1, 2, 50, 700):
        urgency = rng.choice([0.0, 0.5, 1.0, 3.0, 1e6, 1e-30], n)
        arrival = rng.permutation(2**31 - 1 - np.arange(n))
        obs = observation(n, arrival_rank=arrival)
        got = requests_in_order(order_by_urgency(obs, urgency), obs)
        assert got == sorted(range(n), key=lambda i: (-urgency[i], arrival[i]))


def test_inactive_rows_rank_behind() -> None:
    obs = observation(5, active=[True, False, True, False, True], arrival_rank=[9, 0, 4, 1, 7])
    rank = order_by_urgency(obs, np.array([1.0, 99.0, 1.0, 99.0, 2.0])).rank
    assert list(rank) == [2, 5, 1, 5, 0]
    _, action = FCFS().step(None, obs)
    assert list(action.rank) == [2, 5, 0, 5, 1]
