"""One arm as a Chrome trace (JSON object format) that Perfetto and chrome://tracing open.

    engine    a slice per step, with its tokens, FLOPs and KV bytes
    requests  an asynchronous slice per request, split into queued, prefill, decode
    counters  requests running and waiting, KV blocks used, mean entropy, mean temperature

Times are microseconds since the first arrival. A request without an end closes at the end of the record and says so in its
arguments. Source: Trace Event Format (phases X, b, e, C, M).
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from workbench.metrics.leaf import TABLES
from workbench.record import write_atomically
from workbench.strict_json import plain

PROCESS = 1
MICROSECONDS = 1e6
MAX_STEPS = 5_000
STEP_ARGUMENTS = (
    "step", "num_tokens", "num_decode", "num_preempted", "energy_j", "flops", "kv_bytes_read", "kv_bytes_dense",
)  # fmt: skip
COUNTERS: dict[str, tuple[str, ...]] = {
    "requests": ("num_running", "num_waiting", "num_backlog"),
    "KV blocks": ("kv_blocks_used",),
    "mean entropy (nats)": ("entropy_mean_nats",),
    "mean temperature": ("temperature_mean",),
}
PHASES = (
    ("queued", "arrival_s", "first_scheduled_s"),
    ("prefill", "first_scheduled_s", "first_token_s"),
    ("decode", "first_token_s", "finished_s"),
)


def trace_events(requests: pl.DataFrame, steps: pl.DataFrame, max_steps: int = MAX_STEPS) -> Iterator[dict[str, Any]]:
    """Events of one arm. At most `max_steps` steps and the requests that arrived by then."""
    steps = steps.sort("start_s").head(max_steps)
    requests = requests.sort("arrival_s", maintain_order=True)
    origin = _least(requests["arrival_s"].min(), steps["start_s"].min())
    end_s = float(steps.select(pl.col("start_s") + pl.col("elapsed_s")).max().item()) if steps.height else origin
    yield {"ph": "M", "pid": PROCESS, "name": "process_name", "args": {"name": "entropic workbench"}}
    yield {"ph": "M", "pid": PROCESS, "tid": 1, "name": "thread_name", "args": {"name": "engine steps"}}

    def micros(seconds: float) -> float:
        return round((seconds - origin) * MICROSECONDS, 3)

    for row in steps.iter_rows(named=True):
        arguments = {name: row[name] for name in STEP_ARGUMENTS if row.get(name) is not None}
        kind = "prefill" if not row.get("num_decode") else "decode"
        if row.get("num_decode") and (row.get("num_tokens") or 0) > row["num_decode"]:
            kind = "mixed"
        yield {
            "ph": "X", "pid": PROCESS, "tid": 1, "cat": "step", "name": kind, "ts": micros(row["start_s"]),
            "dur": round(row["elapsed_s"] * MICROSECONDS, 3), "args": plain(arguments),
        }  # fmt: skip
        for name, columns in COUNTERS.items():
            # A counter without a measurement keeps its last value: no event, never a zero.
            values = {c: plain(row[c]) for c in columns if row.get(c) is not None and plain(row[c]) is not None}
            if values:
                yield {"ph": "C", "pid": PROCESS, "name": name, "ts": micros(row["start_s"]), "args": values}
    for row in requests.filter(pl.col("arrival_s") <= end_s).iter_rows(named=True):
        yield from _request_events(row, end_s, micros)


def _request_events(row: dict[str, Any], end_s: float, micros: Any) -> Iterator[dict[str, Any]]:
    identity = {"pid": PROCESS, "cat": "request", "id": int(row["request_id"])}
    times = {key: plain(row.get(key)) for key in ("arrival_s", "first_scheduled_s", "first_token_s", "finished_s")}
    finished = times["finished_s"]
    close = end_s if finished is None else finished
    if str(row.get("status", "")).lower() == "refused":
        close = times["arrival_s"]
    names = ("kind", "status", "prompt_tokens", "output_tokens", "num_preempted", "tau_nats", "nll_raw_nats")
    arguments = {name: plain(row[name]) for name in names if row.get(name) is not None}
    name = f"request {row['request_id']}"
    yield {"ph": "b", **identity, "name": name, "ts": micros(times["arrival_s"]), "args": arguments}
    for phase, start, stop in PHASES:
        if times[start] is None or times[start] > close:
            continue
        until = close if times[stop] is None else min(times[stop], close)
        yield {"ph": "b", **identity, "name": phase, "ts": micros(times[start])}
        yield {"ph": "e", **identity, "name": phase, "ts": micros(until)}
    yield {"ph": "e", **identity, "name": name, "ts": micros(close)}


def _least(*values: Any) -> float:
    return min((float(v) for v in values if v is not None), default=0.0)


def write_chrome_trace(arm: Path, path: Path, max_steps: int = MAX_STEPS) -> Path:
    """Write the trace of one arm's directory to `path`; returns it."""
    requests, steps = (pl.read_parquet((arm / name).read_bytes()) for name in TABLES[:2])
    events = list(trace_events(requests, steps, max_steps))
    body = {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"steps_in_record": steps.height, "steps_shown": min(steps.height, max_steps)},
    }
    write_atomically(path, json.dumps(body, allow_nan=False, separators=(",", ":")).encode())
    return path
