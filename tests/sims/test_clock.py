"""The clock stands at exactly the time asked for, also where no delay leads there."""

import math

from sims.clock import Moment, SimClock, Timeline

# NOW + d lies half way between two floats for every d near 1 and goes to the even one; UNTIL is odd. Searching for d hung.
NOW, UNTIL = 2.0**-53, 1.0 + 2.0**-52


def test_a_moment_is_exact_where_no_delay_is() -> None:
    delay = UNTIL - NOW
    assert all(NOW + d != UNTIL for d in (math.nextafter(delay, 0.0), delay, math.nextafter(delay, 2.0)))
    env = Timeline(initial_time=NOW)
    seen: list[float] = []
    Moment(env, UNTIL, 1).callbacks.append(lambda event: seen.append(env.now))
    env.run()
    assert seen == [UNTIL]


def test_moments_at_one_time_happen_by_priority_then_in_order() -> None:
    env, seen = Timeline(), []
    for priority, name in ((2, "c"), (1, "a"), (1, "b")):
        Moment(env, 3.0, priority).callbacks.append(lambda event, name=name: seen.append(name))
    env.run()
    assert seen == ["a", "b", "c"]


def test_waiting_ends_exactly_where_no_delay_leads() -> None:
    for due_s in (math.inf, 0.5, UNTIL):  # nothing, or an event, on the way
        clock = SimClock(Timeline(initial_time=NOW))
        seen: list[float] = []
        if due_s < math.inf:
            Moment(clock.env, due_s, 1).callbacks.append(lambda event, clock=clock, seen=seen: seen.append(clock.now_s))
        clock.wait_until(UNTIL)
        assert clock.now_s == UNTIL
        assert seen == ([0.5] if due_s == 0.5 else [])
