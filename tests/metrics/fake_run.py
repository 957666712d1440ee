"""A run directory made by a toy batch server, with known effects, for tests of metrics and report.

Pruning cuts KV bytes to 0.6 and step time by 5 %; the temperature loop cuts the tracking error to 0.4 of itself; the
scheduler serves the shortest remaining answer first, which matters only where something waits.
"""

import json
from pathlib import Path

import numpy as np
import polars as pl

from workbench.metrics import ARM_CODES

TARGET_NATS = 1.5


def fake_tables(code: str, seed: int, num_requests: int = 48, gap_s: float = 0.1, max_running: int = 4) -> dict:
    """Tables of one arm. Draws depend on the seed only, so arms share them."""
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(gap_s, num_requests))
    output = rng.integers(1, 40, num_requests)
    tau, error = rng.uniform(5, 9, num_requests), rng.uniform(0.7, 1.1, num_requests)
    first_scheduled, first, finished = (np.full(num_requests, np.nan) for _ in range(3))
    left, rows, tokens, now, step = output.copy(), [], [], float(arrival[0]), 0
    while np.isnan(finished).any():
        ready = np.flatnonzero((arrival <= now) & (left > 0))
        if not ready.size:
            now = float(arrival[arrival > now].min())
            continue
        order = ready[np.lexsort((ready, left[ready]))] if "S" in code else ready
        served = order[:max_running]
        elapsed = (0.02 + 0.001 * served.size) * (0.95 if "P" in code else 1.0)
        first_scheduled[served] = np.where(np.isnan(first_scheduled[served]), now, first_scheduled[served])
        h = TARGET_NATS + (0.0 if "T" in code else 0.8) + 0.3 * np.sin(step / 9.0)
        rows.append((step, now, elapsed, served.size, ready.size - served.size, h, 0.7 if "T" in code else 1.0))
        tokens += [(step, "measure", int(r), int(output[r] - left[r]), h) for r in served]
        now += elapsed
        left[served] -= 1
        first[served] = np.where(np.isnan(first[served]), now, first[served])
        finished[served[left[served] == 0]] = now
        step += 1
    names = ("step", "start_s", "elapsed_s", "num_running", "num_waiting", "entropy_mean_nats", "temperature_mean")
    steps = pl.DataFrame(rows, schema=list(names), orient="row").with_columns(
        num_decode=pl.col("num_running"),
        num_preempted=pl.lit(0),
        flops=pl.col("num_running") * 1.6e10,
        kv_bytes_dense=pl.col("num_running") * 1e8,
        kv_bytes_read=pl.col("num_running") * 1e8 * (0.6 if "P" in code else 1.0),
        energy_j=pl.col("elapsed_s") * 400.0,
        kv_blocks_used=pl.col("num_running") * 20,
        kv_blocks_free=20 * max_running - pl.col("num_running") * 20,
    )
    requests = pl.DataFrame(
        {
            "request_id": np.arange(num_requests),
            "kind": ["any"] * num_requests,
            "prompt_tokens": rng.integers(10, 500, num_requests),
            "output_tokens": output,
            "arrival_s": arrival,
            "first_scheduled_s": first_scheduled,
            "first_token_s": first,
            "finished_s": finished,
            "num_preempted": np.zeros(num_requests, dtype=np.int64),
            "status": ["completed"] * num_requests,
            "nll_raw_nats": output * (1.9 + (0.02 if "P" in code else 0.0) - (0.3 if "T" in code else 0.0)),
            "tau_nats": tau,
            "net_drop_nats": tau - 4.0,
            "total_variation_nats": tau + 4.0,
            "entropy_error_nats": error * (0.4 if "T" in code else 1.0),
            "dropped_mass_mean": np.full(num_requests, 0.01 if "P" in code else 0.0),
        }
    )
    sequences = pl.DataFrame(
        tokens, schema=["step", "point", "request_id", "token_index", "entropy_nats"], orient="row"
    )
    return {"requests": requests, "steps": steps, "sequences": sequences}


def write_leaf(path: Path, tables: dict, *, code: str, seed: int, **manifest: object) -> None:
    path.mkdir(parents=True)
    for name, frame in tables.items():
        frame.write_parquet(path / f"{name}.parquet")
    arm = {"scheduler": "S" in code, "temperature": "T" in code, "pruning": "P" in code}
    content = {"arm": arm, "seed": seed, "entropy_target_nats": TARGET_NATS, "tables": {}, **manifest}
    (path / "manifest.json").write_text(json.dumps(content), encoding="utf-8")


def write_run(
    run: Path,
    loads: tuple[float, ...] = (0.5, 1.1),
    seeds: tuple[int, ...] = (0, 1, 2),
    live: bool = True,
    num_requests: int = 48,
    scenario: str = "toy server",
) -> Path:
    """A whole run: simulated cells by load and memory, and a live one, eight arms each."""
    run.mkdir(parents=True, exist_ok=True)
    for code in ARM_CODES:
        for load in loads:
            for memory, slots in (("ample", 40), ("tight", 4)):
                for seed in seeds:
                    # Four slots give 40 steps a second, 4 tokens each, 20 tokens an answer: 8 requests a second.
                    tables = fake_tables(code, seed, num_requests, gap_s=1.0 / (8.0 * load), max_running=slots)
                    leaf = run / "sim" / f"load{load:g}-{memory}" / code / f"seed{seed}"
                    write_leaf(
                        leaf,
                        tables,
                        code=code,
                        seed=seed,
                        plant="sim",
                        load_frac=load,
                        memory=memory,
                        scenario=scenario,
                    )
        if live:
            tables = fake_tables(code, 9, num_requests, gap_s=0.4)
            leaf = run / "live" / code / "seed9"
            write_leaf(leaf, tables, code=code, seed=9, plant="live", scenario=scenario)
    (run / "manifest.json").write_text(json.dumps({"scenario": scenario, "seeds": list(seeds)}), encoding="utf-8")
    return run
