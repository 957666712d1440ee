"""A study in a notebook: its table, its statements, its pictures."""

from typing import Any

import polars as pl

from workbench.unmasking.charts import line_chart, panel_chart
from workbench.unmasking.page import cell_text
from workbench.unmasking.study import Study


def table(study: Study) -> pl.DataFrame:
    """The rows as they are printed."""
    columns = {name: [cell_text(row[j]) for row in study.rows] for j, name in enumerate(study.columns)}
    return pl.DataFrame(columns)


def statements(study: Study) -> pl.DataFrame:
    """What the study states, and whether it holds."""
    return pl.DataFrame({"holds": [s.holds for s in study.statements], "statement": [s.text for s in study.statements]})


def pictures(study: Study) -> Any:
    """Every chart and panel, one under the other."""
    from IPython.display import Image, display

    for content in [*(line_chart(chart) for chart in study.charts), *(panel_chart(panel) for panel in study.panels)]:
        display(Image(data=content))
