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
Source: ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

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


def law_of(controller: object) -> LinearLaw:
    """The linear law of a controller object: its `gain` or `k_i`, `k_p` and `k_d` as it uses them."""
    k_i = getattr(controller, "gain", None)
    k_i = getattr(controller, "k_i", None) if k_i is None else k_i
    if not isinstance(k_i, (int, float)):
        raise InputError(f"{type(controller).__name__} has no integral gain; describe it with closed_loop.LinearLaw")
    k_p, k_d = getattr(controller, "k_p", 0.0), getattr(controller, "k_d", 0.0)
    law = proportional_integral_derivative(k_p, k_i, k_d)
    taps = law.taps if k_d else law.taps[:2] if k_p else law.taps[:1]
    return LinearLaw(type(controller).__name__, taps)


def exact_matrix(law: LinearLaw, varentropy: Fraction, delay_steps: int = 0) -> Matrix:
    """A(V) in rationals. The gains must be rational (`Fraction` or int)."""
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
    m = max(delay_steps + len(law.taps) - 1, 0)
    coefficients = [Fraction(0)] * (m + 2)
    coefficients[m + 1] += 1
    coefficients[m] -= int(law.integrates)
    for j, tap in enumerate(law.taps):
        coefficients[m - delay_steps - j] += Fraction(varentropy) * Fraction(tap)
    return coefficients


def matrix(law: LinearLaw, varentropy: float, delay_steps: int = 0) -> FloatArray:
    """A(V) in floats [m + 1, m + 1]."""
    exact_law = LinearLaw(law.name, tuple(Fraction(tap) for tap in law.taps), law.integrates)
    return np.array(exact_matrix(exact_law, Fraction(float(varentropy)), delay_steps), dtype=np.float64)


def simulate(law: LinearLaw, varentropy: Sequence[float], delay_steps: int = 0, start: float = 1.0) -> FloatArray:
    """x_0 .. x_K for a sequence of varentropies V_0 .. V_{K-1}, effects before token 0 being those of a frozen start.

    Before the loop closes u stood still at `start`, with the first V: y_{-j} = V_0 start.
    """
    state = np.full(max(delay_steps + len(law.taps), 1), 0.0)
    state[0] = start
    state[1:] = varentropy[0] * start
    path, matrices = [start], {v: matrix(law, v, delay_steps) for v in set(varentropy)}
    for v in varentropy:
        state = matrices[v] @ state
        path.append(float(state[0]))
    return np.array(path)
