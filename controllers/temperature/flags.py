"""What a reader must know about a temperature law before trusting its figures: gains nothing is proven for, signs, wishes."""

from typing import Any

import numpy as np

from controllers.temperature.anchored import AnchoredI
from controllers.temperature.explore import IntegralExplore
from controllers.temperature.gain_bounds import integral_gain_limit
from controllers.temperature.gain_scheduled import GainScheduled
from controllers.wrappers import law_inside, wrapped_delay_steps


def law_flags(controller: Any, plant_delay_steps: int = 0) -> tuple[str, ...]:
    """One sentence each; empty for a law used inside what is proven, and for anything that is no temperature law."""
    law = law_inside(controller)
    name = type(law).__name__
    flags: list[str] = []
    needed = plant_delay_steps + wrapped_delay_steps(controller)
    declared = getattr(law, "delay_steps", None)
    anchored = isinstance(law, AnchoredI)
    if declared is not None and declared < needed and not anchored and not isinstance(law, IntegralExplore):
        flags.append(f"{name}: built for delay {declared}, runs at delay {needed}; no certificate")
    gain = getattr(law, "gain", None)
    if gain is not None:
        delay = 0 if anchored else max(needed, declared or 0)
        upper = integral_gain_limit(law.vocab_size, delay, getattr(law, "k_p", 0.0), getattr(law, "k_d", 0.0))
        if not 0.0 < gain < upper:
            flags.append(f"{name}: unsafe gain k_i = {gain:.4g}, proven interval (0, {upper:.4g}) at delay {delay}")
    if isinstance(law, GainScheduled) and law.certificate_scope == "local":
        flags.append(f"{name}: certificate holds locally only")
    if isinstance(law, IntegralExplore):
        flags.append(f"{name}: exploring sign, expands at its fixed point; no certificate")
    target = getattr(law, "target_entropy_nats", None)
    if target is not None and target > np.log(law.vocab_size):
        flags.append(f"{name}: target {target:.4g} nats is above ln n = {np.log(law.vocab_size):.4g}, held at a clamp")
    return tuple(flags)
