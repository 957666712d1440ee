"""Waiting under entropy scheduling: the exact small cases, and an overloaded simulated server with several orders."""

from fractions import Fraction
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from matplotlib.figure import Figure

from workbench.analysis.certificates.scheduler import INSTANCES, STARVING, run_schedule, wait_bound, worst_wait
from workbench.analysis.figures import BLUE, GREEN, GREY, ORANGE
from workbench.arm import run_arm
from workbench.scenario import parse_scenario
from workbench.signals import FloatArray

COLOURS = (GREY, ORANGE, BLUE, GREEN, "#a2387d")
ARMS = {
    "fcfs": {"kind": "fcfs"},
    "ratio, no aging": {"kind": "entropy-aging", "aging_nats_per_s": 0.0},
    "ratio, aging 100": {"kind": "entropy-aging", "aging_nats_per_s": 100.0},
    "ratio, aging 2000": {"kind": "entropy-aging", "aging_nats_per_s": 2000.0},
    "SRPT, true lengths": {"kind": "srpt-oracle"},
}


def wait_against_aging(alphas: tuple[str, ...] = ("1/20", "1/10", "1/5", "1/2", "1", "2")) -> tuple[Figure, int]:
    """Steps until a cold request (score 0) is served beside hot ones (score 2), and the bound; at alpha = 0 the number
    of steps it was watched without being served."""
    waits = [
        next(i for i, step in enumerate(run_schedule({**STARVING["no aging"], "alpha": a}, 200)) if step.cold_served)
        for a in alphas
    ]
    bounds = [wait_bound(3, 2, Fraction(2) / Fraction(a)) for a in alphas]
    watched = 20_000
    never = watched if not any(s.cold_served for s in run_schedule(STARVING["no aging"], watched)) else 0
    x = [float(Fraction(a)) for a in alphas]
    figure, axes = plt.subplots(figsize=(5.2, 3.4), layout="constrained")
    axes.spines[["top", "right"]].set_visible(False)
    axes.loglog(x, bounds, "o--", color=GREY, label="bound: ⌈P/α⌉ + ⌈(N-1)/B⌉ + 1")
    axes.loglog(x, waits, "o-", color=BLUE, label="the cold request waits")
    axes.set(xlabel="aging α (nats/s per step)", ylabel="steps", title="P = 2, two hot requests a step, B = 2")
    axes.legend(frameon=False)
    return figure, never


def worst_waits() -> pl.DataFrame:
    """Exhausted worst wait and bound, "worst of bound", for N ready, B served (rows) and P/alpha (columns)."""
    cells: dict[tuple[int, int], dict[str, str]] = {}
    for n, b, text in INSTANCES:
        bound = wait_bound(n, b, Fraction(text))
        cells.setdefault((n, b), {})[text] = f"{worst_wait(n, b, Fraction(text), bound + 5)} of {bound}"
    columns = ("0", "1/2", "1", "2")
    rows = [{"N": n, "B": b, **{f"P/α = {c}": row.get(c, "") for c in columns}} for (n, b), row in cells.items()]
    return pl.DataFrame(rows)


def overload_runs(directory: Path, num_requests: int = 120, rate_per_s: float = 12.0) -> dict[str, Path]:
    """One simulated server with 16 places and more work than it can do, once per order; the same requests each time."""
    runs = {}
    for index, (name, law) in enumerate(ARMS.items()):
        plan = parse_scenario(
            {
                "name": "fairness",
                "plant": "sim",
                "level": "full",
                "workload": {"num_requests": num_requests, "rate_per_s": rate_per_s},
                "engine": {"max_running": 16},
                "controllers": {"order": law},
            }
        )
        runs[name] = run_arm(plan, 0, directory / f"arm{index}")
    return runs


def longest_waits(run: Path) -> FloatArray:
    """Longest run of order decisions in which each request was ready and not served."""
    table = (
        pl.read_parquet(run / "sequences.parquet")
        .filter(pl.col("point") == "order")
        .select("step", "obs_request_id", "obs_served", "obs_joined")
        .sort("obs_request_id", "step")
    )
    request, served, joined = (table[c].to_numpy() for c in ("obs_request_id", "obs_served", "obs_joined"))
    longest = np.zeros(int(request.max()) + 1)
    streak, last = 0, -1
    for r, was_served, new in zip(request, served, joined, strict=True):
        streak = 0 if r != last or was_served or new else streak + 1
        longest[r], last = max(longest[r], streak), r
    return longest


def fairness(runs: dict[str, Path]) -> tuple[Figure, pl.DataFrame]:
    """Distribution of the longest wait in steps and of slowdown (time in system per output token)."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.5), layout="constrained")
    rows = []
    for colour, (name, run) in zip(COLOURS, runs.items(), strict=False):
        requests = pl.read_parquet(run / "requests.parquet").filter(pl.col("status") == "completed")
        waits = longest_waits(run)
        total_s = (requests["finished_s"] - requests["arrival_s"]).to_numpy()
        first_s = (requests["first_token_s"] - requests["arrival_s"]).to_numpy()
        slowdown = np.sort(total_s / requests["output_tokens"].to_numpy())
        share = np.linspace(0.0, 1.0, waits.size)
        left.plot(np.sort(waits), share, color=colour, label=name)
        right.semilogx(slowdown * 1e3, np.linspace(0.0, 1.0, slowdown.size), color=colour, label=name)
        rows.append(
            {
                "order": name,
                "longest wait (steps)": int(waits.max()),
                "TTFT mean (s)": round(float(first_s.mean()), 2),
                "time in system mean (s)": round(float(total_s.mean()), 2),
                "worst (s)": round(float(total_s.max()), 1),
                "tokens/s": round(float(requests["output_tokens"].sum() / requests["finished_s"].max()), 1),
            }
        )
    left.set(xlabel="longest wait of a request (steps)", ylabel="share of requests", xscale="symlog")
    right.set(xlabel="time in system per output token (ms)", ylabel="share of requests")
    for panel in (left, right):
        panel.spines[["top", "right"]].set_visible(False)
    right.legend(frameon=False, fontsize=8)
    return figure, pl.DataFrame(rows)
