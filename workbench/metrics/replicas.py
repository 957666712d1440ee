"""What each replica of a fleet did: a row a replica, for reports and summaries."""

from dataclasses import dataclass

import numpy as np

from workbench.metrics.records import Records
from workbench.metrics.service import busy_s


@dataclass(frozen=True)
class ReplicaShare:
    """`busy_frac` time in steps over the run; requests and tokens of those it served last; hits of their prompts."""

    replica: int
    busy_frac: float | None
    num_requests: int
    output_tokens: int
    prefix_hit_frac: float | None


def replica_shares(records: Records) -> tuple[ReplicaShare, ...]:
    """Empty where there is one replica."""
    if records.num_replicas == 1:
        return ()
    span_s = records.end_s - records.start_s
    owner, busy = records.request("replica"), busy_s(records)
    rows = []
    for i in range(records.num_replicas):
        mine = owner == i
        prompt = float(np.nansum(records.request("prompt_tokens")[mine]))
        hit = float(np.nansum(records.request("prefix_hit_tokens")[mine]))
        rows.append(
            ReplicaShare(
                replica=i,
                busy_frac=float(busy[i]) / span_s if span_s > 0.0 else None,
                num_requests=int(mine.sum()),
                output_tokens=int(np.nansum(records.request("output_tokens")[mine])),
                prefix_hit_frac=hit / prompt if prompt > 0.0 else None,
            )
        )
    return tuple(rows)
