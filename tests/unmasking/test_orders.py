import numpy as np
import pytest

from workbench.errors import InputError
from workbench.unmasking.orders import check_orders, random_ranks


def test_ranks_are_uniform_permutations():
    ranks = random_ranks(3, np.arange(24_000), 0, 4)
    assert np.array_equal(np.sort(ranks, axis=1), np.tile(np.arange(4), (24_000, 1)))
    _, counts = np.unique(ranks @ np.array([64, 16, 4, 1]), return_counts=True)
    assert counts.size == 24
    assert ((counts - 1000.0) ** 2 / 1000.0).sum() < 23 + 5 * np.sqrt(46)


def test_long_permutations_have_no_pattern_between_neighbours():
    ranks = random_ranks(0, np.arange(200), 5, 512).astype(float)
    x, y = ranks[:, :-1].ravel(), ranks[:, 1:].ravel()
    assert abs(np.corrcoef(x, y)[0, 1]) < 5 / np.sqrt(x.size)


def test_ranks_depend_on_the_request_and_iteration_alone():
    together = random_ranks(7, np.array([5, 9, 2]), 3, 50)
    assert np.array_equal(together[1], random_ranks(7, np.array([9]), 3, 50)[0])
    assert not np.array_equal(together[1], random_ranks(7, np.array([9]), 4, 50)[0])
    assert not np.array_equal(together[1], random_ranks(8, np.array([9]), 3, 50)[0])


@pytest.mark.parametrize(
    ("orders", "message"),
    [
        ([[0, 1, 2, 2]], "row 0 is no permutation.*rank 2 occurs 2 times"),
        ([[0, 1, 2, 3], [0, 1, 2, 4]], "row 1 is no permutation.*ranks reach 4"),
        ([[0, 1, 2]], "shape"),
        ([[0.0, 1.0, 2.0, 3.0]], "integers"),
    ],
)
def test_refuses_what_is_no_permutation(orders, message):
    with pytest.raises(InputError, match=message):
        check_orders(np.array(orders), 4)
