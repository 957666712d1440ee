"""What the server delivered: throughput, goodput, completed share, queue, preemptions.

throughput = output tokens of completed requests / (end - first arrival)
goodput    = completed requests inside the SLO / (end - first arrival)
goodput share = completed requests inside the SLO / all that arrived; a refusal is a miss
"""

import numpy as np

from workbench.metrics.figure import Undefined, Value, defined, mean, ratio
from workbench.metrics.latency import tpot_s, ttft_s
from workbench.metrics.records import Records
from workbench.signals import BoolArray, FloatArray

NO_TIME = "no time passed in the record"
NO_REQUESTS = "no request arrived"
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


def refused_frac(records: Records) -> Value:
    return ratio(float(records.refused.sum()), records.num_requests, NO_REQUESTS)


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
