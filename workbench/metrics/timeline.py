"""Step columns over time, thinned to a drawable number of points: entropy, temperature, queue, KV occupancy.

A point is the mean over one equal span of time, weighted by the time each step took (by the tokens it drew, for entropy
and temperature); a span without a step is None, which draws as a gap.
"""

from collections.abc import Mapping

import numpy as np

from workbench.metrics.records import Records
from workbench.signals import FloatArray

Series = list[float | None]


def timeline(records: Records, points: int = 160) -> Mapping[str, Series]:
    """`time_s` since the first arrival, then each series."""
    began, elapsed = records.step("start_s"), records.step("elapsed_s")
    known = ~np.isnan(began) & ~np.isnan(elapsed)
    if not known.any():
        return {"time_s": []}
    span = max(records.end_s - records.start_s, 1e-12)
    points = max(1, min(points, int(known.sum())))
    place = np.clip(((began[known] - records.start_s) / span * points).astype(np.int64), 0, points - 1)
    tokens = records.step("num_sampled" if "num_sampled" in records.steps else "num_decode")[known]
    used, free = records.step("kv_blocks_used")[known], records.step("kv_blocks_free")[known]
    with np.errstate(invalid="ignore", divide="ignore"):
        occupancy = used / (used + free)
    waiting = records.step("num_waiting")[known] + np.nan_to_num(records.step("num_backlog")[known])
    by_time, by_token = elapsed[known], np.nan_to_num(tokens)
    return {
        "time_s": [(k + 0.5) * span / points for k in range(points)],
        "entropy_nats": _binned(records.step("entropy_mean_nats")[known], by_token, place, points),
        "temperature": _binned(records.step("temperature_mean")[known], by_token, place, points),
        "waiting": _binned(waiting, by_time, place, points),
        "running": _binned(records.step("num_running")[known], by_time, place, points),
        "kv_used_frac": _binned(occupancy, by_time, place, points),
    }


def _binned(values: FloatArray, weight: FloatArray, place: np.ndarray, points: int) -> Series:
    known = ~np.isnan(values) & (weight > 0)
    total = np.bincount(place[known], weights=weight[known], minlength=points)
    summed = np.bincount(place[known], weights=values[known] * weight[known], minlength=points)
    return [float(s / w) if w > 0 else None for s, w in zip(summed, total, strict=True)]
