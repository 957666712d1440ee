"""Gain bounds of the temperature loop for logits that nobody has seen yet, and the refusals built on them.

The plant gain is dH/du = V with u = ln T, and V is anywhere in [0, V_max] (`signals.max_varentropy`). For the velocity
law with proportional, integral and derivative gains, measured d tokens late,

    u+ = u + k_i (H* - H_{k-d}) + k_p (H_{k-d-1} - H_{k-d}) - k_d (H_{k-d} - 2 H_{k-d-1} + H_{k-d-2}),

the circle criterion with Re[z^-d / (z - 1)] >= -(2 d + 1) / 2, Re z^-(d+1) >= -1 and |1 - 1/z| <= 2 on |z| = 1 gives

    ((2 d + 1) k_i + 2 |k_p| + 4 |k_d|) V_max < 2.

With k_p = k_d = 0 this is k_i < 2 / ((2 d + 1) V_max): 2, 2/3, 2/5 over V_max at delay 0, 1, 2. It holds for V that
varies in any way; the frozen-V bound 2 sin(pi / (2 (2 d + 1))) does not, and is never used by a constructor.
Source: ours; `workbench prove` recomputes it.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np

from workbench.errors import InputError
from workbench.signals import FloatArray, max_varentropy


@cache
def varentropy_limit(vocab_size: int) -> float:
    """V_max in nats^2 over `vocab_size` outcomes."""
    return max_varentropy(vocab_size)


def integral_gain_limit(vocab_size: int, delay_steps: int, k_p: float = 0.0, k_d: float = 0.0) -> float:
    """The open upper end of the proven interval for k_i; not positive when k_p and k_d have used it up."""
    return (2.0 / varentropy_limit(vocab_size) - 2.0 * abs(k_p) - 4.0 * abs(k_d)) / (2 * delay_steps + 1)


def check_integral_gain(
    owner: str, k_i: float, *, vocab_size: int, delay_steps: int, k_p: float = 0.0, k_d: float = 0.0
) -> None:
    """Raise `InputError` unless k_i lies in the proven interval; the message gives the interval."""
    upper = integral_gain_limit(vocab_size, delay_steps, k_p, k_d)
    if 0.0 < k_i < upper:
        return
    factor = f"({2 * delay_steps + 1} V_max)" if delay_steps else "V_max"
    formula = f"2/{factor}" if k_p == 0.0 and k_d == 0.0 else f"(2/V_max - 2|k_p| - 4|k_d|)/{2 * delay_steps + 1}"
    where = f"for vocab {vocab_size} and delay {delay_steps}"
    if upper <= 0.0:
        room = 2.0 / varentropy_limit(vocab_size)
        raise InputError(
            f"{owner}.k_p and k_d leave no room for k_i: 2|k_p| + 4|k_d| must be below 2/V_max = {room:.3g} {where}, "
            f"got k_p {k_p:g}, k_d {k_d:g}; lower them or pass unsafe=True"
        )
    raise InputError(
        f"{owner}.k_i must be in (0, {formula}) = (0, {upper:.3g}) {where}, got {k_i:g}; lower it or pass unsafe=True"
    )


def check_plant(owner: str, vocab_size: int, delay_steps: int) -> None:
    if vocab_size < 2:
        raise InputError(f"{owner}.vocab_size must be at least 2, got {vocab_size}; give the model's vocabulary size")
    if delay_steps < 0 or delay_steps > 64:
        raise InputError(f"{owner}.delay_steps must be in 0 .. 64, got {delay_steps}; use the plant's delay_steps")


def check_temperatures(owner: str, low: float, start: float, high: float) -> None:
    """0 < low <= start <= high < inf; T = 0 is greedy, where H = V = 0 and no loop can act."""
    if not 0.0 < low <= start <= high < np.inf:
        raise InputError(
            f"{owner} needs 0 < temperature_min <= temperature_start <= temperature_max < inf, "
            f"got {low:g}, {start:g}, {high:g}; for greedy decoding use Fixed(temperature=0)"
        )


def check_target(owner: str, targets: float | Sequence[float] | FloatArray, vocab_size: int, unsafe: bool) -> None:
    """Every target entropy in [0, ln n]; above ln n only when `unsafe`, and then it is held at the upper clamp."""
    limit = float(np.log(vocab_size))
    for target in np.atleast_1d(np.asarray(targets, dtype=np.float64)):
        if not (target >= 0.0 and (target <= limit or (unsafe and np.isfinite(target)))):
            remedy = "no distribution has more; lower it" if target > limit else "give nats"
            raise InputError(
                f"{owner}.target_entropy_nats must be in [0, ln n] = [0, {limit:.4g}] for vocab {vocab_size}, "
                f"got {target:g}; {remedy}"
            )
