"""What a study hands over: rows of a table, charts, statements that hold or do not, figures by name."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from workbench.unmasking.estimate import Estimate

Cell = Estimate | float | int | str | bool | None


@dataclass(frozen=True)
class Series:
    """One line of a chart; `half_width` draws intervals."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    half_width: Sequence[float] | None = None
    guide: bool = False  # a reference curve: thin, dashed, no markers


@dataclass(frozen=True)
class Chart:
    name: str  # file name without ending
    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_x: bool = True
    log_y: bool = True
    floor: float | None = None  # smaller values, zero among them, are drawn here


@dataclass(frozen=True)
class Statement:
    """A claim, and whether the numbers beside it bear it out."""

    text: str
    holds: bool


@dataclass
class Study:
    name: str
    title: str
    intro: str
    command: str
    columns: Sequence[str]
    rows: list[Sequence[Cell]] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    panels: list[list[Chart]] = field(default_factory=list)  # each a picture of many small charts
    statements: list[Statement] = field(default_factory=list)
    figures: dict[str, float | int | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return all(statement.holds for statement in self.statements)

    def state(self, text: str, holds: bool) -> None:
        self.statements.append(Statement(text, bool(holds)))


def fitted_power(x: Sequence[float], y: Sequence[float], half_width: Sequence[float] | None = None) -> Estimate:
    """Slope of ln y on ln x by least squares; its interval from those of y (0 where none is given)."""
    u, v = np.log(np.asarray(x, float)), np.log(np.asarray(y, float))
    weight = (u - u.mean()) / ((u - u.mean()) ** 2).sum()
    spread = (
        np.zeros(u.size) if half_width is None else np.nan_to_num(np.asarray(half_width, float)) / np.asarray(y, float)
    )
    return Estimate(float(weight @ v), float(np.sqrt(((weight * spread) ** 2).sum())))
