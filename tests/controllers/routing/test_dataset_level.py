import math

import numpy as np
import pytest

from controllers.routing.dataset_level import DatasetRouter
from controllers.routing.descriptors import describe
from controllers.routing.null_threshold import ar1_traces
from tests.controllers.routing.observe import observe
from workbench.errors import InputError
from workbench.protocols import RouteReason, Strategy


def probes(phi, n, seed, fall=0.0):
    return ar1_traces(phi, n, 64, np.random.default_rng(seed)) + 5.0 - fall * np.arange(64) / 63.0


@pytest.mark.parametrize("phi", [0.0, 0.9])
def test_a_trend_free_data_set_is_left_alone(phi):
    routed = [
        DatasetRouter.calibrated(describe(probes(phi, 50, seed))).strategy != Strategy.STANDARD for seed in range(1000)
    ]
    assert np.mean(routed) <= 0.05 + 3.0 * math.sqrt(0.05 * 0.95 / 1000)


def test_a_small_common_fall_is_found_even_in_smooth_traces():
    router = DatasetRouter.calibrated(describe(probes(0.9, 50, 1, fall=2.0)))
    assert (router.strategy, router.reason) == (Strategy.COT, RouteReason.FALLING)
    assert DatasetRouter.calibrated(describe(probes(0.0, 50, 1, fall=-2.0))).strategy == Strategy.DIRECT
    _, action = router.step(None, observe(np.zeros((3, 4))))
    assert list(action.strategy) == [Strategy.COT] * 3


def test_overload_and_short_probes():
    numbers = describe(probes(0.0, 50, 2))
    assert DatasetRouter.calibrated(numbers, overload_nats=32.0).reason == RouteReason.OVERLOAD
    short = describe(probes(0.0, 50, 2), np.full(50, 5))
    assert DatasetRouter.calibrated(short).reason == RouteReason.TOO_SHORT


def test_too_few_samples_are_refused():
    with pytest.raises(InputError, match="at least 8"):
        DatasetRouter.calibrated(describe(probes(0.0, 7, 3)))
