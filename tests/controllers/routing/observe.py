"""Route observations from traces, for tests."""

import numpy as np

from workbench.protocols import RouteObservation


def observe(traces, num_tokens=None, active=None, surprisal=None, request_id=None):
    traces = np.atleast_2d(np.asarray(traces, dtype=np.float64))
    rows = len(traces)
    return RouteObservation(
        step=0,
        active=np.ones(rows, dtype=bool) if active is None else np.asarray(active),
        joined=np.ones(rows, dtype=bool),
        request_id=np.arange(rows) if request_id is None else np.asarray(request_id),
        measured=np.ones(rows, dtype=bool),
        measured_step=np.zeros(rows, dtype=np.int64),
        num_probe_tokens=np.full(rows, traces.shape[1]) if num_tokens is None else np.asarray(num_tokens),
        probe_entropy_nats=traces,
        probe_surprisal_raw_nats=surprisal,
    )
