"""What the server delivered: throughput, goodput, completed share, queue, preemptions.

throughput = output tokens of completed requests / (end - first arrival)
goodput    = completed requests inside the SLO / (end - first arrival)
goodput share = completed requests inside the SLO / all that arrived; a refusal, a timeout, a cancellation is a miss
prefix hit share = prompt tokens found in the KV memory at first admission / all prompt tokens
recomputed share = KV tokens lost to preemption or failure and computed again / tokens computed
busy share = time in steps / (end - first arrival), by replica
"""

from collections.abc import Callable

import numpy as np

from workbench.metrics.figure import Undefined, Value, defined, mean, ratio
from workbench.metrics.latency import tpot_s, ttft_s
from workbench.metrics.records import Records
from workbench.signals import BoolArray, FloatArray

NO_TIME = "no time passed in the record"
NO_REQUESTS = "no request arrived"
ONE_REPLICA = "there is one replica"
NO_DIFFUSION = "no masked-diffusion request was completed"
NO_STEPS = "no engine step in the record"


def inside_slo(records: Records) -> BoolArray:
    """[num_requests] completed with TTFT and TPOT inside the SLO. A one-token answer has no TPOT to miss."""
    tpot = tpot_s(records)
    fast = np.isnan(tpot) | (tpot <= records.slo.tpot_s)
    with np.errstate(invalid="ignore"):
        return records.completed & (ttft_s(records) <= records.slo.ttft_s) & fast


def output_tokens_per_s(records: Records) -> Value:
    tokens = float(np.nansum(records.served.request("output_tokens")))
    return ratio(tokens, records.end_s - records.start_s, NO_TIME)


def offered_per_s(records: Records) -> Value:
    """Arrivals a second, over the time between the first and the last."""
    arrival = records.request("arrival_s")
    span = float(arrival.max() - arrival.min()) if arrival.size > 1 else 0.0
    return ratio(records.num_requests - 1.0, span, "all requests arrived at once")


def requests_per_s(records: Records) -> Value:
    return ratio(float(records.served.num_requests), records.end_s - records.start_s, NO_TIME)


def goodput_per_s(records: Records) -> Value:
    return ratio(float(inside_slo(records.served).sum()), records.end_s - records.start_s, NO_TIME)


def goodput_frac(records: Records) -> Value:
    return ratio(float(inside_slo(records).sum()), records.num_requests, NO_REQUESTS)


def completed_frac(records: Records) -> Value:
    return ratio(float(records.completed.sum()), records.num_requests, NO_REQUESTS)


def accuracy_frac(records: Records) -> Value:
    """Share of all that arrived whose answer was right, where the record knows; what was not finished is wrong."""
    right = records.request("correct")
    if np.isnan(right).all():
        return Undefined("no outcome recorded")
    return ratio(float(np.nansum(right)), records.num_requests, NO_REQUESTS)


def passes_per_request(records: Records) -> Value:
    """Forward passes a completed masked-diffusion request took; those of the other kind have none."""
    return mean(_passes(records), NO_DIFFUSION)


def positions_per_pass(records: Records) -> Value:
    """Positions revealed a pass, over all passes of completed masked-diffusion requests."""
    passes = records.served.request("passes")
    diffuses = np.nan_to_num(passes) > 0.0
    revealed = records.served.request("output_tokens")[diffuses]
    return ratio(float(np.nansum(revealed)), float(passes[diffuses].sum()), NO_DIFFUSION)


def _passes(records: Records) -> FloatArray:
    passes = records.served.request("passes")
    return passes[np.nan_to_num(passes) > 0.0]


def refused_frac(records: Records) -> Value:
    return ratio(float(records.refused.sum()), records.num_requests, NO_REQUESTS)


def timed_out_frac(records: Records) -> Value:
    return ratio(float(records.request("timed_out").sum()), records.num_requests, NO_REQUESTS)


def cancelled_frac(records: Records) -> Value:
    return ratio(float(records.request("cancelled").sum()), records.num_requests, NO_REQUESTS)


def wasted_tokens_frac(records: Records) -> Value:
    """Share of generated tokens that went to requests which were given up."""
    tokens = np.nan_to_num(records.request("output_tokens"))
    given_up = (records.request("timed_out") + records.request("cancelled")) > 0.0
    return ratio(float(tokens[given_up].sum()), float(tokens.sum()), "no token was generated")


def prefix_hit_frac(records: Records) -> Value:
    hit, prompt = records.request("prefix_hit_tokens"), records.request("prompt_tokens")
    seen = ~np.isnan(records.request("first_scheduled_s"))
    return ratio(float(hit[seen].sum()), float(prompt[seen].sum()), "prefix hits are not in the record")


def recomputed_frac(records: Records) -> Value:
    return ratio(
        float(records.request("recomputed_tokens").sum()), float(np.nansum(records.step("num_tokens"))),
        "recomputed tokens are not in the record",
    )  # fmt: skip


def swaps_per_request(records: Records) -> Value:
    return mean(records.request("num_swapped"), "swaps are not in the record")


def retries_per_request(records: Records) -> Value:
    return mean(records.request("num_retried"), "retries are not in the record")


def outside_table_frac(records: Records) -> Value:
    """Share of steps with more tokens than the step cost was made for: their times are extrapolated."""
    tokens, limit = records.step("num_tokens"), records.step_cost_max_tokens
    if np.isnan(limit):
        return Undefined("step times are measured, or their cost has no table")
    return ratio(float(np.count_nonzero(tokens > limit)), tokens.size, NO_STEPS)


def busy_frac(records: Records) -> Value:
    """Mean over replicas."""
    return _busy(records, np.mean)


def busy_least_frac(records: Records) -> Value:
    return _busy(records, np.min) if records.num_replicas > 1 else Undefined(ONE_REPLICA)


def busy_most_frac(records: Records) -> Value:
    return _busy(records, np.max) if records.num_replicas > 1 else Undefined(ONE_REPLICA)


def busy_s(records: Records) -> FloatArray:
    """[num_replicas] seconds in steps."""
    replica = np.nan_to_num(records.step("replica")).astype(np.int64)
    return np.bincount(replica, weights=np.nan_to_num(records.step("elapsed_s")), minlength=records.num_replicas)


def _busy(records: Records, over: Callable[[FloatArray], float]) -> Value:
    return ratio(float(over(busy_s(records))), records.end_s - records.start_s, NO_TIME)


def preemptions_per_request(records: Records) -> Value:
    return mean(records.request("num_preempted"), "preemptions are not in the record")


def waiting_mean(records: Records) -> Value:
    """Requests waiting, averaged over the time the engine was busy."""
    return _over_busy_time(records, _queue(records))


def waiting_share(records: Records) -> Value:
    """Share of busy time in which at least one request waited. Zero: every order serves alike."""
    waiting = _queue(records)
    return _over_busy_time(records, np.where(np.isnan(waiting), np.nan, waiting > 0))


def running_mean(records: Records) -> Value:
    return _over_busy_time(records, records.step("num_running"))


def kv_used_peak_frac(records: Records) -> Value:
    used, free = records.step("kv_blocks_used"), records.step("kv_blocks_free")
    with np.errstate(invalid="ignore", divide="ignore"):
        share = used / (used + free)
    share = share[np.isfinite(share)]
    return defined(float(share.max())) if share.size else Undefined("KV occupancy is not in the record")


def _queue(records: Records) -> FloatArray:
    """Requests that have arrived and hold no KV: those with a slot, and the backlog without one."""
    return records.step("num_waiting") + np.nan_to_num(records.step("num_backlog"))


def _over_busy_time(records: Records, values: FloatArray) -> Value:
    elapsed = records.step("elapsed_s")
    known = ~np.isnan(values) & ~np.isnan(elapsed)
    return ratio(float((values[known] * elapsed[known]).sum()), float(elapsed[known].sum()), NO_STEPS)
