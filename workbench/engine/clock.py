"""Time as the plant measures it. The simulated clock is SimPy's (`sims/plant.py`); this one is the machine's."""

import time
from typing import Protocol


class Clock(Protocol):
    @property
    def now_s(self) -> float: ...

    def advance(self, elapsed_s: float) -> None:
        """A step took `elapsed_s`. Simulated time moves on by it; measured time has already passed."""
        ...

    def wait_until(self, time_s: float) -> None:
        """Nothing to do before `time_s`."""
        ...


class MeasuredClock:
    """Wall-clock seconds since construction, idle time skipped: waiting for an arrival jumps instead of sleeping."""

    def __init__(self) -> None:
        self._zero_s = time.perf_counter()

    @property
    def now_s(self) -> float:
        return time.perf_counter() - self._zero_s

    def advance(self, elapsed_s: float) -> None:
        pass

    def wait_until(self, time_s: float) -> None:
        self._zero_s -= max(0.0, time_s - self.now_s)


class CountedClock:
    """Adds up elapsed times; for tests and for plants that need no other events."""

    def __init__(self) -> None:
        self._now_s = 0.0

    @property
    def now_s(self) -> float:
        return self._now_s

    def advance(self, elapsed_s: float) -> None:
        self._now_s += elapsed_s

    def wait_until(self, time_s: float) -> None:
        self._now_s = max(self._now_s, time_s)
