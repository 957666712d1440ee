"""One replica of a fleet: an engine that shares clock, ledger and telemetry with the others and can fail.

It is the engine of every other run; only waiting differs. Where a lone engine moves the clock, a replica says what it waits for
and lets the others act:

    GATE       everything else of this moment comes first (completions, faults, arrivals), then the next batch
    IDLE       until the dispatcher brings a request
    a number   so many seconds: a step is under way
"""

from collections.abc import Generator, Iterator
from enum import Enum
from typing import Any, Protocol

import numpy as np

from sims.executor import SimExecutor
from sims.token_draws import ProcessState
from workbench.engine.clock import Clock
from workbench.engine.config import EngineConfig
from workbench.engine.executor import Executor
from workbench.engine.plant import EnginePlant
from workbench.engine.requests import RequestLedger, RequestSpec, RequestStatus
from workbench.engine.slots import MEASURED
from workbench.engine.telemetry import Telemetry
from workbench.protocols import DecisionPoint
from workbench.signals import FloatArray, IntArray


class Waits(Enum):
    GATE = "gate"
    IDLE = "idle"


class Frontend(Protocol):
    """What a replica needs of its fleet."""

    ledger: RequestLedger
    texts: dict[
        int, tuple[FloatArray, IntArray]
    ]  # of requests on their way to another replica, see `SimExecutor.texts`
    lost_tokens: IntArray  # [num_requests] KV of a request that was in memory when its replica failed

    def more_for(self, replica: int, room: int) -> list[int]:
        """Requests that waited at the dispatcher for a place."""
        ...

    def next_step(self) -> int: ...


class ReplicaEngine(EnginePlant):
    """Replica number `number`. Requests come by `deliver`; `evacuate` takes all of them away again."""

    def __init__(
        self, number: int, fleet: Frontend, requests: RequestSpec, executor: Executor, clock: Clock,
        config: EngineConfig, controlled: frozenset[DecisionPoint], telemetry: Telemetry,
    ) -> None:  # fmt: skip
        super().__init__(requests, executor, clock, config, controlled, 0)
        self.number, self.fleet, self.ledger, self.telemetry = number, fleet, fleet.ledger, telemetry
        self.inbox: list[int] = []
        self._before_step: ProcessState | None = None  # texts as they were before the step under way
        self.carried = np.zeros(
            self.num_slots, np.int64
        )  # tokens that another replica, or this one before it failed, drew

    @property
    def load(self) -> int:
        """Requests inside, waiting ones included."""
        return int(np.count_nonzero(self.occupied)) + len(self.backlog) + len(self.inbox)

    def deliver(self, request: int) -> None:
        self.ledger.replica[request] = self.number
        self.inbox.append(request)

    def resume(self) -> "DecisionPoint | Waits | float | None":
        """Go on until a decision is due, or something must be waited for; None: the horizon is reached."""
        return next(self._steps, None)  # type: ignore[return-value]

    def evacuate(self) -> list[int]:
        """The GPU has failed: everything in its memory is gone. Returns its unfinished requests, oldest first."""
        ledger, fleet, executor = self.ledger, self.fleet, self.executor
        assert isinstance(executor, SimExecutor)
        # Tokens of a step under way are lost and will be drawn again: the text stands where it stood before.
        texts = executor.texts() if self._before_step is None else self._before_step
        self._before_step = None
        for slot in np.flatnonzero(self.occupied):
            r = int(self.request_id[slot])
            fleet.lost_tokens[r] = max(fleet.lost_tokens[r], self.lost_tokens[slot], self.computed[slot])
            fleet.texts[r] = texts.values[:, slot], texts.counts[:, slot]
            self._leave(int(slot), RequestStatus.WAITING)
            self.backlog.append(r)
        back = sorted([*self.backlog, *self.inbox])
        ledger.num_retried[back] += 1
        self.backlog, self.inbox = [], []
        if self.index is not None:
            self._forget_prefixes()
        self._steps = self._run()
        return back

    def _forget_prefixes(self) -> None:
        assert self.index is not None
        self.index.key_of[:] = -1
        self.index.block_of[:] = -1

    # What differs from a lone engine

    def _ready(self) -> Generator[Any, None, bool]:
        while True:
            yield Waits.GATE
            self._admit_arrivals()
            if self.clock.now_s >= self.config.horizon_s:
                return False
            if self.occupied.any():
                self.step_index = self.fleet.next_step()
                return True
            yield Waits.IDLE

    def _before_batch(self) -> Iterator[Any]:
        assert isinstance(self.executor, SimExecutor)
        self._before_step = self.executor.texts()
        yield from ()

    def _elapse(self, elapsed_s: float) -> Iterator[Any]:
        yield elapsed_s
        self._before_step = None

    def _admit_arrivals(self) -> None:
        self.inbox += self.fleet.more_for(self.number, self.config.max_running - self.load)
        for r in self.inbox:
            self._arrive(r)
        self.backlog.sort()  # who comes back from a failed replica is older than who waits here
        self.inbox = []
        if self.patience is not None:
            self._expire(self.patience)
        before = self.request_id.copy()
        self._seat()
        for slot in np.flatnonzero((self.request_id != before) & (self.request_id >= 0)):
            # Tokens that are out stay out; their KV is computed anew.
            r = int(self.request_id[slot])
            done = self.ledger.generated_tokens[r]
            self.generated[slot] = done
            self.known[slot] += done
            self.carried[slot] = done
            self.lost_tokens[slot] = self.fleet.lost_tokens[r]
            if r in self.fleet.texts:
                assert isinstance(self.executor, SimExecutor)
                self.executor.go_on_with(int(slot), self.fleet.texts.pop(r))

    def _arrive(self, r: int) -> None:
        if self.ledger.num_retried[r]:
            self.ledger.status[r] = RequestStatus.WAITING
            self.backlog.append(r)
        else:
            super()._arrive(r)

    def _look(self, point: DecisionPoint, active: np.ndarray) -> None:
        super()._look(point, active)
        flags, _ = self.sight.heads[point]
        flags[MEASURED] &= self.generated - self.carried > self.config.delay_steps
