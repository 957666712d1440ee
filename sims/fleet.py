"""Several replicas of one engine behind a dispatcher, on one SimPy clock. To the loop a fleet is one plant.

    arrivals -> dispatcher -> replica 0 .. n - 1, each with its own batch, KV memory, GPU and faults

Slots of all replicas stand one after another; a decision concerns one replica's step, the rows of the others are inactive.
Steps are numbered over the whole fleet in the order in which they begin. At one moment of time, in this order: ends of
steps and faults (in the order they were scheduled), arrivals (ties in file order), then batches.

A replica that fails loses its KV and the step under way. Its unfinished requests go back to the dispatcher at once; tokens that
are out stay out, their KV is computed again where the request lands (`recomputed_tokens`, `num_retried`). The entropy process of
such a request starts afresh there. Where nobody is up, requests wait at the dispatcher.
"""

from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import simpy

from sims.clock import Moment, SimClock, Timeline
from sims.dispatcher import CentralQueue, Choice, make_policy
from sims.executor import SimExecutor
from sims.replica import ReplicaEngine, Waits
from workbench.engine.config import EngineConfig
from workbench.engine.executor import Batch, StepResult
from workbench.engine.requests import RequestLedger, RequestSpec, RequestStatus
from workbench.engine.telemetry import Telemetry
from workbench.errors import InputError
from workbench.protocols import Action, DecisionPoint, Observation, blank_like
from workbench.signals import FloatArray, IntArray

ARRIVALS, BATCHES = 2, 3  # priorities at one moment; ends of steps and faults are SimPy's NORMAL, 1
DOWN, ENDED = "down", "ended"


class Fleet:
    """A `Plant` of `len(executors)` replicas. Raises `InputError` for an unknown dispatcher."""

    def __init__(
        self,
        requests: RequestSpec,
        executors: Sequence[SimExecutor],
        config: EngineConfig,
        dispatcher: str,
        *,
        controlled: frozenset[DecisionPoint] = frozenset(),
        window_steps: int | None = None,
        seed: int = 0,
    ) -> None:
        if not executors:
            raise InputError("a fleet needs at least one replica, got 0")
        self.requests, self.config, self.controlled = requests, config, controlled
        self.env = Timeline()
        self.clock = SimClock(self.env)
        self.ledger = RequestLedger(len(requests))
        self.ledger.replica[:] = -1
        self.telemetry = FleetTelemetry(len(requests), window_steps, config.entropy_target_nats)
        self.lost_tokens = np.zeros(len(requests), np.int64)
        self.texts: dict[int, tuple[FloatArray, IntArray]] = {}
        count = len(executors)
        self.replicas = [
            ReplicaEngine(
                i, self, requests, executor, self.clock, config, controlled, OneReplica(self.telemetry, self, i)
            )
            for i, executor in enumerate(executors)
        ]
        self.slots_each = self.replicas[0].num_slots
        self.num_slots = count * self.slots_each
        self.policy = make_policy(dispatcher, count, seed, requests.prompt_blocks if config.prefix_caching else None)
        self.held: list[int] = []  # waiting at the dispatcher, oldest first
        self.num_failures = np.zeros(count, np.int64)
        self.down_s = np.zeros(count)
        self.on_step: Callable[[], None] = lambda: None
        self.request_columns: Callable[[], Mapping[str, Any]] = dict
        self.notes: dict[str, Any] = {}
        self._state: list[Waits | float | str] = [Waits.GATE] * count
        self._turn = [0] * count  # timers of an earlier turn are void
        self._failed_s = np.zeros(count)
        self._acting: int | None = None
        self._steps_begun = 0
        self._all_arrived = False
        for i, engine in enumerate(self.replicas):
            engine.on_step = lambda: self.on_step()
            self._gate(i)
        self.env.process(self._arrive())

    @property
    def executor(self) -> SimExecutor:
        """Of the first replica: what all have in common."""
        executor = self.replicas[0].executor
        assert isinstance(executor, SimExecutor)
        return executor

    @property
    def step_index(self) -> int:
        return self._steps_begun

    @property
    def share_done(self) -> float:
        ended = self.ledger.status >= RequestStatus.COMPLETED
        return float(np.count_nonzero(ended)) / max(len(self.requests), 1)

    # The plant side of the loop

    def advance(self) -> DecisionPoint | None:
        while True:
            if self._acting is not None:
                i = self._acting
                waits = self.replicas[i].resume()
                if isinstance(waits, DecisionPoint):
                    return waits
                self._acting = None
                self._state[i] = ENDED if waits is None else waits
                if waits is Waits.GATE:
                    self._gate(i)
                elif isinstance(waits, float | int):
                    self._wake(i, float(waits), simpy.events.NORMAL)
            if self._ended():
                self.notes["replicas"] = {
                    "failures": self.num_failures.tolist(),
                    "down_s": self.down_s.tolist(),
                }
                return None
            self.env.step()

    def observe(self, point: DecisionPoint) -> Observation:
        engine, part = self._at_work()
        seen = engine.observe(point)
        widths = {f.name: v.shape[1] for f in fields(seen) if getattr(v := getattr(seen, f.name), "ndim", 0) == 2}
        whole = blank_like(type(seen), self.num_slots, **widths)
        for name, column in whole.items():
            column[part] = getattr(seen, name)
        return type(seen)(**{"step": seen.step, **whole})

    def apply(self, point: DecisionPoint, action: Any) -> Action:
        engine, part = self._at_work()
        mine = {f.name: v[part] for f in fields(action) if isinstance(v := getattr(action, f.name), np.ndarray)}
        applied = engine.apply(point, replace(action, **mine))
        changed = {}
        for name, given in mine.items():
            real = getattr(applied, name)
            if real is not given:
                changed[name] = getattr(action, name).copy()
                changed[name][part] = real
        return replace(action, **changed) if changed else action

    def _at_work(self) -> tuple[ReplicaEngine, slice]:
        i = self._acting
        assert i is not None
        return self.replicas[i], slice(i * self.slots_each, (i + 1) * self.slots_each)

    # Time

    def _wake(self, replica: int, delay_s: float, priority: int) -> None:
        """Let the replica go on after `delay_s`, unless it has failed by then."""
        turn = self._turn[replica]

        def act(event: simpy.Event) -> None:
            if self._turn[replica] == turn:
                self._acting = replica

        Moment(self.env, self.env.now + delay_s, priority).callbacks.append(act)

    def _gate(self, replica: int) -> None:
        self._state[replica] = Waits.GATE
        self._wake(replica, 0.0, BATCHES)

    def _ended(self) -> bool:
        if not self._all_arrived or any(s is not Waits.IDLE and s not in (DOWN, ENDED) for s in self._state):
            return False
        return not self.held or self.clock.now_s >= self.config.horizon_s

    def next_step(self) -> int:
        self._steps_begun += 1
        return self._steps_begun - 1

    # The dispatcher

    def _arrive(self) -> Any:
        """A SimPy process: requests come at their times."""
        arrival_s, env = self.requests.arrival_s, self.env
        for r in range(len(self.requests)):
            time_s = float(arrival_s[r])
            if time_s >= self.config.horizon_s:
                break
            if time_s > env.now:
                yield Moment(env, time_s, ARRIVALS)
            self._dispatch(r)
        self._all_arrived = True

    def _dispatch(self, request: int) -> None:
        up = np.array([i for i, state in enumerate(self._state) if state not in (DOWN, ENDED)], np.int64)
        chosen = None
        if up.size and not self.held:
            load = np.array([engine.load for engine in self.replicas], np.int64)
            attempt = int(self.ledger.num_retried[request])
            chosen = self.policy.choose(Choice(request, attempt, up, load, self.config.max_running))
        if chosen is not None:
            self.replicas[chosen].deliver(request)
            if self._state[chosen] is Waits.IDLE:
                self._gate(chosen)
            return
        limit = self.config.max_queue
        if limit is not None and len(self.held) >= limit and not self.ledger.num_retried[request]:
            self.ledger.status[request] = RequestStatus.REFUSED
        else:
            self.ledger.status[request] = RequestStatus.WAITING
            insort(self.held, request)

    def more_for(self, replica: int, room: int) -> list[int]:
        if not self.held or not isinstance(self.policy, CentralQueue):
            return []
        taken, self.held = self.held[: max(room, 0)], self.held[max(room, 0) :]
        self.ledger.replica[taken] = replica
        return taken

    # Faults (`sims/faults.py` calls these between steps)

    def fail(self, replica: int) -> None:
        """The replica is down; a step under way never ends."""
        if self._state[replica] in (DOWN, ENDED):
            return
        self._turn[replica] += 1
        self._state[replica] = DOWN
        self._failed_s[replica] = self.clock.now_s
        self.num_failures[replica] += 1
        for request in self.replicas[replica].evacuate():
            self._dispatch(request)

    def recover(self, replica: int) -> None:
        """The replica is up again, its memory empty."""
        if self._state[replica] != DOWN:
            return
        self.down_s[replica] += self.clock.now_s - self._failed_s[replica]
        self._gate(replica)
        held, self.held = self.held, []
        for request in held:
            self._dispatch(request)


class FleetTelemetry(Telemetry):
    """Telemetry of all replicas, with a column that says whose step it was."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._replica: list[int] = []

    def add(self, replica: int, first_slot: int, batch: Batch, result: StepResult, **numbers: Any) -> None:
        self._replica.append(replica)
        self.step(replace(batch, slot=batch.slot + first_slot), result, **numbers)

    def step_table(self) -> dict[str, IntArray]:
        return {**super().step_table(), "replica": np.array(self._replica, np.int64)}


class OneReplica(Telemetry):
    """What a replica writes to: its own rows of the fleet's telemetry."""

    def __init__(self, whole: FleetTelemetry, fleet: Fleet, number: int) -> None:
        self.whole, self.fleet, self.number = whole, fleet, number

    def step(self, batch: Batch, result: StepResult, *, num_backlog: int, **numbers: Any) -> None:
        first = self.number * self.fleet.slots_each
        self.whole.add(self.number, first, batch, result, num_backlog=num_backlog + len(self.fleet.held), **numbers)
