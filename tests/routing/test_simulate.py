import numpy as np
import pytest

from controllers.routing.fixed import FixedRouter
from controllers.routing.heuristic import HeuristicRouter
from tests.routing.test_fit_mlp import panel
from workbench.errors import InputError
from workbench.protocols import Strategy
from workbench.routing.simulate import simulate_load

ROUTERS = {
    "always-direct": FixedRouter(strategy=Strategy.DIRECT),
    "always-cot": FixedRouter(strategy=Strategy.COT),
    "heuristic": HeuristicRouter(overload_nats=float("inf")),
}


@pytest.fixture(scope="module")
def rows():
    made = simulate_load([panel(100)], {"made": ROUTERS}, [1.0, 400.0], num_requests=400)
    return {(row.router, row.rate_per_s): row for row in made}


def test_lengths_and_accuracy_come_from_the_record(rows):
    direct, cot, routed = (rows[name, 1.0] for name in ROUTERS)
    assert direct.output_tokens_mean == 5
    assert cot.output_tokens_mean == 200
    # Every fall is right by CoT and every rise by Direct: 64 + 5 or 64 + 200 tokens, and always right.
    assert routed.accuracy == pytest.approx(1.0, abs=0.02)
    expected = 64 * (routed.share_direct + routed.share_cot) + np.dot(
        [routed.share_direct, routed.share_cot, routed.share_standard], [5, 200, 100]
    )
    assert routed.output_tokens_mean == pytest.approx(expected)
    assert direct.accuracy + cot.accuracy == pytest.approx(1.0)
    assert all(row.completed == 400 for row in rows.values())


def test_load_queues_the_longer_replies_more(rows):
    for name in ROUTERS:
        assert rows[name, 400.0].latency_mean_s > rows[name, 1.0].latency_mean_s
    assert rows["always-cot", 400.0].requests_per_s < rows["always-direct", 400.0].requests_per_s
    assert rows["always-direct", 1.0].latency_mean_s < rows["always-cot", 1.0].latency_mean_s


def test_unloaded_latency_is_proportional_to_length(rows):
    """At one request a second steps are nearly all alone: 200 tokens take about 40 times as long as 5."""
    ratio = rows["always-cot", 1.0].latency_mean_s / rows["always-direct", 1.0].latency_mean_s
    assert 25 < ratio < 45


def test_same_seed_same_rows_and_bad_rates():
    again = [simulate_load([panel(30)], {"made": ROUTERS}, [5.0], num_requests=50) for _ in range(2)]
    assert again[0] == again[1]
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="arrival rates"):
            simulate_load([panel(30)], {"made": ROUTERS}, [bad])
