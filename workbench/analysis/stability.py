"""Which integral gains are proven stable for this vocabulary and delay, whatever the logits. NumPy only.

Constructors in `controllers` use the same numbers (`controllers.temperature.gain_bounds`); the certificate
`gain-interval` compares the two. Three limits on k_i V_max are told apart:

    proven      2/(2d+1)                     one Lyapunov function for every V in (0, V_max]: what constructors use
    switching   2, 1, 2 - sqrt 2, 1 - 1/sqrt 3   exact for V anywhere in [0, V_max], known for d = 0 .. 3; beyond it some
                                             sequence of V diverges, and near it decay becomes arbitrarily slow
    frozen      2 sin(pi/(2(2d+1)))          exact for constant V, necessary only
"""

import math
from typing import NamedTuple

from workbench.errors import InputError
from workbench.signals import max_varentropy

SWITCHING = (2.0, 1.0, 2.0 - math.sqrt(2.0), 1.0 - 1.0 / math.sqrt(3.0))


class GainInterval(NamedTuple):
    """Open interval of proven gains in 1/nat, and the certificate that proves it. Empty when high <= low."""

    low: float
    high: float
    certificate: str


def proven_limit(delay_steps: int) -> float:
    """k_i V_max below this is certified for V that varies in any way."""
    return 2.0 / (2 * delay_steps + 1)


def switching_limit(delay_steps: int) -> float | None:
    """The exact critical k_i V_max for switching V, where it is known (certificate `switching-limit`)."""
    return SWITCHING[delay_steps] if delay_steps < len(SWITCHING) else None


def frozen_limit(delay_steps: int) -> float:
    """The exact critical k_i V at constant V (certificate `delay-frozen`)."""
    return 2.0 * math.sin(math.pi / (2.0 * (2 * delay_steps + 1)))


def gain_interval(law: object, vocab_size: int, delay_steps: int) -> GainInterval:
    """The proven interval of the integral gain k_i of `law` over `vocab_size` outcomes.

    law: "I", "anchored", "explore" or "gain-scheduled", or an object whose k_p and k_d (1/nat) the interval has to leave
    room for. "anchored" has the interval of no delay at any delay; "gain-scheduled" is in multiples of 1/max(V, V_floor)
    and local only; "explore" has no stable gain.
    Raises InputError for an unknown name, vocab_size < 2 or delay_steps < 0.
    """
    if vocab_size < 2:
        raise InputError(f"vocab_size must be at least 2, got {vocab_size}; give the model's vocabulary size")
    if delay_steps < 0:
        raise InputError(f"delay_steps must be at least 0, got {delay_steps}; use the plant's delay_steps")
    if isinstance(law, str):
        if law == "explore":
            return GainInterval(0.0, 0.0, "explore-expands")
        if law == "gain-scheduled":
            return GainInterval(0.0, frozen_limit(delay_steps), "gain-scheduled-two-cycle")
        if law not in ("I", "anchored"):
            raise InputError(
                f"unknown law {law!r}; known: I, anchored, explore, gain-scheduled, or a controller object"
            )
    if law == "anchored" or type(law).__name__ == "AnchoredI":
        return GainInterval(0.0, 2.0 / max_varentropy(vocab_size), "gain-bound")
    k_p, k_d = float(getattr(law, "k_p", 0.0)), float(getattr(law, "k_d", 0.0))
    room = 2.0 / max_varentropy(vocab_size) - 2.0 * abs(k_p) - 4.0 * abs(k_d)
    name = "velocity-varying" if k_d or (k_p and delay_steps) else "pi-varying" if k_p else "delay-varying"
    return GainInterval(0.0, max(room, 0.0) / (2 * delay_steps + 1), name)
