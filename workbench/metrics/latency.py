"""Latency of requests, in seconds. Percentiles are over completed requests and stand beside the completed share.

TTFT = first_token_s - arrival_s                                queueing and prefill
TPOT = (finished_s - first_token_s) / (output_tokens - 1)       null for a one-token answer
ITL  = gap between consecutive tokens of one request            where token times are in the record
end-to-end = finished_s - arrival_s
queue wait = first_scheduled_s - arrival_s
"""

import numpy as np

from workbench.metrics.figure import Undefined, Value, mean, quantile
from workbench.metrics.records import Records
from workbench.signals import FloatArray

NONE_COMPLETED = "no request completed"


def ttft_s(records: Records) -> FloatArray:
    """[num_requests], NaN for a request refused or cut before its first token."""
    ttft = records.request("first_token_s") - records.request("arrival_s")
    return np.where(records.refused, np.nan, ttft)


def tpot_s(records: Records) -> FloatArray:
    """[num_requests], NaN unless completed with at least two tokens."""
    gaps = records.request("output_tokens") - 1.0
    decode_s = records.request("finished_s") - records.request("first_token_s")
    countable = records.completed & (gaps >= 1.0)
    return np.where(countable, decode_s / np.where(gaps >= 1.0, gaps, 1.0), np.nan)


def e2e_s(records: Records) -> FloatArray:
    return np.where(records.completed, records.request("finished_s") - records.request("arrival_s"), np.nan)


def queue_wait_s(records: Records) -> FloatArray:
    return np.where(records.refused, np.nan, records.request("first_scheduled_s") - records.request("arrival_s"))


def ttft(records: Records, q: float | None) -> Value:
    return _summary(ttft_s(records), q, "no request reached its first token")


def tpot(records: Records, q: float | None) -> Value:
    reason = "every completed answer has one token" if records.completed.any() else NONE_COMPLETED
    return _summary(tpot_s(records), q, reason)


def e2e(records: Records, q: float | None) -> Value:
    return _summary(e2e_s(records), q, NONE_COMPLETED)


def queue_wait(records: Records, q: float | None) -> Value:
    return _summary(queue_wait_s(records), q, "no request was scheduled")


def itl(records: Records, q: float | None) -> Value:
    if records.itl_s is None:
        return Undefined("token times are not in the record")
    return _summary(records.itl_s, q, "no two consecutive tokens in the record")


def _summary(values: FloatArray, q: float | None, reason: str) -> Value:
    return mean(values, reason) if q is None else quantile(values, q, reason)
