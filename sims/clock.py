"""The engine's clock on a SimPy environment, and moments of it at an exact time and priority."""

import math

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


class SimClock:
    """A `Clock` on a SimPy environment: one event a call, or none where nothing else is due meanwhile."""

    def __init__(self, env: Timeline | None = None) -> None:
        self.env = env or Timeline()

    @property
    def now_s(self) -> float:
        return float(self.env.now)

    def advance(self, elapsed_s: float) -> None:
        self.env.pass_time(elapsed_s)

    def wait_until(self, time_s: float) -> None:
        if time_s > self.env.now:
            # A timeout's time is a sum of floats: set the clock to exactly `time_s`.
            self.env.run(until=time_s)


class Moment(simpy.Event):
    """An event that will happen for certain; at one time, lower priorities happen first."""

    def __init__(self, env: simpy.Environment, delay_s: float, priority: int) -> None:
        super().__init__(env)
        self._ok, self._value = True, None
        env.schedule(self, priority=priority, delay=delay_s)


def moment(env: simpy.Environment, delay_s: float, priority: int, *, until_s: float | None = None) -> Moment:
    """`delay_s` from now, or at exactly `until_s`, although times are sums of floats."""
    if until_s is not None:
        delay_s = until_s - env.now
        while env.now + delay_s != until_s:
            delay_s = math.nextafter(delay_s, math.inf if env.now + delay_s < until_s else -math.inf)
    return Moment(env, delay_s, priority)
