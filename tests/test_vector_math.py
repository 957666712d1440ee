"""Vectorised exponentials and logarithms against extended precision."""

import numpy as np

from workbench.vector_math import LOWEST_EXPONENT, exponentials, logarithms

RNG = np.random.default_rng(0)


def test_exponentials_to_one_unit_in_the_last_place():
    x = np.concatenate([RNG.uniform(-708, 709, 50_001), RNG.uniform(-1, 1, 50_000), [0.0, -0.0, 1e-300, -708.0, 709.0]])
    out, scratch = np.empty(x.size), np.empty(x.size)
    exponentials(x, out, scratch)
    exact = np.exp(x.astype(np.longdouble))
    assert np.max(np.abs(out - exact) / exact) < 2.0**-52
    assert out[-5] == out[-4] == out[-3] == 1.0


def test_what_would_be_no_normal_number_is_the_least_of_them():
    x = np.array([-1e9, -np.inf, -709.0])
    out, scratch = np.empty(3), np.empty(3)
    exponentials(x, out, scratch)
    np.testing.assert_allclose(out, np.exp(LOWEST_EXPONENT), rtol=1e-15)


def test_logarithms_to_one_unit_in_the_last_place():
    p = np.concatenate([10.0 ** RNG.uniform(-300, 300, 50_001), RNG.uniform(0.5, 2.0, 50_000), [1.0, 2.0, 1e-307]])
    out, scratch = np.empty(p.size), np.empty(p.size)
    logarithms(p, out, scratch)
    exact = np.log(p.astype(np.longdouble))
    np.testing.assert_array_equal(out[-3], 0.0)
    away = np.abs(exact) > 0
    assert np.max(np.abs(out - exact)[away] / np.abs(exact)[away]) < 2.0**-52
