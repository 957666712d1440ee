"""Which slot a request's state lives in, for an engine that names rows of its batch only: given from outside, or kept here.

A request that leaves the batch may be waiting, not ended (preempted requests come back with their state): its slot is kept
until no other is free, the longest away first.
"""

from collections import OrderedDict
from typing import Any


class Slots:
    """Slots 0 .. num_slots - 1. A scheduler of ours gives slot and number of a request; without it, they are made here."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._free = list(range(num_slots - 1, -1, -1))
        self._held: dict[
            int, tuple[int, int, Any]
        ] = {}  # identity of a request's parameters -> slot, number, themselves
        self._away: OrderedDict[int, int] = OrderedDict()  # slot -> identity, the longest away first
        self._by_slot: dict[int, int] = {}
        self._next = 0

    def take(self, slot: int | None, request_id: int | None, params: Any) -> tuple[int, int, bool]:
        """(slot, number, whether a waiting request's state had to make room) for a request that enters the batch."""
        if slot is not None and request_id is not None:
            return slot, request_id, False
        identity = id(params)
        if identity in self._held and self._held[identity][2] is params:
            slot, number, _ = self._held[identity]
            self._away.pop(slot, None)
            return slot, number, False
        lost = not self._free
        if lost:
            slot, old = self._away.popitem(last=False)
            del self._held[old]
        else:
            slot = self._free.pop()
        number, self._next = self._next, self._next + 1
        self._held[identity], self._by_slot[slot] = (slot, number, params), identity
        return slot, number, lost

    def leave(self, slot: int) -> None:
        """The request is out of the batch; whether it has ended is not known."""
        if slot in self._by_slot and self._held.get(self._by_slot[slot], (None,))[0] == slot:
            self._away[slot] = self._by_slot[slot]
