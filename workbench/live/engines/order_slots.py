"""The scheduler's view of its requests as arrays by slot: what an `OrderObservation` is made of.

Requests are numbered as they arrive. The first `num_slots` of those that have not ended hold a slot; the others wait for
one, first come first served, as in our own engine.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from workbench.live.engines.signal_board import Signals
from workbench.signals import BoolArray, FloatArray, IntArray


class OrderSlots:
    """Requests are vLLM's; only the attributes named in `fill` are read."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        names = ("kind", "priority", "prompt_tokens", "computed_tokens", "next_token", "known_tokens")
        self.kind, self.priority, self.prompt_tokens, self.computed_tokens, self.next_token, self.known_tokens = (
            np.zeros(num_slots, np.int64) for _ in names
        )
        self.request_id = np.full(num_slots, -1, np.int64)
        self.seen_token = np.full(num_slots, -1, np.int64)
        self.new = np.zeros(num_slots, np.bool_)
        self.served = np.zeros(num_slots, np.bool_)
        self.running = np.zeros(num_slots, np.bool_)
        self.kind_names: list[str] = []
        self._free = list(range(num_slots - 1, -1, -1))
        self._slot: dict[str, int] = {}
        self._number: dict[str, int] = {}
        self._alive: dict[str, Any] = {}
        self._queue: deque[Any] = deque()
        self._kinds: dict[str, int] = {}
        self._admitted_at: dict[str, int] = {}  # output tokens of a request when it last entered `running`
        self._arrived = 0

    def slot(self, request: Any) -> int | None:
        return self._slot.get(request.request_id)

    def number(self, request: Any) -> int:
        return self._number[request.request_id]

    def since_admission(self, request: Any) -> int:
        """Tokens drawn since the request last took its first block."""
        return request.num_output_tokens - self._admitted_at.get(request.request_id, request.num_output_tokens)

    # Requests come and go

    def arrive(self, request: Any, kind: str) -> int:
        name = request.request_id
        number, self._arrived = self._arrived, self._arrived + 1
        if kind not in self.kind_names:
            self.kind_names.append(kind)
        self._number[name], self._alive[name], self._kinds[name] = number, request, self.kind_names.index(kind)
        self._queue.append(request)
        return number

    def let_go(self, alive: Mapping[str, Any]) -> list[Any]:
        """Requests that have ended, their slots free again; `forget` them when their numbers are no longer needed."""
        if len(alive) == len(self._alive):  # each that arrives enters both
            return []
        ended = [request for name, request in self._alive.items() if name not in alive]
        for request in ended:
            name = request.request_id
            del self._alive[name]
            slot = self._slot.pop(name, None)
            if slot is None:
                self._queue.remove(request)
            else:
                self.request_id[slot] = -1
                self.served[slot] = self.running[slot] = False
                self._free.append(slot)
        return ended

    def forget(self, request: Any) -> None:
        for table in (self._number, self._kinds, self._admitted_at):
            table.pop(request.request_id, None)

    def assign(self) -> list[tuple[Any, int]]:
        """Slots for those that waited for one."""
        given = []
        while self._queue and self._free:
            request, slot = self._queue.popleft(), self._free.pop()
            name = request.request_id
            self._slot[name] = slot
            self.request_id[slot], self.kind[slot] = self._number[name], self._kinds[name]
            self.priority[slot], self.prompt_tokens[slot] = request.priority, request.num_prompt_tokens
            self.seen_token[slot], self.new[slot] = -1, True
            given.append((request, slot))
        return given

    # One step

    def fill(self, ready: Iterable[Any]) -> IntArray:
        """Bring the rows of `ready` up to date; returns their slots."""
        slots = []
        self.running[:] = False
        for request in ready:
            slot = self._slot[request.request_id]
            slots.append(slot)
            under_way = request.num_output_placeholders
            self.computed_tokens[slot] = request.num_computed_tokens
            self.next_token[slot] = request.num_output_tokens + under_way
            self.known_tokens[slot] = request.num_tokens + under_way
            self.running[slot] = request.status.name == "RUNNING"
        return np.array(slots, np.int64)

    def served_now(self, scheduled: Mapping[str, int], victims: Iterable[Any]) -> None:
        """What vLLM has put into the batch, and what it has preempted."""
        self.served[:] = False
        for victim in victims:
            self._admitted_at.pop(victim.request_id, None)
        for name in scheduled:
            slot = self._slot.get(name)
            if slot is not None:
                self.served[slot] = True
            if name not in self._admitted_at and name in self._alive:
                self._admitted_at[name] = self._alive[name].num_output_tokens

    def spread(
        self, slot: IntArray, new: BoolArray, seen: Signals
    ) -> tuple[BoolArray, FloatArray, FloatArray, IntArray]:
        """(measured, H_raw, V_raw, measured_step) by slot."""
        measured, step = np.zeros(self.num_slots, np.bool_), np.zeros(self.num_slots, np.int64)
        entropy, varentropy = np.full(self.num_slots, np.nan), np.full(self.num_slots, np.nan)
        measured[slot] = new
        step[slot] = np.where(new, seen.step, 0)
        entropy[slot], varentropy[slot] = seen.entropy_raw_nats, seen.varentropy_raw_nats2
        return measured, entropy, varentropy, step
