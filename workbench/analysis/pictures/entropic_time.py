"""What entropic time rewards: traces with equal progress and very different tau, and simulated texts under several laws."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from matplotlib.figure import Figure

from workbench.analysis.figures import BLUE, GREEN, GREY, ORANGE
from workbench.arm import run_arm
from workbench.scenario import parse_scenario
from workbench.signals import FloatArray, entropic_time


def traces(length: int = 128, seed: int = 0) -> dict[str, FloatArray]:
    """Four entropy traces (nats) from about 3: a steady fall, noise about a level, a square wave, a fall under noise."""
    rng = np.random.default_rng(seed)
    k = np.arange(length)
    fall = np.linspace(3.0, 1.0, length)
    noise = 0.6 * rng.normal(size=length)
    return {
        "steady fall": fall,
        "white noise": np.maximum(2.0 + noise, 0.0),
        "oscillation": 2.0 + 0.8 * np.where(k // 4 % 2 == 0, 1.0, -1.0),
        "fall + noise": np.maximum(fall + noise, 0.0),
    }


def ledger(named: dict[str, FloatArray]) -> pl.DataFrame:
    """tau, net drop and total variation of each trace; tau = (net drop + TV)/2 by the certificate tau-identity."""
    found = {name: entropic_time(trace) for name, trace in named.items()}
    return pl.DataFrame(
        {
            "trace": list(found),
            "tau (nats)": [round(t.tau_nats, 2) for t in found.values()],
            "net drop (nats)": [round(t.net_drop_nats, 2) for t in found.values()],
            "total variation (nats)": [round(t.total_variation_nats, 2) for t in found.values()],
            "net drop / tau": [round(t.net_drop_nats / t.tau_nats, 3) if t.tau_nats else None for t in found.values()],
        }
    )


def trace_picture(named: dict[str, FloatArray]) -> Figure:
    """The traces, and how tau grows along each."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.4), layout="constrained")
    for colour, (name, trace) in zip((BLUE, GREY, ORANGE, GREEN), named.items(), strict=True):
        left.plot(trace, color=colour, lw=1, label=name)
        right.plot([entropic_time(trace[: k + 1]).tau_nats for k in range(trace.size)], color=colour, label=name)
    left.set(xlabel="token", ylabel="H_raw (nats)", title="four entropy traces")
    right.set(xlabel="token", ylabel="tau (nats)", title="what entropic time makes of them")
    for panel in (left, right):
        panel.spines[["top", "right"]].set_visible(False)
    right.legend(frameon=False, fontsize=8)
    return figure


def noise_law(correlations: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 0.9), length: int = 20_000) -> pl.DataFrame:
    """tau per token of a stationary AR(1) entropy of unit deviation, beside sqrt((1 - phi)/pi): no progress at all."""
    rng = np.random.default_rng(1)
    rows = []
    for phi in correlations:
        x = np.zeros(length)
        for k in range(1, length):
            x[k] = phi * x[k - 1] + np.sqrt(1.0 - phi * phi) * rng.normal()
        found = entropic_time(x)
        rows.append((phi, round(found.tau_nats / length, 4), round(float(np.sqrt((1 - phi) / np.pi)), 4)))
    return pl.DataFrame(rows, schema=["lag-1 correlation", "tau per token", "closed form"], orient="row")


LAWS = {
    "T = 0.3": {"kind": "fixed", "temperature": 0.3},
    "T = 0.7": {"kind": "fixed", "temperature": 0.7},
    "T = 1": {"kind": "fixed", "temperature": 1.0},
    "T = 1.3": {"kind": "fixed", "temperature": 1.3},
    "PI, H* = 1.5": {"kind": "pi", "target_entropy_nats": 1.5},
}


def simulated_ledger(directory: Path, num_requests: int = 40) -> pl.DataFrame:
    """Per law: mean tau, net drop, TV per token of simulated texts (raw entropy), and NLL per token at T = 1."""
    rows = []
    for index, (name, law) in enumerate(LAWS.items()):
        plan = parse_scenario(
            {
                "name": "tau",
                "plant": "sim",
                "level": "summary",
                "workload": {"num_requests": num_requests, "max_tokens": 96},
                "controllers": {"temperature": law},
            }
        )
        run = run_arm(plan, 0, directory / f"arm{index}")
        table = pl.read_parquet(run / "requests.parquet").filter(pl.col("output_tokens") > 1)
        tokens = float(table["output_tokens"].sum())
        rows.append(
            {
                "law": name,
                "tau / token": round(float(table["tau_nats"].sum()) / tokens, 3),
                "net drop / token": round(float(table["net_drop_nats"].sum()) / tokens, 4),
                "TV / token": round(float(table["total_variation_nats"].sum()) / tokens, 3),
                "NLL / token": round(float(table["nll_raw_nats"].sum()) / tokens, 3),
            }
        )
    return pl.DataFrame(rows)
