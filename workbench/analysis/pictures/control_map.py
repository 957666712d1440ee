"""A sweep read as a map: where one setting beats another, cell by cell, with what the seeds can tell apart.

Of a table that `workbench sweep` wrote: for every cell of two axes, the relative change of a figure between a choice and its
baseline, as the geometric mean of the ratios at equal seeds, with a 95 % interval of the mean logarithm (Student's t). A cell
whose interval holds no change is left grey.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from matplotlib.figure import Figure
from scipy.stats import t as student

from workbench.errors import InputError
from workbench.signals import BoolArray, FloatArray


@dataclass(frozen=True)
class ControlMap:
    """change, half_width [rows, columns]: relative change of the figure, and half the interval of ln(1 + change). NaN where
    a cell is missing; half_width inf with one seed."""

    choice: str
    baseline: str
    figure: str
    row_axis: str
    column_axis: str
    rows: Sequence[float]
    columns: Sequence[float]
    change: FloatArray
    half_width: FloatArray

    @property
    def resolved(self) -> BoolArray:
        return np.abs(np.log1p(self.change)) > self.half_width


def control_map(
    table: pl.DataFrame, *, of: str, choice: str, baseline: str, rows: str, columns: str, figure: str
) -> ControlMap:
    """`of`: the swept key whose values `choice` and `baseline` are compared. Raises `InputError` for a missing column."""
    for name in (of, rows, columns, figure, "seed"):
        if name not in table.columns:
            raise InputError(f"the sweep has no column {name!r}; it has {', '.join(table.columns[:12])}, ..")
    keys = [rows, columns, "seed"]
    pairs = table.filter(pl.col(of) == choice).join(table.filter(pl.col(of) == baseline), on=keys, suffix="_base")
    pairs = pairs.with_columns((pl.col(figure) / pl.col(f"{figure}_base")).log().alias("change"))
    levels = [sorted(table[axis].unique().to_list()) for axis in (rows, columns)]
    change, half = np.full((2, len(levels[0]), len(levels[1])), np.nan)
    for i, row in enumerate(levels[0]):
        for j, column in enumerate(levels[1]):
            found = pairs.filter((pl.col(rows) == row) & (pl.col(columns) == column))["change"].drop_nulls().to_numpy()
            if found.size:
                change[i, j] = np.expm1(found.mean())
                spread = found.std(ddof=1) / np.sqrt(found.size) if found.size > 1 else np.inf
                half[i, j] = student.ppf(0.975, found.size - 1) * spread if found.size > 1 else np.inf
    return ControlMap(choice, baseline, figure, rows, columns, *levels, change, half)


def draw_maps(maps: Sequence[ControlMap], *, better: str = "lower") -> Figure:
    """Maps side by side, one colour scale; blue is better. Each cell says its change, grey where seeds cannot tell."""
    picture, axes = plt.subplots(1, len(maps), figsize=(4.2 * len(maps), 3.2), squeeze=False, constrained_layout=True)
    known = np.concatenate([m.change[np.isfinite(m.change)] for m in maps])
    limit = min(max(float(np.abs(known).max()) if known.size else 0.0, 0.01), 0.5)  # colours end at half again
    for axis, found in zip(axes[0], maps, strict=True):
        shown = np.where(found.resolved, found.change, np.nan)
        axis.set_facecolor("0.88")
        axis.imshow(shown, cmap="RdBu_r" if better == "lower" else "RdBu", vmin=-limit, vmax=limit, aspect="auto")
        for (i, j), value in np.ndenumerate(found.change):
            if np.isfinite(value):
                dark = abs(value) > 0.6 * limit and found.resolved[i, j]
                axis.text(
                    j, i, f"{value:+.0%}", ha="center", va="center", color="white" if dark else "black", fontsize=9
                )
        axis.set_xticks(range(len(found.columns)), [f"{c:g}" for c in found.columns])
        axis.set_yticks(range(len(found.rows)), [f"{r:g}" for r in found.rows])
        axis.set_xlabel(found.column_axis.split(".")[-1])
        axis.set_ylabel(found.row_axis.split(".")[-1])
        axis.set_title(f"{found.choice} against {found.baseline}\n{found.figure}", fontsize=10)
    return picture
