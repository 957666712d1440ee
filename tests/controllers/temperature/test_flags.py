"""What the report must say about a law."""

from controllers.scheduling.fcfs import FCFS
from controllers.temperature.anchored import AnchoredI
from controllers.temperature.explore import IntegralExplore
from controllers.temperature.fixed import Fixed
from controllers.temperature.flags import law_flags
from controllers.temperature.gain_scheduled import GainScheduled
from controllers.temperature.pi import PITemperature
from controllers.wrappers import Delayed, RateLimited

KNOBS = {"target_entropy_nats": 2.0, "vocab_size": 49152}


def test_laws_inside_what_is_proven_carry_no_flag() -> None:
    for law in (FCFS(), Fixed(), PITemperature(**KNOBS), RateLimited(PITemperature(**KNOBS))):
        assert law_flags(law) == ()
    assert law_flags(AnchoredI(**KNOBS, delay_steps=2, k_i=0.06), plant_delay_steps=2) == ()
    assert law_flags(Delayed(PITemperature(**KNOBS, delay_steps=2), steps=1), plant_delay_steps=1) == ()


def test_everything_else_is_said() -> None:
    unsafe = PITemperature(**KNOBS, k_i=0.2, unsafe=True)
    assert law_flags(unsafe) == ("PITemperature: unsafe gain k_i = 0.2, proven interval (0, 0.06631) at delay 0",)
    assert "built for delay 0, runs at delay 1" in law_flags(PITemperature(**KNOBS, k_i=0.02), plant_delay_steps=1)[0]
    wrapped = Delayed(PITemperature(**KNOBS, k_i=0.04, delay_steps=1, unsafe=True))
    assert "proven interval (0, 0.0221) at delay 1" in law_flags(wrapped)[0]
    assert "locally only" in law_flags(GainScheduled(**KNOBS))[0]
    assert "exploring sign" in law_flags(IntegralExplore(**KNOBS))[0]
    high = PITemperature(target_entropy_nats=20.0, vocab_size=49152, unsafe=True)
    assert "above ln n = 10.8" in law_flags(high)[0]
