import pytest

from controllers.unmasking.ordered_entropy_sum import OrderedEntropySum
from tests.controllers.unmasking.observed import decide, observe
from workbench.errors import InputError


def test_takes_the_least_uncertain_first_ties_by_position():
    entropy = [0.3, 0.1, 0.1, 0.2]
    assert decide(OrderedEntropySum(eta_nats=0.15), observe(entropy, rank=[0, 1, 2, 3])) == [1, 2]
    assert decide(OrderedEntropySum(eta_nats=0.25), observe(entropy, rank=[0, 1, 2, 3])) == [1, 2, 3]


def test_confidence_order():
    entropy, confidence = [0.3, 0.3, 0.3], [0.5, 0.9, 0.7]
    assert decide(OrderedEntropySum(eta_nats=0.2, order="confidence"), observe(entropy, confidence=confidence)) == [1]


def test_refuses_bad_numbers():
    with pytest.raises(InputError, match="order"):
        OrderedEntropySum(order="random")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="eta_nats"):
        OrderedEntropySum(eta_nats=-0.1)
