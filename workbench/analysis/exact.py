"""Exact rational linear algebra on small matrices (lists of rows of `Fraction`): what checkers compute with."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Matrix = list[list[Fraction]]


def from_text(rows: Sequence[Sequence[str]]) -> Matrix:
    return [[Fraction(entry) for entry in row] for row in rows]


def to_text(matrix: Matrix) -> list[list[str]]:
    return [[str(entry) for entry in row] for row in matrix]


def rounded(matrix: NDArray[np.float64], denominator: int) -> Matrix:
    """The nearest matrix with this common denominator: how a solver's floats become a candidate."""
    return [[Fraction(round(float(entry) * denominator), denominator) for entry in row] for row in matrix]


def multiply(left: Matrix, right: Matrix) -> Matrix:
    columns = list(zip(*right, strict=True))
    return [[sum((a * b for a, b in zip(row, column, strict=True)), Fraction(0)) for column in columns] for row in left]


def transpose(matrix: Matrix) -> Matrix:
    return [list(column) for column in zip(*matrix, strict=True)]


def combine(left: Matrix, right: Matrix, scale: Fraction) -> Matrix:
    """left + scale * right."""
    return [[a + scale * b for a, b in zip(x, y, strict=True)] for x, y in zip(left, right, strict=True)]


def is_positive_definite(matrix: Matrix) -> bool:
    """Symmetric elimination in rationals: every pivot must be positive."""
    if any(matrix[i][j] != matrix[j][i] for i in range(len(matrix)) for j in range(i)):
        return False
    rest = [row[:] for row in matrix]
    for k in range(len(rest)):
        if rest[k][k] <= 0:
            return False
        for i in range(k + 1, len(rest)):
            factor = rest[i][k] / rest[k][k]
            for j in range(k, len(rest)):
                rest[i][j] -= factor * rest[k][j]
    return True


def characteristic_polynomial(matrix: Matrix) -> list[Fraction]:
    """Coefficients of det(zI - M), constant term first (Faddeev and LeVerrier)."""
    size = len(matrix)
    identity = [[Fraction(int(i == j)) for j in range(size)] for i in range(size)]
    coefficients, power = [Fraction(1)], [[Fraction(0)] * size for _ in range(size)]
    for k in range(1, size + 1):
        power = combine(multiply(matrix, power), identity, coefficients[-1])
        product = multiply(matrix, power)
        coefficients.append(-sum((product[i][i] for i in range(size)), Fraction(0)) / k)
    return coefficients[::-1]
