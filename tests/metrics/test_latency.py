"""Latency against hand-worked requests: what is missing is null, and zero is never a sentinel."""

import math

import polars as pl
import pytest

from workbench.errors import InputError
from workbench.metrics import metrics_of, records_of
from workbench.metrics.latency import tpot_s, ttft_s

STEPS = pl.DataFrame({"step": [0], "start_s": [0.0], "elapsed_s": [1.4]})


def requests(**columns: list) -> pl.DataFrame:
    size = len(columns["arrival_s"])
    return pl.DataFrame({"request_id": list(range(size)), "status": ["completed"] * size} | columns)


def test_hand_case_gives_a_tenth_of_a_second() -> None:
    frame = requests(arrival_s=[0.0], first_token_s=[1.0], finished_s=[1.4], output_tokens=[5])
    figures, _ = metrics_of(frame, STEPS)
    assert figures["ttft_p50_s"].value == pytest.approx(1.0)
    assert figures["tpot_mean_s"].value == pytest.approx(0.1)
    assert figures["e2e_p99_s"].value == pytest.approx(1.4)


def test_one_token_answers_have_no_tpot_and_are_counted() -> None:
    frame = requests(
        arrival_s=[0.0, 0.0, 0.0], first_token_s=[1.0, 1.0, 0.5], finished_s=[1.0, 1.4, 0.5], output_tokens=[1, 5, 1]
    )
    figures, counts = metrics_of(frame, STEPS)
    assert figures["tpot_p50_s"].value == pytest.approx(0.1)
    assert counts["one_token"] == 2
    only_one = metrics_of(frame.filter(pl.col("output_tokens") == 1), STEPS)[0]["tpot_p50_s"]
    assert only_one.value is None
    assert only_one.reason == "every completed answer has one token"


def test_a_request_cut_before_its_first_token_has_null_ttft_not_zero() -> None:
    frame = pl.DataFrame(
        {
            "request_id": [0, 1, 2],
            "status": ["running", "completed", "refused"],
            "arrival_s": [0.0, 0.0, 0.0],
            "first_token_s": [None, 2.0, None],
            "finished_s": [None, 4.0, 0.0],
            "output_tokens": [0, 3, 0],
        }
    )
    records = records_of(frame, STEPS)
    assert [math.isnan(x) for x in ttft_s(records)] == [True, False, True]
    assert [math.isnan(x) for x in tpot_s(records)] == [True, False, True]
    figures, counts = metrics_of(frame, STEPS)
    assert figures["ttft_mean_s"].value == 2.0
    assert (counts["completed"], counts["refused"], counts["no_first_token"]) == (1, 1, 1)


def test_arrival_at_time_zero_and_tokens_at_once_are_measured() -> None:
    """TTFT 0 is a legal value of a free plant, not "not measured": it must not swallow the prefill into TPOT."""
    frame = requests(arrival_s=[0.0], first_token_s=[0.0], finished_s=[0.4], output_tokens=[5])
    figures, _ = metrics_of(frame, STEPS)
    assert figures["ttft_p50_s"].value == 0.0
    assert figures["tpot_p50_s"].value == pytest.approx(0.1)


def test_itl_counts_two_tokens_of_one_step_as_zero_and_skips_unrecorded_ones() -> None:
    steps = pl.DataFrame({"step": [0, 1, 2, 9], "start_s": [0.0, 1.0, 2.0, 9.0], "elapsed_s": [1.0] * 4})
    sequences = pl.DataFrame(
        {
            "point": ["measure"] * 5 + ["temperature"],
            "step": [0, 1, 1, 2, 9, 9],
            "request_id": [7] * 6,
            "token_index": [0, 1, 2, 3, 8, None],
        }
    )
    records = records_of(requests(arrival_s=[0.0], finished_s=[10.0], output_tokens=[9]), steps, sequences)
    assert records.itl_s is not None
    # Tokens 3 and 8 are not neighbours: the seven seconds between them are no inter-token gap.
    assert sorted(records.itl_s) == [0.0, 1.0, 1.0]


def test_times_that_run_backwards_are_refused_by_request() -> None:
    frame = requests(arrival_s=[5.0, 6.0], first_token_s=[5.5, 5.9], finished_s=[7.0, 7.0], output_tokens=[2, 2])
    with pytest.raises(InputError, match=r"request 1: first_token_s = 5\.9 lies before arrival_s = 6"):
        records_of(frame, STEPS)


def test_rows_out_of_order_are_sorted_by_arrival() -> None:
    frame = requests(arrival_s=[3.0, 1.0, 1.0], finished_s=[9.0, 9.0, 9.0], output_tokens=[2, 2, 2])
    assert list(records_of(frame, STEPS).request("request_id")) == [1.0, 2.0, 0.0]
