"""Bounds on the joint spectral radius of the delayed loop whose gain switches: from below by products, from above by
ellipsoids and polytopes, both checkable in exact arithmetic.

The I law d tokens late with loop gains g_k = k_i V_k in [g_low, g_high] has x_{k+1} = x_k - g_{k-d} x_{k-d}; in the state
(x_k, ..., x_{k-d}) the matrix is affine in the gain, so the radius is that of the two end matrices.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from workbench.analysis.exact import Matrix, characteristic_polynomial, multiply
from workbench.analysis.schur import is_schur


@dataclass(frozen=True)
class Bounds:
    """lower <= joint spectral radius <= upper; `word` is the switching (indices of matrices) that attains `lower`."""

    lower: float
    word: tuple[int, ...]
    upper: float


def switching_matrix(gain: Any, delay_steps: int) -> list[list[Any]]:
    """x_{k+1} = x_k - g x_{k-d}, the delayed effect scaled by the gain at its own token."""
    zero = gain * 0
    one = zero + 1
    size = delay_steps + 1
    rows = [[zero] * size for _ in range(size)]
    rows[0][0] = one
    rows[0][delay_steps] = rows[0][delay_steps] - gain
    for j in range(1, size):
        rows[j][j - 1] = one
    return rows


def product(matrices: Sequence[Matrix], word: Sequence[int]) -> Matrix:
    """Matrices applied in the order of `word` (the first entry acts first)."""
    result = matrices[word[0]]
    for index in word[1:]:
        result = multiply(matrices[index], result)
    return result


def best_product(matrices: Sequence[Matrix], longest: int = 12) -> tuple[float, tuple[int, ...]]:
    """The largest spectral radius per step over all products up to `longest`, each rotation once."""
    as_float = [np.array([[float(x) for x in row] for row in m]) for m in matrices]
    best, best_word = 0.0, (0,)
    for length in range(1, longest + 1):
        for word in itertools.product(range(len(matrices)), repeat=length):
            if word != min(word[i:] + word[:i] for i in range(length)):
                continue
            total = as_float[word[0]]
            for index in word[1:]:
                total = as_float[index] @ total
            radius = float(np.abs(np.linalg.eigvals(total)).max()) ** (1.0 / length)
            if radius > best * (1.0 + 1e-12):
                best, best_word = radius, word
    return best, best_word


def radius_is_at_least(matrices: Sequence[Matrix], word: Sequence[int], rate: Fraction) -> bool:
    """Exact: the product's polynomial, roots scaled by rate^-length, is not Schur."""
    scale = rate ** len(word)
    scaled = [[x / scale for x in row] for row in product(matrices, word)]
    return not is_schur(characteristic_polynomial(scaled))
