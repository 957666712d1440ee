"""When are all roots of a polynomial inside the unit circle? Exact, for rational coefficients.

Used for frozen gains: the closed loop at constant V is stable exactly when its characteristic polynomial is Schur.
"""

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import flint

Rational = Fraction | int


def is_schur(coefficients: Sequence[Rational]) -> bool:
    """All roots strictly inside the unit circle? Coefficients from the constant term up (Schur and Cohn, by steps).

    Works on integers without common factor, or their size would double with every step.
    """
    fractions = [Fraction(c) for c in coefficients]
    scale = math.lcm(*(c.denominator for c in fractions))
    p = [int(c * scale) for c in fractions]
    while p and p[-1] == 0:
        p.pop()
    if not p:
        raise ValueError("the zero polynomial has no roots to place")
    while len(p) > 1:
        if abs(p[0]) >= abs(p[-1]):
            return False
        # (p_n p(z) - p_0 z^n p(1/z)) / z has one degree less and is Schur exactly when p is
        p = [p[-1] * a - p[0] * b for a, b in zip(p[1:], p[-2::-1], strict=True)]
        common = math.gcd(*p)
        p = [c // common for c in p]
    return True


def loop_polynomial(delay_steps: int, gain: Rational) -> list[Fraction]:
    """z^(d+1) - z^d + g: the I law at frozen loop gain g = k_i V and delay d, constant term first."""
    coefficients = [Fraction(0)] * (delay_steps + 2)
    coefficients[0] += Fraction(gain)
    coefficients[delay_steps] -= 1
    coefficients[delay_steps + 1] += 1
    return coefficients


def half_plane(coefficients: Sequence[Rational]) -> list[Fraction]:
    """(1 - w)^n p((1 + w)/(1 - w)): roots inside the circle become roots with negative real part."""
    n = len(coefficients) - 1
    total = flint.fmpq_poly([0])
    for i, c in enumerate(coefficients):
        fraction = Fraction(c)
        total += (
            flint.fmpq(fraction.numerator, fraction.denominator)
            * flint.fmpq_poly([1, 1]) ** i
            * flint.fmpq_poly([1, -1]) ** (n - i)
        )
    return [Fraction(int(c.p), int(c.q)) for c in (total[k] for k in range(n + 1))]


def orlando(coefficients: Sequence[Rational]) -> flint.fmpq:
    """The next-to-last Hurwitz determinant of `half_plane`: zero when two roots sum to zero, so when a complex pair
    lies on the unit circle (Orlando)."""
    q = half_plane(coefficients)[::-1]  # highest power first
    n = len(q) - 1
    size = n - 1
    if size == 0:
        return flint.fmpq(1)
    at = [[q[2 * j - i + 1] if 0 <= 2 * j - i + 1 <= n else Fraction(0) for j in range(size)] for i in range(size)]
    return flint.fmpq_mat([[flint.fmpq(x.numerator, x.denominator) for x in row] for row in at]).det()


def crossing_polynomial(delay_steps: int) -> flint.fmpq_poly:
    """`orlando` of the loop polynomial as a polynomial in the gain g, by interpolation at degree + 1 points."""
    degree = delay_steps + 1
    points = [flint.fmpq(k + 1, 1) for k in range(degree + 1)]
    values = [orlando(loop_polynomial(delay_steps, Fraction(k + 1))) for k in range(degree + 1)]
    total = flint.fmpq_poly([0])
    for i, value in enumerate(values):
        basis = flint.fmpq_poly([1])
        for j, point in enumerate(points):
            if j != i:
                basis *= flint.fmpq_poly([-point, 1]) / (points[i] - point)
        total += value * basis
    return total


def count_roots(polynomial: flint.fmpq_poly, low: Rational, high: Rational) -> int:
    """Distinct real roots in (low, high], by a Sturm chain."""
    chain = [polynomial / polynomial.gcd(polynomial.derivative())]
    chain.append(chain[0].derivative())
    while chain[-1].degree() > 0:
        chain.append(-(chain[-2] % chain[-1]))

    def changes(at: Rational) -> int:
        x = flint.fmpq(Fraction(at).numerator, Fraction(at).denominator)
        signs = [value > 0 for value in (member(x) for member in chain) if value != 0]
        return sum(a != b for a, b in itertools.pairwise(signs))

    return changes(low) - changes(high)
