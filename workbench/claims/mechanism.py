"""What holds an engine back, read from the simulator's own accounting, and through what an arm's effect came about.

Shares of the time in steps, at the rates of the step cost (`sims.roofline`): reading weights, reading KV, computing. Shares of a
request's life: waiting before its first admission. And how full the KV memory got, how often a request was preempted.
"""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from sims.gpus import gpu_named
from sims.models import ModelShape, model_named
from sims.roofline import roofline_step_cost
from sims.step_cost import StepCost
from workbench.claims.paired import value_of
from workbench.metrics.records import Records

HELD_BY = (
    "queue_share", "kv_peak_frac", "preemptions", "weights_share", "kv_share", "compute_share", "running_frac",
)  # fmt: skip
QUEUED, FULL = 0.5, 0.95  # beyond these a baseline is held by its queue, and its memory is full


@lru_cache(maxsize=32)
def step_cost(gpu: str, model: str) -> StepCost:
    shape: ModelShape = model_named(model)
    return roofline_step_cost(gpu_named(gpu), shape, max_tokens=64, max_rows=64, num_gpus=shape.num_gpus)


def held_by_shares(records: Records, gpu: str, model: str, max_running: int = 128) -> dict[str, float]:
    """One value for each name of HELD_BY."""
    cost = step_cost(gpu, model)
    elapsed = float(np.nansum(records.step("elapsed_s")))
    steps = float(np.count_nonzero(~np.isnan(records.step("elapsed_s"))))
    read = float(np.nansum(records.step("kv_bytes_read"))) / cost.kv_bytes_per_token * cost.kv_s_per_token
    return {
        "queue_share": value_of(records, "queue_wait_mean_s") / value_of(records, "e2e_mean_s"),
        "kv_peak_frac": value_of(records, "kv_used_peak_frac"),
        "preemptions": value_of(records, "preemptions_per_request"),
        "weights_share": steps * cost.weight_bytes / cost.bytes_per_s / elapsed,
        "kv_share": read / elapsed,
        "compute_share": float(np.nansum(records.step("flops"))) / cost.flop_per_s / elapsed,
        "running_frac": value_of(records, "running_mean") / max_running,
    }


def held_by(shares: Mapping[str, float]) -> str:
    """What the baseline waits for, in words."""
    if shares["queue_share"] > QUEUED:
        if shares["kv_peak_frac"] > FULL:
            return "admission: KV blocks"
        return "admission: batch slots" if shares["running_frac"] > 0.8 else "queueing"
    largest = max(("weights_share", "kv_share", "compute_share"), key=lambda name: shares[name])
    return {
        "weights_share": "memory-bound: weights",
        "kv_share": "memory-bound: KV",
        "compute_share": "compute-bound: prefill",
    }[largest]
