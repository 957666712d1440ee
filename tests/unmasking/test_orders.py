import numpy as np
import pytest

from workbench.errors import InputError
from workbench.unmasking.orders import check_orders, parse_order, random_ranks, rank_of_order


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


def test_an_order_and_its_ranks_are_inverse_to_each_other():
    rank = rank_of_order(np.array([2, 0, 3, 1]), 4)
    assert rank.tolist() == [1, 3, 0, 2]
    assert check_orders(rank[None], 4).tolist() == [[1, 3, 0, 2]]


@pytest.mark.parametrize(
    ("order", "why"),
    [
        ([0, 1, 1], "1 occurs 2 times"),
        ([0, 1, 3], "3 is no position"),
        ([0, 2], "1 is missing"),
        ([0, -1, 2], "-1 is no"),
    ],
)
def test_an_order_that_is_no_permutation_is_one_line(order, why):
    with pytest.raises(InputError, match=f"each position of 0 .. 2 once, {why}"):
        rank_of_order(np.array(order), 3)


def test_words_that_are_no_positions():
    assert parse_order("2, 0,1").tolist() == [2, 0, 1]
    with pytest.raises(InputError, match="got 'x'"):
        parse_order("0,x")
