"""Exact linear algebra, Schur tests, Sturm counts and surds against NumPy and known numbers."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.analysis.exact import characteristic_polynomial, is_positive_definite, multiply
from workbench.analysis.schur import count_roots, crossing_polynomial, is_schur, loop_polynomial
from workbench.analysis.surd import Surd

small = st.fractions(min_value=-3, max_value=3, max_denominator=7)


@given(st.lists(st.lists(small, min_size=3, max_size=3), min_size=3, max_size=3))
def test_positive_definite_against_eigenvalues(rows):
    gram = multiply(rows, [list(c) for c in zip(*rows, strict=True)])
    shifted = [[x - (Fraction(1, 2) if i == j else 0) for j, x in enumerate(row)] for i, row in enumerate(gram)]
    lowest = float(np.linalg.eigvalsh(np.array(shifted, dtype=float)).min())
    if abs(lowest) > 1e-9:
        assert is_positive_definite(shifted) == (lowest > 0)


@given(st.lists(st.lists(small, min_size=3, max_size=3), min_size=3, max_size=3))
def test_characteristic_polynomial_against_numpy(rows):
    ours = [float(c) for c in characteristic_polynomial(rows)]
    assert np.allclose(ours[::-1], np.poly(np.array(rows, dtype=float)), atol=1e-9)


@given(st.lists(small, min_size=2, max_size=7).filter(lambda c: c[-1] != 0))
def test_schur_against_roots(coefficients):
    radius = float(np.abs(np.roots([float(c) for c in reversed(coefficients)])).max(initial=0.0))
    if abs(radius - 1.0) > 1e-6:
        assert is_schur(coefficients) == (radius < 1.0)


def test_a_root_on_the_circle_is_not_schur():
    assert not is_schur([1, 0, 1])
    assert not is_schur([-1, 1])
    assert not is_schur(loop_polynomial(0, 2))


@pytest.mark.parametrize("delay", range(1, 9))
def test_crossing_polynomial_vanishes_at_the_frozen_limit(delay):
    limit = 2 * math.sin(math.pi / (2 * (2 * delay + 1)))
    below, above = Fraction(int(limit * 10**9) - 2, 10**9), Fraction(int(limit * 10**9) + 2, 10**9)
    polynomial = crossing_polynomial(delay)
    assert count_roots(polynomial, 0, below) == 0
    assert count_roots(polynomial, below, above) == 1


@given(small, small, small, small, st.sampled_from([2, 3, 5]))
def test_surds_are_a_field_with_the_right_order(a, b, c, d, m):
    x, y = Surd(a, b, m), Surd(c, d, m)
    assert float(x + y) == pytest.approx(float(x) + float(y), abs=1e-9)
    assert float(x * y) == pytest.approx(float(x) * float(y), abs=1e-9)
    if y != 0:
        assert (x / y) * y == x
    if abs(float(x) - float(y)) > 1e-9:
        assert (x < y) == (float(x) < float(y))
    assert x - x == 0
