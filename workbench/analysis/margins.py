"""Frozen-gain analysis: poles, the Jury verdict, gain, phase and delay margins, static gain. V is held constant.

Frozen analysis is necessary only: it says nothing about V that varies. `stability.gain_interval` is what constructors use.
"""

from dataclasses import dataclass
from fractions import Fraction

import control
import numpy as np

from workbench.analysis.closed_loop import LinearLaw, exact_matrix, matrix
from workbench.analysis.exact import characteristic_polynomial
from workbench.analysis.schur import is_schur
from workbench.signals import FloatArray


@dataclass(frozen=True)
class Margins:
    """At one frozen V. Infinite where the loop cannot be destabilised that way.

    gain_margin         factor on V (or on the gains) at which the frozen loop becomes unstable
    phase_margin_rad    at the gain crossover
    delay_margin_steps  further tokens of delay that the frozen loop bears, an integer
    """

    gain_margin: float
    phase_margin_rad: float
    delay_margin_steps: int
    spectral_radius: float
    stable: bool


def poles(law: LinearLaw, varentropy: float, delay_steps: int = 0) -> FloatArray:
    """Eigenvalues of A(V), complex."""
    return np.linalg.eigvals(matrix(law, varentropy, delay_steps))


def is_stable_frozen(law: LinearLaw, varentropy: float, delay_steps: int = 0) -> bool:
    """Exact (Schur and Cohn on rationals), so that a pole on the circle is never called stable."""
    exact_law = LinearLaw(law.name, tuple(Fraction(float(tap)) for tap in law.taps), law.integrates)
    return is_schur(characteristic_polynomial(exact_matrix(exact_law, Fraction(float(varentropy)), delay_steps)))


def loop_transfer(law: LinearLaw, varentropy: float, delay_steps: int = 0) -> control.TransferFunction:
    """L(z) = V sum_j c_j z^-(d+j) / (z - a), sampled once a token (dt = 1)."""
    last = delay_steps + max(len(law.taps) - 1, 0)
    numerator = np.zeros(last + 1)
    for j, tap in enumerate(law.taps):
        numerator[delay_steps + j] += varentropy * float(tap)
    denominator = np.zeros(last + 2)
    denominator[0], denominator[1] = 1.0, -float(law.integrates)
    return control.tf(numerator, denominator, 1)


def static_gain(law: LinearLaw, varentropy: float, delay_steps: int = 0) -> float:
    """From H* to H at rest: 1 for every law that integrates."""
    return float(np.real(control.dcgain(control.feedback(loop_transfer(law, varentropy, delay_steps), 1))))


def margins(law: LinearLaw, varentropy: float, delay_steps: int = 0, most_delay: int = 1000) -> Margins:
    """Margins by python-control, the delay margin by adding tokens until the exact verdict turns."""
    stable = is_stable_frozen(law, varentropy, delay_steps)
    radius = float(np.abs(poles(law, varentropy, delay_steps)).max())
    if not law.taps or varentropy == 0.0:
        return Margins(np.inf, np.inf, most_delay, radius, stable)
    gain, phase, *_ = control.margin(loop_transfer(law, varentropy, delay_steps))
    more = 0
    if stable:
        while more < most_delay and is_stable_frozen(law, varentropy, delay_steps + more + 1):
            more += 1
    return Margins(float(gain), float(np.deg2rad(phase)), more, radius, stable)


def jury_region(k_p: FloatArray, k_i: FloatArray, varentropy: float) -> np.ndarray:
    """Where the PI loop at frozen V is stable, delay 0 (certificate `pi-jury`). Arrays broadcast."""
    return (k_i * varentropy > 0) & (np.abs(k_p * varentropy) < 1) & ((k_i + 2 * k_p) * varentropy < 2)
