"""A common quadratic Lyapunov function for varentropy anywhere in [V_lo, V_hi], found by an LMI and checked in rationals.

A(V) is affine in V, so x' A(V)' P A(V) x is convex in V: P works on the interval when it works at both ends,

    P > 0,   rate^2 P - A(V_lo)' P A(V_lo) > 0,   rate^2 P - A(V_hi)' P A(V_hi) > 0.

The solver's P is rounded to rationals; the three matrices are then factorised exactly. Which solver found it, and how
accurately, plays no part.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from workbench.analysis.closed_loop import LinearLaw, exact_matrix
from workbench.analysis.exact import Matrix, combine, is_positive_definite, multiply, rounded, transpose
from workbench.signals import FloatArray

DENOMINATOR = 10**8


@dataclass(frozen=True)
class QuadraticCertificate:
    """P and the decay rate per token it proves for every V in the interval, in any order."""

    p: Matrix
    rate: Fraction


def decreases(p: Matrix, matrices: list[Matrix], rate: Fraction) -> bool:
    """The exact check: P > 0 and rate^2 P - A' P A > 0 for each A."""
    if not is_positive_definite(p):
        return False
    scaled = [[rate * rate * x for x in row] for row in p]
    return all(
        is_positive_definite(combine(scaled, multiply(transpose(a), multiply(p, a)), Fraction(-1))) for a in matrices
    )


def solve_lmi(matrices: list[FloatArray], rate: float) -> FloatArray | None:
    """P in floats for a given rate, with the largest margin; None if the solver finds none."""
    import cvxpy as cp  # half a second to import, and only provers need it

    size = matrices[0].shape[0]
    p = cp.Variable((size, size), symmetric=True)
    margin = cp.Variable()
    identity = np.eye(size)
    constraints = [p >> identity * margin, p << identity, margin >= 0]
    constraints += [rate**2 * p - a.T @ p @ a >> margin * identity for a in matrices]
    problem = cp.Problem(cp.Maximize(margin), constraints)
    try:
        problem.solve(solver=cp.CLARABEL)
    except cp.SolverError:
        return None
    if p.value is None or margin.value is None or margin.value <= 0.0:
        return None
    return np.asarray(p.value, dtype=np.float64)


def common_quadratic(
    law: LinearLaw, varentropy_low: Fraction, varentropy_high: Fraction, delay_steps: int, steps: int = 14
) -> QuadraticCertificate | None:
    """The fastest rate an exactly checked P proves, by bisection to 2^-`steps`; None if not even rate 1 works.

    The state is rescaled (effects divided by V_hi) so that the programme is well conditioned; P is given for the state
    of `closed_loop.exact_matrix`.
    """
    matrices = [exact_matrix(law, v, delay_steps) for v in (varentropy_low, varentropy_high)]
    size = len(matrices[0])
    scale = np.array([1.0] + [1.0 / float(varentropy_high)] * (size - 1))
    as_float = [np.array([[float(x) for x in row] for row in a]) for a in matrices]
    scaled = [scale[:, None] * a / scale[None, :] for a in as_float]

    def attempt(rate: Fraction) -> QuadraticCertificate | None:
        p = solve_lmi(scaled, float(rate))
        if p is None:
            return None
        candidate = rounded((p + p.T) / 2, DENOMINATOR)
        unscale = [Fraction(1)] + [1 / varentropy_high] * (size - 1)
        back = [[unscale[i] * unscale[j] * candidate[i][j] for j in range(size)] for i in range(size)]
        return QuadraticCertificate(back, rate) if decreases(back, matrices, rate) else None

    best = attempt(Fraction(1))
    if best is None:
        return None
    low, high = Fraction(0), Fraction(1)
    for _ in range(steps):
        middle = (low + high) / 2
        found = attempt(middle)
        low, high, best = (low, middle, found) if found is not None else (middle, high, best)
    return best
