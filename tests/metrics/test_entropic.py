"""Entropic time per cost, tracking, quality and energy against sums worked by hand."""

import polars as pl
import pytest

from workbench.metrics import metrics_of

REQUESTS = pl.DataFrame(
    {
        "request_id": [0, 1],
        "status": ["completed", "completed"],
        "arrival_s": [0.0, 1.0],
        "first_token_s": [1.0, 2.0],
        "finished_s": [4.0, 4.0],
        "output_tokens": [30, 10],
        "tau_nats": [6.0, 2.0],
        "net_drop_nats": [2.0, -1.0],
        "total_variation_nats": [10.0, 5.0],
        "entropy_error_nats": [0.2, 0.6],
        "nll_raw_nats": [60.0, 30.0],
        "dropped_mass_mean": [0.02, 0.04],
    }
)
STEPS = pl.DataFrame(
    {
        "step": [0, 1],
        "start_s": [0.0, 2.0],
        "elapsed_s": [2.0, 2.0],
        "energy_j": [300.0, 500.0],
        "flops": [1e12, 3e12],
        "kv_bytes_read": [1e9, 1e9],
        "kv_bytes_dense": [2e9, 3e9],
        "num_decode": [30, 10],
        "entropy_mean_nats": [1.0, 2.0],
        "temperature_mean": [1.0, 0.6],
    }
)


def test_by_hand() -> None:
    figures, _ = metrics_of(REQUESTS, STEPS)
    expected = {
        "tau_nats": 4.0,
        "net_drop_nats": 0.5,
        "total_variation_nats": 7.5,
        "tau_per_tflop": 8.0 / 4.0,
        "tau_per_kv_gb": 8.0 / 2.0,
        "tau_per_busy_s": 8.0 / 4.0,
        "tau_per_j": 8.0 / 800.0,
        "kv_read_frac": 2.0 / 5.0,
        "kv_gb_per_request": 1.0,
        "energy_per_token_j": 800.0 / 40.0,
        "entropy_error_nats": (0.2 * 30 + 0.6 * 10) / 40,
        "nll_nats": 90.0 / 40.0,
        "dropped_mass": 0.03,
        "entropy_mean_nats": (30 + 20) / 40,
        "temperature_mean": (30 + 6) / 40,
    }
    assert {name: figures[name].value for name in expected} == pytest.approx(expected)
    # The identity tau = (net drop + TV) / 2 survives the averaging.
    assert figures["tau_nats"].value == pytest.approx((0.5 + 7.5) / 2)


def test_without_a_power_model_joules_are_null_with_the_reason() -> None:
    figures, _ = metrics_of(REQUESTS, STEPS.with_columns(energy_j=pl.lit(None, dtype=pl.Float64)))
    for name in ("energy_per_token_j", "tau_per_j"):
        assert figures[name].value is None
        assert figures[name].reason == "no power model"


def test_nan_and_null_are_the_same_missing_measurement() -> None:
    with_nan = REQUESTS.with_columns(entropy_error_nats=pl.Series([0.2, float("nan")]))
    with_null = REQUESTS.with_columns(entropy_error_nats=pl.Series([0.2, None]))
    assert metrics_of(with_nan, STEPS)[0]["entropy_error_nats"] == metrics_of(with_null, STEPS)[0]["entropy_error_nats"]
    assert metrics_of(with_nan, STEPS)[0]["entropy_error_nats"].value == pytest.approx(0.2)


def test_a_record_without_a_column_says_so() -> None:
    figures, _ = metrics_of(REQUESTS.drop("tau_nats"), STEPS)
    assert figures["tau_per_tflop"].reason == "entropic time is not in the record"
