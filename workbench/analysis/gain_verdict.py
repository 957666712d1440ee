"""One loop gain judged: certified or not, and what a simulation of the linear loop does at frozen and at switching V."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from workbench.analysis.closed_loop import integral, simulate
from workbench.analysis.margins import delay_margin_steps, gain_margin, is_stable_frozen, static_gain
from workbench.analysis.stability import frozen_limit, proven_limit, switching_limit
from workbench.errors import InputError

SIMULATED_TOKENS = 3000


@dataclass(frozen=True)
class GainVerdict:
    """`frozen_error` and `switching_error` are |u - u*| after 3,000 tokens from 1, largest over the last 20."""

    gain: float
    delay_steps: int
    certified: bool
    frozen_stable: bool
    reason: str
    static_gain: float
    gain_margin: float
    delay_margin_steps: int
    frozen_error: float
    switching_error: float


def judge_gain(gain: Fraction, delay_steps: int) -> GainVerdict:
    """gain = k_i V (V frozen) or k_i V_max (V varying). Exact comparison with the proven limit 2/(2d+1)."""
    if gain <= 0:
        raise InputError(f"the loop gain k_i V must be above 0, got {float(gain):g}; the stabilising law has k_i > 0")
    if not 0 <= delay_steps <= 64:
        raise InputError(f"the delay must be in 0 .. 64 tokens, got {delay_steps}; use the plant's delay_steps")
    certified = gain < Fraction(2, 2 * delay_steps + 1)
    law = integral(gain)
    stable = is_stable_frozen(law, 1.0, delay_steps)
    # d tokens at rest, then a full swing: the worst pattern known; the swing that is slowest to come back, at d = 0 always on
    swing = {0: 1, 1: 2, 2: 4, 3: 6}.get(delay_steps, 2 * delay_steps)
    pattern = [0.0] * delay_steps + [1.0] * swing
    switching = (pattern * (SIMULATED_TOKENS // len(pattern) + 1))[:SIMULATED_TOKENS]
    with np.errstate(over="ignore", invalid="ignore"):
        frozen_path = simulate(law, [1.0] * SIMULATED_TOKENS, delay_steps)
        switching_path = simulate(law, switching, delay_steps)
    return GainVerdict(
        gain=float(gain),
        delay_steps=delay_steps,
        certified=certified,
        frozen_stable=stable,
        reason=_reason(gain, delay_steps, certified, stable),
        static_gain=static_gain(law, 1.0, delay_steps),
        gain_margin=gain_margin(law, 1.0, delay_steps),
        delay_margin_steps=delay_margin_steps(law, 1.0, delay_steps),
        frozen_error=float(np.abs(frozen_path[-20:]).max()),
        switching_error=float(np.abs(switching_path[-20:]).max()),
    )


def _reason(gain: Fraction, delay_steps: int, certified: bool, stable: bool) -> str:
    proven, sharp = proven_limit(delay_steps), switching_limit(delay_steps)
    if certified:
        return f"below 2/(2d+1) = {proven:.4g} (certificate delay-varying)"
    parts = [f"not below the proven 2/(2d+1) = {proven:.4g}"]
    if gain == Fraction(2, 2 * delay_steps + 1) and not stable:
        parts.append("marginal: a pole on the unit circle, the error neither dies out nor grows")
    elif not stable:
        parts.append(f"unstable even at frozen V (limit {frozen_limit(delay_steps):.4g})")
    elif sharp is not None and float(gain) > sharp:
        parts.append(f"settles at frozen V, but some sequence of V diverges (above {sharp:.4g})")
    elif sharp is not None:
        parts.append(f"no sequence of V diverges up to {sharp:.4g}, but decay may be arbitrarily slow")
    else:
        parts.append("settles at frozen V; for varying V nothing is proven at this delay")
    return "; ".join(parts)
