import numpy as np
import pytest

from controllers.unmasking.max_entropy import MaxEntropy
from tests.controllers.unmasking.observed import decide, observe
from workbench.errors import InputError


def test_stops_at_the_first_position_above_the_threshold_and_takes_it():
    entropy = [0.05, 0.05, 0.9, 0.05]
    assert decide(MaxEntropy(threshold_nats=0.1), observe(entropy)) == [0, 1, 2]
    assert decide(MaxEntropy(threshold_nats=0.1), observe(entropy, rank=[1, 2, 0, 3])) == [2]


def test_without_a_position_above_it_only_the_cap_stops_it():
    assert decide(MaxEntropy(threshold_nats=0.1, batch_cap=5), observe(np.full(12, 0.01))) == [0, 1, 2, 3, 4]


def test_refuses_bad_numbers():
    with pytest.raises(InputError, match="threshold_nats"):
        MaxEntropy(threshold_nats=float("nan"))
    with pytest.raises(InputError, match="batch_cap"):
        MaxEntropy(batch_cap=0)
