"""The engine's clock on a SimPy environment, and moments of it at an exact time and priority."""

from heapq import heappush

import simpy


class Timeline(simpy.Environment):
    """A SimPy environment that can move on without an event where none is due before."""

    def pass_time(self, elapsed_s: float) -> None:
        """`now` becomes now + elapsed_s, whatever is due until then having happened."""
        until = self._now + elapsed_s
        if self.peek() > until:
            self._now = until
        else:
            self.run(until=self.timeout(elapsed_s))

    def pass_until(self, at_s: float) -> None:
        """`now` becomes exactly `at_s`, whatever is due before having happened.

        SimPy's own `run(until=time)` goes by the difference to `now`, and `now` plus that need not be `at_s`.
        """
        if self.peek() >= at_s:
            self._now = at_s
        else:
            self.run(until=Moment(self, at_s, simpy.events.URGENT))


class SimClock:
    """A `Clock` on a SimPy environment: one event a call, or none where nothing else is due meanwhile."""

    def __init__(self, env: Timeline | None = None) -> None:
        self.env = env or Timeline()

    @property
    def now_s(self) -> float:
        return float(self.env.now)

    @property
    def is_alone(self) -> bool:
        """Nothing else is due in this environment."""
        return self.env.peek() == float("inf")

    def advance(self, elapsed_s: float) -> None:
        self.env.pass_time(elapsed_s)

    def wait_until(self, time_s: float) -> None:
        if time_s > self.env.now:
            self.env.pass_until(time_s)


class Moment(simpy.Event):
    """An event at exactly `at_s`; of those at one time, lower priorities happen first."""

    def __init__(self, env: simpy.Environment, at_s: float, priority: int) -> None:
        super().__init__(env)
        self._ok, self._value = True, None
        # SimPy schedules by delay, and not every time is a sum of `now` and a float: this is its queue, by time.
        heappush(env._queue, (at_s, priority, next(env._eid), self))
