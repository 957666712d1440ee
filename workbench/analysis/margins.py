"""Frozen-gain analysis: poles, the Jury verdict, gain, phase and delay margins, static gain. V is held constant.

Frozen analysis is necessary only: it says nothing about V that varies. `stability.gain_interval` is what constructors use.
"""

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from workbench.analysis.closed_loop import LinearLaw, Number, frozen_polynomial, matrix
from workbench.analysis.schur import is_schur
from workbench.signals import FloatArray

if TYPE_CHECKING:
    import control


@dataclass(frozen=True)
class Margins:
    """At one frozen V. Infinite where the loop cannot be destabilised that way.

    gain_margin         factor on V (or on the gains) at which the frozen loop becomes unstable
    phase_margin_rad    at the gain crossover
    delay_margin_steps  further tokens of delay that the frozen loop bears, an integer; `most_delay` means at least that
    """

    gain_margin: float
    phase_margin_rad: float
    delay_margin_steps: int
    spectral_radius: float
    stable: bool


def poles(law: LinearLaw, varentropy: float, delay_steps: int = 0) -> FloatArray:
    """Eigenvalues of A(V), complex."""
    return np.linalg.eigvals(matrix(law, varentropy, delay_steps))


def is_stable_frozen(law: LinearLaw, varentropy: Number, delay_steps: int = 0) -> bool:
    """Exact where it matters: within 1e-6 of the circle Schur and Cohn on rationals decide, so that a pole on the circle
    is never called stable; elsewhere the roots do.
    """
    coefficients = frozen_polynomial(law, varentropy, delay_steps)
    radius = float(np.abs(np.roots([float(c) for c in reversed(coefficients)])).max(initial=0.0))
    return radius < 1.0 if abs(radius - 1.0) > 1e-6 else is_schur(coefficients)


def _loop(law: LinearLaw, varentropy: float, delay_steps: int) -> tuple[FloatArray, FloatArray]:
    """Numerator and denominator of L(z) = V sum_j c_j z^-(d+j) / (z - a), highest power first."""
    if law.is_anchored:  # V k_i / (z^(d+1) - 1)
        return np.array([varentropy * float(law.taps[0])]), np.array([1.0, *[0.0] * delay_steps, -1.0])
    last = delay_steps + max(len(law.taps) - 1, 0)
    numerator = np.zeros(last + 1)
    for j, tap in enumerate(law.taps):
        numerator[delay_steps + j] += varentropy * float(tap)
    denominator = np.zeros(last + 2)
    denominator[0], denominator[1] = 1.0, -float(law.integrates)
    return numerator, denominator


def loop_transfer(law: LinearLaw, varentropy: float, delay_steps: int = 0) -> "control.TransferFunction":
    """L(z) for python-control, sampled once a token (dt = 1)."""
    import control  # two seconds to import

    return control.tf(*_loop(law, varentropy, delay_steps), 1)


def static_gain(law: LinearLaw, varentropy: float, delay_steps: int = 0) -> float:
    """From H* to H at rest: 1 for every law that integrates."""
    numerator, denominator = (part.sum() for part in _loop(law, varentropy, delay_steps))  # at z = 1
    return float(numerator / (numerator + denominator))


def gain_margin(law: LinearLaw, varentropy: float, delay_steps: int = 0, num_frequencies: int = 4001) -> float:
    """1/|L| at the real-axis crossing farthest out on the negative side, half the sampling rate included.

    Not taken from python-control: its polynomial method misses crossings of high order (20 tokens of delay) and the one
    at half the sampling rate.
    """
    from scipy.optimize import brentq

    if law.is_anchored:
        delay_steps = 0  # d + 1 interleaved loops without delay
    numerator, denominator = _loop(law, varentropy, delay_steps)

    def loop(z: FloatArray | complex) -> np.ndarray:
        return np.polyval(numerator, z) / np.polyval(denominator, z)

    grid = np.linspace(1e-6, np.pi, num_frequencies)
    signs = np.sign(loop(np.exp(1j * grid)).imag)
    crossings = [
        brentq(lambda w: float(loop(np.exp(1j * w)).imag), grid[i], grid[i + 1])
        for i in np.flatnonzero(signs[:-1] * signs[1:] < 0)
    ]
    lowest = min([*(float(loop(np.exp(1j * w)).real) for w in crossings), float(np.real(loop(-1.0)))])
    return -1.0 / lowest if lowest < 0.0 else np.inf


def delay_margin_steps(law: LinearLaw, varentropy: float, delay_steps: int = 0, most_delay: int = 64) -> int:
    """Further tokens of delay until the exact verdict turns; 0 when it is unstable already."""
    more = 0
    if is_stable_frozen(law, varentropy, delay_steps):
        while more < most_delay and is_stable_frozen(law, varentropy, delay_steps + more + 1):
            more += 1
    return more


def phase_margin_rad(law: LinearLaw, varentropy: float, delay_steps: int = 0) -> float:
    """By python-control."""
    import control

    if law.is_anchored:
        delay_steps = 0
    with warnings.catch_warnings():  # it evaluates the loop at its own pole z = 1, and says when it changes its method
        warnings.simplefilter("ignore")
        _, phase, *_ = control.margin(loop_transfer(law, varentropy, delay_steps))
    return float(np.deg2rad(phase))


def margins(law: LinearLaw, varentropy: float, delay_steps: int = 0, most_delay: int = 64) -> Margins:
    """All of them at one V."""
    stable = is_stable_frozen(law, varentropy, delay_steps)
    radius = float(np.abs(poles(law, varentropy, delay_steps)).max())
    if not law.taps or varentropy == 0.0:
        return Margins(np.inf, np.inf, most_delay, radius, stable)
    return Margins(
        gain_margin=gain_margin(law, varentropy, delay_steps),
        phase_margin_rad=phase_margin_rad(law, varentropy, delay_steps),
        delay_margin_steps=delay_margin_steps(law, varentropy, delay_steps, most_delay),
        spectral_radius=radius,
        stable=stable,
    )


def jury_region(k_p: FloatArray, k_i: FloatArray, varentropy: float) -> np.ndarray:
    """Where the PI loop at frozen V is stable, delay 0 (certificate `pi-jury`). Arrays broadcast."""
    return (k_i * varentropy > 0) & (np.abs(k_p * varentropy) < 1) & ((k_i + 2 * k_p) * varentropy < 2)
