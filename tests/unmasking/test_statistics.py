import numpy as np
import pytest
from scipy.stats import entropy as scipy_entropy

from workbench.errors import InputError
from workbench.unmasking.predictor import Marginals
from workbench.unmasking.statistics import divergence, position_statistics


@pytest.mark.parametrize("n", [1, 2, 3, 8, 25, 600])
def test_agrees_with_scipy(n):
    rng = np.random.default_rng(n)
    p = rng.dirichlet(np.full(n, 0.2), size=(3, 7))
    p[0, 0] = np.eye(n)[0]
    masked = rng.random((3, 7)) < 0.7
    masked[0, 0] = True
    h, first, second = position_statistics(Marginals(probability=p), masked)
    np.testing.assert_allclose(h[masked], scipy_entropy(p[masked], axis=1), atol=1e-12)
    ordered = np.sort(np.concatenate([p, np.zeros((3, 7, 1))], axis=2), axis=2)
    np.testing.assert_allclose(first[masked], ordered[masked][:, -1])
    np.testing.assert_allclose(second[masked], ordered[masked][:, -2])
    assert np.all(np.isnan(h[~masked]) & np.isnan(first[~masked]) & np.isnan(second[~masked]))
    assert h[0, 0] == 0.0


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([0.5, np.nan], "row 1, position 2 holds NaN or inf"),
        ([0.5, np.inf], "holds NaN or inf"),
        ([0.5, 0.4], "row 1, position 2 sums to 0.9"),
        ([1.2, -0.2], "negative probability -0.2"),
        ([0.0, 0.0], "sums to 0"),
    ],
)
def test_a_row_that_is_no_distribution_is_named(row, message):
    p = np.full((2, 4, 2), 0.5)
    p[1, 2] = row
    with pytest.raises(InputError, match=message):
        position_statistics(Marginals(probability=p), np.ones((2, 4), bool))
    # Where nothing is asked nothing is checked: a revealed position may hold anything.
    masked = np.ones((2, 4), bool)
    masked[1, 2] = False
    position_statistics(Marginals(probability=p), masked)


def test_a_wrong_shape_is_one_clear_line():
    with pytest.raises(InputError, match=r"marginals of shape \(2, 3, 2\) for tokens of shape \(2, 4\)"):
        position_statistics(Marginals(probability=np.full((2, 3, 2), 0.5)), np.ones((2, 4), bool))


def test_fused_statistics_take_precedence():
    p = np.full((1, 2, 2), 0.5)
    h, _, _ = position_statistics(
        Marginals(probability=p, entropy_nats=np.array([[0.1, 0.2]])), np.array([[True, False]])
    )
    assert h[0, 0] == 0.1
    assert np.isnan(h[0, 1])


def test_divergence_agrees_with_scipy():
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(5), size=(2, 2, 3))
    among = np.array([[True, True, False], [True, False, True]])
    got = divergence(p, q, among)
    np.testing.assert_allclose(got[among], scipy_entropy(p[among], q[among], axis=1), atol=1e-12)
    assert np.all(np.isnan(got[~among]))
