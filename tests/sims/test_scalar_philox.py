"""Compiled draws against the array ones, the quantile against scipy."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtri

from kernels.philox import random_words, uniform, uniform_fine
from sims.scalar_philox import normal_quantile, normal_quantiles, philox_words, unit, unit_fine

WORDS = st.integers(0, 2**32 - 1)


@given(st.integers(0, 2**63 - 1), WORDS, WORDS, WORDS, st.integers(0, 1000))
def test_the_bits_are_those_of_the_array_generator(seed, stream, request_id, token, group):
    words = philox_words(seed, stream, request_id, token, group)
    lanes = 4 * group + np.arange(4)
    expected = random_words(seed, stream, request_id, token, lanes)
    np.testing.assert_array_equal(np.array(words, np.uint64), expected)
    np.testing.assert_array_equal([unit(w) for w in words], uniform(seed, stream, request_id, token, lanes))


def test_fine_draws_are_those_of_the_array_generator():
    words = philox_words(5, 6, 7, 8, 0)
    assert unit_fine(words[0], words[1]) == uniform_fine(5, 6, 7, 8)


def test_normal_quantile_against_scipy():
    u = np.concatenate([np.linspace(1e-6, 1 - 1e-6, 2001), [2.0**-47, 1e-12, 1 - 2.0**-47]])
    np.testing.assert_allclose([normal_quantile(v) for v in u], ndtri(u), rtol=1e-12, atol=1e-13)
    out = np.empty(u.size)
    normal_quantiles(u, out)
    np.testing.assert_array_equal(out, [normal_quantile(v) for v in u])
