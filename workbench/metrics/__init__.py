"""Metrics: pure functions of records. `run_figures(run)` for a run directory, `metrics_of(...)` for the frames of one arm.

Read figure.py (what a figure is), records.py (what is read), table.py (every metric), then interval.py and factorial.py.
"""

import polars as pl

from workbench.metrics.arm import ARM_CODES, BASELINE, CONTROLLERS, arm_code, arm_label, sample_arm
from workbench.metrics.figure import Figure, Undefined
from workbench.metrics.records import Records, Slo, records_of
from workbench.metrics.run import ArmFigures, CellFigures, RunFigures, figures_object, run_figures, summarise
from workbench.metrics.table import METRICS, NAMES, Metric

__all__ = [
    "ARM_CODES",
    "BASELINE",
    "CONTROLLERS",
    "METRICS",
    "ArmFigures",
    "CellFigures",
    "Figure",
    "Metric",
    "Records",
    "RunFigures",
    "Slo",
    "Undefined",
    "arm_code",
    "arm_label",
    "figures_object",
    "metrics_of",
    "records_of",
    "run_figures",
    "summarise",
]


def metrics_of(
    requests: pl.DataFrame, steps: pl.DataFrame, sequences: pl.DataFrame | None = None, slo: Slo | None = None
) -> tuple[dict[str, Figure], dict[str, int]]:
    """(figures by name, counts) of one arm run once. Intervals are batch means within the run."""
    sample = sample_arm({0: records_of(requests, steps, sequences, slo)})
    return {name: sample.figure(k) for k, name in enumerate(NAMES)}, dict(sample.counts)
