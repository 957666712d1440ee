"""Survivor statistics, SLO, queue: refusals are misses, and nothing completed is still one full object."""

import json

import polars as pl
import pytest

from tests.metrics.fake_run import fake_tables
from workbench.metrics import NAMES, Slo, metrics_of, records_of
from workbench.metrics.service import goodput_frac, goodput_per_s, waiting_share
from workbench.strict_json import plain, strict_json


def refuse(frame: pl.DataFrame, every: int) -> pl.DataFrame:
    """Every n-th request refused, as an engine records it: no time but its arrival."""
    gone = pl.col("request_id") % every == 0
    times = ("first_scheduled_s", "first_token_s", "finished_s", "tau_nats", "nll_raw_nats")
    nulls = {name: pl.when(gone).then(None).otherwise(pl.col(name)).alias(name) for name in times}
    return frame.with_columns(
        pl.when(gone).then(pl.lit("refused")).otherwise(pl.col("status")).alias("status"), *nulls.values()
    )


def test_nothing_completed_is_one_full_object_with_reasons() -> None:
    tables = fake_tables("-", 0)
    figures, counts = metrics_of(refuse(tables["requests"], 1), tables["steps"].clear())
    assert set(figures) == set(NAMES)
    given_up = {"timed_out": 0, "cancelled": 0}
    assert counts == {"arrived": 48, "completed": 0, "refused": 48, **given_up, "one_token": 0, "no_first_token": 0}
    for name in ("ttft_p99_s", "tpot_p50_s", "e2e_mean_s", "nll_nats", "energy_per_token_j"):
        assert figures[name].value is None
        assert figures[name].reason
    assert figures["goodput_frac"].value == 0.0
    assert figures["completed_frac"].value == 0.0

    def no_constant(text: str) -> float:
        raise AssertionError(f"{text} is not strict JSON")

    assert json.loads(strict_json(figures), parse_constant=no_constant)["ttft_p99_s"]["value"] is None


def test_refusals_are_misses_of_goodput_and_not_latencies() -> None:
    tables = fake_tables("-", 0, num_requests=100)
    figures, counts = metrics_of(refuse(tables["requests"], 10), tables["steps"], slo=Slo(1e9, 1e9))
    assert counts["refused"] == 10
    assert figures["completed_frac"].value == pytest.approx(0.9)
    assert figures["goodput_frac"].value == pytest.approx(0.9)


def test_goodput_counts_by_hand() -> None:
    requests = pl.DataFrame(
        {
            "request_id": [0, 1, 2, 3],
            "status": ["completed", "completed", "completed", "refused"],
            "arrival_s": [0.0, 0.0, 0.0, 0.0],
            "first_token_s": [1.0, 3.0, 1.0, None],
            "finished_s": [1.0, 3.4, 10.0, None],
            "output_tokens": [1, 5, 5, 0],
        }
    )
    steps = pl.DataFrame({"step": [0], "start_s": [0.0], "elapsed_s": [10.0]})
    records = records_of(requests, steps, slo=Slo(ttft_s=2.0, tpot_s=0.5))
    # The first meets it (one token has no TPOT to miss), the second is late, the third slow, the fourth refused.
    assert goodput_frac(records) == 0.25
    assert goodput_per_s(records) == pytest.approx(0.1)


@pytest.mark.parametrize(("spelling", "dtype"), [("REFUSED", pl.String), (4, pl.Int64)])
def test_status_by_name_or_number(spelling: object, dtype: type[pl.DataType]) -> None:
    requests = pl.DataFrame({"request_id": [0], "arrival_s": [0.0], "finished_s": [1.0]}).with_columns(
        pl.lit(spelling, dtype=dtype).alias("status")
    )
    records = records_of(requests, pl.DataFrame({"step": [0], "start_s": [0.0], "elapsed_s": [1.0]}))
    assert not records.completed.any()


def test_queue_share_weighs_by_time_and_counts_the_backlog() -> None:
    steps = pl.DataFrame(
        {
            "step": [0, 1, 2],
            "start_s": [0.0, 1.0, 4.0],
            "elapsed_s": [1.0, 3.0, 4.0],
            "num_waiting": [0, 1, 0],
            "num_backlog": [0, 0, 5],
        }
    )
    records = records_of(pl.DataFrame({"request_id": [0], "arrival_s": [0.0]}), steps)
    assert waiting_share(records) == pytest.approx(7 / 8)


def test_batches_lose_nothing_and_repeat_nothing() -> None:
    tables = fake_tables("S", 3, num_requests=90)
    records = records_of(refuse(tables["requests"], 9), tables["steps"])
    parts = records.batches(7)
    assert sorted(i for part in parts for i in part.request("request_id")) == list(range(90))
    assert sum(part.served.num_requests for part in parts) == records.completed.sum() == 80
    assert sum(part.step("elapsed_s").size for part in parts) == tables["steps"].height
    assert sum(part.end_s - part.start_s for part in parts) == pytest.approx(records.end_s - records.start_s)


def test_plain_turns_every_non_finite_number_into_null() -> None:
    assert plain({"a": float("nan"), "b": [float("inf"), 1], 3: (True, None)}) == {
        "a": None,
        "b": [None, 1],
        "3": [True, None],
    }


def test_passes_are_those_of_masked_requests_that_completed() -> None:
    tables = fake_tables("-", 0)
    none, _ = metrics_of(tables["requests"], tables["steps"])
    assert none["passes_per_request"].reason == "no masked-diffusion request was completed"
    # Every other request is masked: 4 passes each, and one that is refused, whose passes do not count.
    ids = tables["requests"]["request_id"]
    passes = [0 if i % 2 else (900 if i % 16 == 0 else 4) for i in ids]
    frame = refuse(tables["requests"].with_columns(passes=pl.Series(passes)), 16)
    found, _ = metrics_of(frame, tables["steps"])
    assert found["passes_per_request"].value == pytest.approx(4.0)
    revealed = frame.filter((pl.col("request_id") % 2 == 0) & (pl.col("request_id") % 16 != 0))["output_tokens"]
    assert found["positions_per_pass"].value == pytest.approx(revealed.mean() / 4.0)
