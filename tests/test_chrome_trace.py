"""The Chrome trace: strict JSON, slices that nest and close, microseconds since the first arrival."""

import itertools
import json
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from tests.metrics.fake_run import fake_tables, write_leaf
from workbench.chrome_trace import trace_events, write_chrome_trace


def test_slices_and_counters_match_the_record(tmp_path: Path) -> None:
    tables = fake_tables("S", 1)
    write_leaf(tmp_path / "arm", tables, code="S", seed=1)

    def refuse(text: str) -> float:
        raise AssertionError(text)

    path = write_chrome_trace(tmp_path / "arm", tmp_path / "trace.json")
    body = json.loads(path.read_text(), parse_constant=refuse)
    steps = [e for e in body["traceEvents"] if e["ph"] == "X"]
    assert len(steps) == tables["steps"].height
    assert sum(e["dur"] for e in steps) == pytest.approx(
        1e6 * tables["steps"]["elapsed_s"].sum(), abs=0.01 * len(steps)
    )
    assert all(a["ts"] + a["dur"] <= b["ts"] + 0.01 for a, b in itertools.pairwise(steps))
    assert min(e["ts"] for e in body["traceEvents"] if "ts" in e) == 0.0
    counters = {e["name"] for e in body["traceEvents"] if e["ph"] == "C"}
    assert {"requests", "KV blocks", "mean entropy (nats)", "mean temperature"} <= counters


def test_every_request_opens_and_closes_its_phases_in_order() -> None:
    tables = fake_tables("-", 2)
    stacks: dict[int, list[tuple[str, float]]] = {}
    phases: Counter[str] = Counter()
    for event in trace_events(tables["requests"], tables["steps"]):
        if event["ph"] == "b":
            stacks.setdefault(event["id"], []).append((event["name"], event["ts"]))
            phases[event["name"].split()[0]] += 1
        elif event["ph"] == "e":
            name, start = stacks[event["id"]].pop()
            assert name == event["name"]
            assert event["ts"] >= start
    assert all(not stack for stack in stacks.values())
    assert phases == {"request": 48, "queued": 48, "prefill": 48, "decode": 48}


def test_refused_and_cut_requests_close_without_invented_times() -> None:
    requests = pl.DataFrame(
        {
            "request_id": [0, 1],
            "status": ["refused", "running"],
            "arrival_s": [1.0, 2.0],
            "first_scheduled_s": [None, 3.0],
            "first_token_s": [None, None],
            "finished_s": [None, None],
        },
        schema_overrides={"first_token_s": pl.Float64, "finished_s": pl.Float64},
    )
    steps = pl.DataFrame({"step": [0], "start_s": [3.0], "elapsed_s": [2.0], "entropy_mean_nats": [float("nan")]})
    events = [e for e in trace_events(requests, steps) if e["ph"] in "be"]
    spans = {(e["id"], e["name"], e["ph"]): e["ts"] for e in events}
    assert spans[0, "request 0", "b"] == spans[0, "request 0", "e"] == 0.0
    assert spans[1, "prefill", "e"] == spans[1, "request 1", "e"] == 4e6
    assert (1, "decode", "b") not in spans
    # A counter without a measurement has no event: never a zero, never NaN.
    assert not [e for e in trace_events(requests, steps) if e["ph"] == "C"]
