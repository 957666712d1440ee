"""Deadlines: when a request is given up, by the engine's timeouts or because its client goes away.

    end     min(arrival + timeout, cancellation)     the last token must be out by then
    first   arrival + TTFT timeout                   the first token must be out by then

A token exactly at a deadline is in time.
"""

from dataclasses import dataclass

import numpy as np

from workbench.engine.config import EngineConfig
from workbench.engine.requests import RequestSpec, RequestStatus
from workbench.signals import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Patience:
    """All [num_requests], seconds of the plant's clock."""

    end_s: FloatArray
    first_s: FloatArray
    cancel_s: FloatArray

    def gone(self, request_id: IntArray, now_s: float, first_token_s: FloatArray) -> BoolArray:
        """Which of these requests, not ended yet, are not waited for any more."""
        return (now_s >= self.end_s[request_id]) | self._no_first(request_id, now_s, first_token_s)

    def late(self, request: int, now_s: float, first_token_s: FloatArray) -> bool:
        """Whether an end at `now_s` comes after a deadline."""
        return bool(now_s > self.end_s[request] or first_token_s[request] > self.first_s[request])

    def status(self, request: int, now_s: float, first_token_s: FloatArray) -> RequestStatus:
        """Why it was given up: the earliest deadline that was missed; of equal ones the client's."""
        missed_first = bool(self._no_first(np.array([request]), now_s, first_token_s)[0])
        first_s = float(self.first_s[request]) if missed_first else np.inf
        cancelled = self.cancel_s[request] <= min(float(self.end_s[request]), first_s)
        return RequestStatus.CANCELLED if cancelled and now_s >= self.cancel_s[request] else RequestStatus.TIMED_OUT

    def _no_first(self, request_id: IntArray, now_s: float, first_token_s: FloatArray) -> BoolArray:
        first, limit = first_token_s[request_id], self.first_s[request_id]
        return (first > limit) | (np.isnan(first) & (now_s >= limit))


def patience_of(requests: RequestSpec, config: EngineConfig) -> Patience | None:
    """None where every request is waited for as long as it takes."""
    if requests.cancel_s is None and np.isinf(config.timeout_s) and np.isinf(config.ttft_timeout_s):
        return None
    cancel_s = np.full(len(requests), np.inf) if requests.cancel_s is None else requests.cancel_s
    return Patience(
        end_s=np.minimum(requests.arrival_s + config.timeout_s, cancel_s),
        first_s=requests.arrival_s + config.ttft_timeout_s,
        cancel_s=cancel_s,
    )
