"""Circle criterion for a loop whose varentropy varies anywhere in (0, V_max].

With G(z) = sum_j c_j z^-(d+j) / (z - 1), the loop is stable when 1/V_max + min Re G > 0 on |z| = 1. For the velocity
law the minimum has the closed form below, which is what constructors use (`controllers.temperature.gain_bounds`); here
it is evaluated on a fine grid of frequencies for any taps, to find the limit a law really has under this criterion.
"""

import numpy as np

from workbench.analysis.closed_loop import LinearLaw
from workbench.signals import FloatArray


def real_part(law: LinearLaw, delay_steps: int, frequency_rad: FloatArray) -> FloatArray:
    """Re G(exp(iw)). At w = 0 the pole's real part has the limit -c (d + 1/2 + mean shift); the grid leaves 0 out."""
    z = np.exp(1j * frequency_rad)
    total = sum(float(tap) * z ** -(delay_steps + j) for j, tap in enumerate(law.taps))
    return np.real(total / (z - 1.0))


def circle_limit(law: LinearLaw, delay_steps: int = 0, num_frequencies: int = 20_001) -> float:
    """The largest V_max the criterion allows for these gains, in nats^2 (float; the certificate is `velocity-varying`)."""
    if not law.integrates:
        raise ValueError("the criterion is written for laws that integrate")
    if float(sum(float(tap) for tap in law.taps)) <= 0.0:
        return 0.0
    lowest = float(real_part(law, delay_steps, np.linspace(1e-4, np.pi, num_frequencies)).min())
    return np.inf if lowest >= 0.0 else -1.0 / lowest


def closed_form_limit(k_i: float, k_p: float, k_d: float, delay_steps: int) -> float:
    """2 / ((2d + 1) k_i + 2 |k_p| + 4 |k_d|) in nats^2: never above `circle_limit`."""
    return 2.0 / ((2 * delay_steps + 1) * k_i + 2.0 * abs(k_p) + 4.0 * abs(k_d))
