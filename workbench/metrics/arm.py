"""One arm's figures from its records, one record per seed; and the code that names an arm.

An arm switches three controllers on or off; its code is the letters of those that are on, "-" when none is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from workbench.metrics.figure import Figure, Undefined
from workbench.metrics.interval import MIN_SEEDS, interval, num_batches
from workbench.metrics.records import Records
from workbench.metrics.table import METRICS
from workbench.signals import FloatArray

CONTROLLERS: dict[str, str] = {"S": "scheduler", "T": "temperature", "P": "pruning"}
BASELINE = "-"
ARM_CODES: tuple[str, ...] = (BASELINE, "S", "T", "P", "ST", "SP", "TP", "STP")


def arm_code(arm: Mapping[str, Any]) -> str:
    """Code of `{"scheduler": bool, "temperature": bool, "pruning": bool}`; a missing switch is off."""
    return "".join(letter for letter, name in CONTROLLERS.items() if arm.get(name) is True) or BASELINE


def arm_label(code: str) -> str:
    if code == BASELINE:
        return "none"
    return "all three" if len(code) == len(CONTROLLERS) else " + ".join(CONTROLLERS[letter] for letter in code)


@dataclass(frozen=True)
class ArmSample:
    """Values of every metric: per seed, and per batch within each seed. NaN where undefined, with one reason each."""

    seeds: tuple[int, ...]
    seed_values: FloatArray  # [seeds, metrics]
    batch_values: FloatArray  # [seeds, batches, metrics]
    reasons: tuple[str | None, ...]  # [metrics]
    counts: Mapping[str, int]

    def figure(self, index: int) -> Figure:
        """`Figure` of metric `index` (its row in METRICS)."""
        found = interval(self.seed_values[:, index], self.batch_values[:, :, index], self.reasons[index])
        metric = METRICS[index]
        q = metric.tail_q
        completed = self.counts["completed"] // max(len(self.seeds), 1)
        if found.value is not None and q is not None and completed * (1.0 - q) < 1.0:
            remark = f"{completed} completed requests cannot resolve p{100 * q:.0f}: it is near their largest"
            remark = "a maximum has no interval" if q == 1.0 else remark
            return Figure(found.value, method="", num_replicates=found.num_replicates, reason=remark)
        if found.low is None or found.high is None:
            return found
        # Cut to what the figure can be: coverage stays, and no reader meets a negative waiting time.
        low = found.low if metric.least is None else max(found.low, metric.least)
        high = found.high if metric.most is None else min(found.high, metric.most)
        return replace(found, low=low, high=high)


def sample_arm(runs: Mapping[int, Records]) -> ArmSample:
    """Evaluate every metric on the records of one arm, keyed by seed."""
    seeds = tuple(sorted(runs))
    reasons: list[str | None] = [None] * len(METRICS)
    # Enough seeds give their own interval; batches within a run are for fewer.
    few = len(seeds) < MIN_SEEDS
    batches = min((num_batches(runs[seed].num_requests) for seed in seeds), default=0) if few else 0
    seed_values = np.full((len(seeds), len(METRICS)), np.nan)
    batch_values = np.full((len(seeds), batches, len(METRICS)), np.nan)
    for k, seed in enumerate(seeds):
        seed_values[k] = _evaluate(runs[seed], reasons)
        for b, part in enumerate(runs[seed].batches(batches) if batches else ()):
            batch_values[k, b] = _evaluate(part, None)
        for m, metric in enumerate(METRICS):
            # A batch must hold the order statistic it estimates: p99 of five requests is their largest, biased low.
            if batches and metric.tail_q and runs[seed].num_requests / batches * (1.0 - metric.tail_q) < 1.0 - 1e-9:
                batch_values[k, :, m] = np.nan
    return ArmSample(seeds, seed_values, batch_values, tuple(reasons), _counts([runs[seed] for seed in seeds]))


def _evaluate(records: Records, reasons: list[str | None] | None) -> FloatArray:
    row = np.full(len(METRICS), np.nan)
    for k, metric in enumerate(METRICS):
        value = metric.compute(records)
        if isinstance(value, Undefined):
            if reasons is not None:
                reasons[k] = value.reason
        else:
            row[k] = value
    return row


def _counts(runs: Sequence[Records]) -> dict[str, int]:
    def count(of: Any) -> int:
        return int(sum(of(run) for run in runs))

    return {
        "arrived": count(lambda run: run.num_requests),
        "completed": count(lambda run: run.completed.sum()),
        "refused": count(lambda run: run.refused.sum()),
        "timed_out": count(lambda run: run.request("timed_out").sum()),
        "cancelled": count(lambda run: run.request("cancelled").sum()),
        # Left out of TPOT percentiles because one token has no gap.
        "one_token": count(lambda run: (run.completed & (run.request("output_tokens") == 1)).sum()),
        "no_first_token": count(lambda run: (np.isnan(run.request("first_token_s")) & ~run.refused).sum()),
    }
