import numpy as np
import pytest

from controllers.unmasking.entropy_sum import EntropySum
from tests.controllers.unmasking.observed import decide, observe
from workbench.errors import InputError


def test_takes_the_random_order_up_to_and_including_the_crossing():
    entropy = [0.4, 0.05, 0.3, 0.2, 0.1]
    # Order: positions 3, 0, 4, 2, 1; running sums 0.2, 0.6, 0.7, 1.0, 1.05.
    rank = [1, 4, 3, 0, 2]
    assert decide(EntropySum(eta_nats=0.5), observe(entropy, rank=rank)) == [0, 3]
    assert decide(EntropySum(eta_nats=0.65), observe(entropy, rank=rank)) == [0, 3, 4]
    assert decide(EntropySum(eta_nats=0.2), observe(entropy, rank=rank)) == [0, 3]  # 0.2 does not exceed 0.2
    assert decide(EntropySum(eta_nats=9.0), observe(entropy, rank=rank)) == [0, 1, 2, 3, 4]


def test_is_not_lowest_entropy_first():
    assert decide(EntropySum(eta_nats=0.1), observe([2.0, 0.0, 0.0], rank=[0, 1, 2])) == [0]


def test_eta_zero_takes_certain_positions_free_and_one_uncertain():
    assert decide(EntropySum(eta_nats=0.0), observe([0.0, 0.0, 0.3, 0.0, 0.2], rank=[0, 1, 2, 3, 4])) == [0, 1, 2]


def test_eta_infinite_takes_all():
    assert decide(EntropySum(eta_nats=np.inf), observe(np.full(20, 3.0))) == list(range(20))


def test_revealed_positions_are_passed_over():
    masked = [False, True, False, True, True]
    assert decide(EntropySum(eta_nats=0.1), observe(np.full(5, 0.3), masked=masked, rank=[0, 1, 2, 3, 4])) == [1]


def test_an_unmeasured_position_is_treated_as_very_uncertain():
    assert decide(EntropySum(eta_nats=5.0), observe([0.1, np.nan, 0.1], rank=[0, 1, 2])) == [0, 1]


@pytest.mark.parametrize("eta", [-1.0, -1e-12, float("nan")])
def test_refuses_a_negative_or_missing_eta(eta):
    with pytest.raises(InputError, match=r"eta_nats must be in \[0, inf\]"):
        EntropySum(eta_nats=eta)
