"""A queue for schedulers, without the engine: one order a step, the first `num_served` rows get one unit of work."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.protocols import OrderObservation, blank_like


@dataclass(frozen=True)
class Waits:
    longest: dict[
        int, int
    ]  # request -> most steps between two services (or arrival and first service), also unfinished
    served_order: list[list[int]]  # per step, requests in the order of the action


def observation(num_rows: int, step: int = 0, **values: Any) -> OrderObservation:
    """All rows active; arrival rank = row. What is not given is missing."""
    arrays = blank_like(OrderObservation, num_rows)
    arrays["active"][:] = True
    arrays["joined"][:] = step == 0
    arrays["request_id"] = np.arange(num_rows)
    arrays["arrival_rank"] = np.arange(num_rows)
    arrays["marginal_step_s"][:] = 1e-3
    for name, value in values.items():
        arrays[name] = np.broadcast_to(np.asarray(value, dtype=arrays[name].dtype), num_rows).copy()
    return OrderObservation(step=step, **arrays)


def requests_in_order(action: Any, obs: OrderObservation) -> list[int]:
    slots = np.flatnonzero(obs.active)
    return [int(obs.request_id[s]) for s in slots[np.argsort(action.rank[slots])]]


def run_queue(
    scheduler: Any,
    num_steps: int,
    num_served: int,
    arrivals: Callable[[int, list[int]], list[int]],
    entropy: Callable[[int, int], float],
    *,
    work: Callable[[int], int] = lambda request: 1,
    num_slots: int = 64,
    running: Callable[[int, int], bool] = lambda request, step: False,
    cost_s: float = 1e-3,
) -> Waits:
    """`arrivals(step, present)` gives new request ids; `entropy(request, units done)` its H_raw after that unit."""
    state = scheduler.init(num_slots)
    slot_of: dict[int, int] = {}
    done: dict[int, int] = {}
    age: dict[int, int] = {}
    longest: dict[int, int] = {}
    fresh: set[int] = set()
    last: list[int] = []
    log: list[list[int]] = []
    for step in range(num_steps):
        joined = arrivals(step, list(slot_of))
        for request in joined:
            slot_of[request] = min(set(range(num_slots)) - set(slot_of.values()))
            done[request], age[request] = 0, 0
        arrays = blank_like(OrderObservation, num_slots)
        for request, slot in slot_of.items():
            arrays["active"][slot] = True
            arrays["joined"][slot] = request in joined
            arrays["request_id"][slot] = arrays["arrival_rank"][slot] = request
            arrays["served"][slot] = request in last
            arrays["running"][slot] = running(request, step)
            arrays["measured"][slot] = request in fresh
            arrays["generated_tokens"][slot] = done[request]
            arrays["remaining_tokens_oracle"][slot] = work(request) - done[request]
            arrays["marginal_step_s"][slot] = cost_s
            if done[request]:
                arrays["entropy_raw_nats"][slot] = entropy(request, done[request])
        obs = OrderObservation(step=step, **arrays)
        state, action = scheduler.step(state, obs)
        order = requests_in_order(action, obs)
        log.append(order)
        last = order[:num_served]
        fresh = set(last)
        for request in list(slot_of):
            longest[request] = max(longest.get(request, 0), age[request])
            if request in last:
                age[request] = 0
                done[request] += 1
                if done[request] >= work(request):
                    del slot_of[request]
            else:
                age[request] += 1
    return Waits(longest, log)
