"""What `workbench validate` says of where its errors come from: two tables, a sentence, and the same as figures by name."""

from collections.abc import Callable, Sequence
from typing import Any

from rich.table import Table

from sims.calibration import Calibration
from sims.error_parts import kinds_table, sentence, step_parts
from sims.validate import ArmPair, error_parts


def told_parts(
    pairs: Sequence[ArmPair], calibration: Calibration, tell: Callable[[float], None] = lambda share: None
) -> tuple[list[Any], dict[str, float | None]]:
    """(tables and lines to print, figures by name; None where undefined)."""
    steps = [pair.steps for pair in pairs]
    of_steps = step_parts(steps)
    kinds = Table("kind of batch", "steps", "time", "bias", "mape", "floor", title="step time by kind of batch")
    for row in kinds_table(steps).iter_rows(named=True):
        kinds.add_row(
            row["kind"], str(row["steps"]), f"{row['time_frac']:.1%}", f"{row['bias']:+.1%}", f"{row['mape']:.1%}",
            "-" if row["floor"] is None else f"{row['floor']:.1%}",
        )  # fmt: skip
    by_figure = Table(
        "figure", "error", "bias", "at the arm's own speed", "bias there", "spread of draws",
        title="mean absolute and signed error; with the machine's speed known; how far chance alone moves it",
    )  # fmt: skip
    figures: dict[str, float | None] = {f"step_part_{name}": _or_none(value) for name, value in vars(of_steps).items()}
    for name, part in error_parts(pairs, calibration, on_progress=tell).items():
        by_figure.add_row(
            name, f"{part.error:.1%}", f"{part.bias:+.1%}", f"{part.error_at_own_speed:.1%}",
            f"{part.bias_at_own_speed:+.1%}", f"{part.draw_sd:.1%}",
        )  # fmt: skip
        figures |= {
            f"{name}_err_own_speed": _or_none(part.error_at_own_speed),
            f"{name}_bias_own_speed": _or_none(part.bias_at_own_speed),
            f"{name}_draw_sd": _or_none(part.draw_sd),
        }
    return [kinds, sentence(of_steps), by_figure], figures


def _or_none(value: float) -> float | None:
    return value if value == value else None
