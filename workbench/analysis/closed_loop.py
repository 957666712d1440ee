"""The closed temperature loop as a linear system whose gain is the varentropy: one description for the whole family.

Around its solution u* a law of the family acts on the entropy error y_k = V_k (u_k - u*) through a few taps,

    x_{k+1} = a x_k - sum_j c_j y_{k-d-j},        x = u - u*, d = delay_steps,

with a = 1 for the laws that integrate and a = 0 for feed-forward ones. The state is (x_k, y_{k-1}, ..., y_{k-m}),
m = d + len(taps) - 1, so the matrix is affine in V: A(V) = A_0 + V A_1.

    law                  a    taps c_0, c_1, ...
    I                    1    k_i
    PI (both forms)      1    k_i + k_p, -k_p
    PID                  1    k_i + k_p + k_d, -k_p - 2 k_d, k_d
    gain-scheduled       1    k / max(V, V_floor)           local: V frozen at the solution
    explore (integral)   1    -k
    EDT on tempered H    0    theta |ln N| / H^2            local
    fixed, exact solve   0    none

An *anchored* law starts from the temperature its measurement was made at, x_{k+1} = x_{k-d} - k_i y_{k-d}: it is d + 1
loops without delay, interleaved. Its state is (x_k, ..., x_{k-d}).
Source: ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from controllers.temperature.anchored import AnchoredI
from controllers.temperature.edt import EDT
from controllers.temperature.exact import ExactSolve
from controllers.temperature.explore import IntegralExplore
from controllers.temperature.fixed import Fixed
from controllers.temperature.gain_scheduled import GainScheduled
from controllers.temperature.matched_constant import MatchedConstant
from controllers.temperature.mirostat import Mirostat
from controllers.temperature.pi import PITemperature
from controllers.temperature.pid import PIDTemperature
from controllers.temperature.positional import PositionalPI
from workbench.analysis.exact import Matrix
from workbench.errors import InputError
from workbench.signals import FloatArray

Number = float | Fraction


@dataclass(frozen=True)
class LinearLaw:
    """A law of the family near its solution. `taps` in 1/nat."""

    name: str
    taps: tuple[Number, ...]
    integrates: bool = True
    is_anchored: bool = False

    def __post_init__(self) -> None:
        if any(not np.isfinite(float(tap)) for tap in self.taps):
            raise InputError(f"LinearLaw {self.name}: taps must be finite, got {self.taps}; give gains in 1/nat")


def integral(k_i: Number) -> LinearLaw:
    return LinearLaw("I", (k_i,))


def proportional_integral(k_p: Number, k_i: Number) -> LinearLaw:
    return LinearLaw("PI", (k_i + k_p, -k_p))


def proportional_integral_derivative(k_p: Number, k_i: Number, k_d: Number) -> LinearLaw:
    return LinearLaw("PID", (k_i + k_p + k_d, -k_p - 2 * k_d, k_d))


def gain_scheduled(gain: Number, varentropy_nats2: Number, varentropy_floor_nats2: Number) -> LinearLaw:
    return LinearLaw("gain-scheduled", (gain / max(varentropy_nats2, varentropy_floor_nats2),))


def explore(k: Number) -> LinearLaw:
    return LinearLaw("explore", (-k,))


def edt(theta: Number, log_base_nats: Number, entropy_nats: Number) -> LinearLaw:
    """T = T0 N^(theta/H): u = ln T0 + theta ln N / H, so du+/du = -theta ln N V/H^2; with N < 1 the slope is positive."""
    return LinearLaw("EDT", (theta * log_base_nats / entropy_nats**2,), integrates=False)


def fixed() -> LinearLaw:
    return LinearLaw("fixed", (), integrates=False)


def anchored(k_i: Number) -> LinearLaw:
    return LinearLaw("anchored I", (k_i,), is_anchored=True)


def law_of(controller: object, varentropy_nats2: float | None = None) -> LinearLaw:
    """The linear law of a temperature controller of the catalog, wrappers looked through.

    Truncation (MinP, TopH) acts after H is measured and clamps are nonexpansive, so neither changes it; a `Delayed` adds
    to `delay_steps`, which is the caller's (`controllers.wrappers.wrapped_delay_steps`). A gain-scheduled law needs the
    varentropy at its solution. Laws that do not feed tempered H back (fixed, matched, exact solve, EDT on raw entropy)
    have no loop. Raises InputError for Mirostat, whose loop is in mu, and for anything else it does not know.
    """
    while hasattr(controller, "inner"):
        controller = controller.inner
    match controller:
        case PITemperature() | PositionalPI():
            law = (
                proportional_integral(controller.k_p, controller.gain) if controller.k_p else integral(controller.gain)
            )
        case PIDTemperature():
            law = proportional_integral_derivative(controller.k_p, controller.gain, controller.k_d)
        case AnchoredI():
            law = anchored(controller.gain)
        case IntegralExplore():
            law = explore(controller.k)
        case GainScheduled():
            if varentropy_nats2 is None:
                raise InputError("GainScheduled is linear only near a solution; give the varentropy_nats2 there")
            law = gain_scheduled(controller.k, varentropy_nats2, controller.varentropy_floor_nats2)
        case Fixed() | MatchedConstant() | ExactSolve() | EDT():
            law = fixed()
        case Mirostat():
            raise InputError("Mirostat's loop is in mu, not in ln T; it has no place in this family")
        case _:
            raise InputError(f"no linear law is known for {type(controller).__name__}; build a LinearLaw for it")
    return LinearLaw(type(controller).__name__, law.taps, law.integrates, law.is_anchored)


def exact_matrix(law: LinearLaw, varentropy: Fraction, delay_steps: int = 0) -> Matrix:
    """A(V) in rationals. The gains must be rational (`Fraction` or int)."""
    if law.is_anchored:
        rows = [[Fraction(int(i == j + 1)) for j in range(delay_steps + 1)] for i in range(delay_steps + 1)]
        rows[0][delay_steps] += 1 - Fraction(law.taps[0]) * varentropy
        return rows
    past = max(delay_steps + len(law.taps) - 1, 0)
    size = past + 1
    rows = [[Fraction(0)] * size for _ in range(size)]
    rows[0][0] = Fraction(int(law.integrates))
    for j, tap in enumerate(law.taps):
        position = delay_steps + j
        if position == 0:
            rows[0][0] -= Fraction(tap) * varentropy
        else:
            rows[0][position] -= Fraction(tap)
    if past:
        rows[1][0] = varentropy
    for j in range(2, size):
        rows[j][j - 1] = Fraction(1)
    return rows


def frozen_polynomial(law: LinearLaw, varentropy: Number, delay_steps: int = 0) -> list[Fraction]:
    """The characteristic polynomial of A(V), z^m (z - a) + V sum_j c_j z^(m-d-j), constant term first; exact."""
    if law.is_anchored:  # z^(d+1) - 1 + V k_i
        return [Fraction(varentropy) * Fraction(law.taps[0]) - 1, *[Fraction(0)] * delay_steps, Fraction(1)]
    m = max(delay_steps + len(law.taps) - 1, 0)
    coefficients = [Fraction(0)] * (m + 2)
    coefficients[m + 1] += 1
    coefficients[m] -= int(law.integrates)
    for j, tap in enumerate(law.taps):
        coefficients[m - delay_steps - j] += Fraction(varentropy) * Fraction(tap)
    return coefficients


def matrix(law: LinearLaw, varentropy: float, delay_steps: int = 0) -> FloatArray:
    """A(V) in floats [m + 1, m + 1]."""
    exact_law = LinearLaw(law.name, tuple(Fraction(tap) for tap in law.taps), law.integrates, law.is_anchored)
    return np.array(exact_matrix(exact_law, Fraction(float(varentropy)), delay_steps), dtype=np.float64)


def simulate(law: LinearLaw, varentropy: Sequence[float], delay_steps: int = 0, start: float = 1.0) -> FloatArray:
    """x_0 .. x_K for a sequence of varentropies V_0 .. V_{K-1}, effects before token 0 being those of a frozen start.

    Before the loop closes u stood still at `start`, with the first V: y_{-j} = V_0 start.
    """
    state = np.full(max(delay_steps + len(law.taps), 1), 0.0)
    state[0] = start
    state[1:] = start if law.is_anchored else varentropy[0] * start
    path, matrices = [start], {v: matrix(law, v, delay_steps) for v in set(varentropy)}
    for v in varentropy:
        state = matrices[v] @ state
        path.append(float(state[0]))
    return np.array(path)
