"""What all feedback laws check at construction, and the numbers they hand to the velocity form."""

from typing import Any

import numpy as np

from controllers.temperature.gain_bounds import check_plant, check_target, check_temperatures, varentropy_limit
from controllers.temperature.setpoint import checked_steps
from controllers.temperature.velocity import VelocityGains
from workbench.errors import InputError


def check_feedback(law: Any) -> None:
    """Check target, steps, clamp, vocabulary and delay of `law`; `target_steps` becomes a tuple. Raises InputError."""
    owner = type(law).__name__
    check_plant(owner, law.vocab_size, law.delay_steps)
    object.__setattr__(law, "target_steps", checked_steps(owner, law.target_steps))
    targets = [law.target_entropy_nats, *(nats for _, nats in law.target_steps)]
    check_target(owner, targets, law.vocab_size, law.unsafe)
    check_temperatures(owner, law.temperature_min, law.temperature_start, law.temperature_max)


def check_finite(owner: str, **values: float) -> None:
    for name, value in values.items():
        if not np.isfinite(value):
            raise InputError(f"{owner}.{name} must be finite, got {value:g}")


def velocity_gains(
    law: Any,
    *,
    k_i: float,
    k_p: float = 0.0,
    k_d: float = 0.0,
    varentropy_floor: float = 0.0,
    max_step: float = np.inf,
    anchored: bool = False,
) -> VelocityGains:
    return VelocityGains(
        k_i=k_i,
        k_p=k_p,
        k_d=k_d,
        varentropy_floor=varentropy_floor,
        max_step=max_step,
        anchored=anchored,
        temperature_start=law.temperature_start,
        temperature_min=law.temperature_min,
        temperature_max=law.temperature_max,
        entropy_limit=float(np.log(law.vocab_size)),
        varentropy_limit=varentropy_limit(law.vocab_size),
    )
