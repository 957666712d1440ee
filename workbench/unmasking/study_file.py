"""A study as a file, `study.json`: everything its page is made of, so that the page can be made again without running anything.

Numbers that JSON has no word for are texts: "nan", "inf", "-inf". A mean with its interval is {"mean": .., "half_width": ..}.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workbench.errors import InputError
from workbench.record import write_atomically
from workbench.strict_json import strict_json
from workbench.unmasking.estimate import Estimate
from workbench.unmasking.study import Chart, Series, Statement, Study

STUDY = "study.json"


def save_study(study: Study, directory: Path, pictures: Mapping[str, str]) -> None:
    """`pictures`: headings of the picture files beside the charts, by file name."""
    body = _plain(study) | {"pictures": dict(pictures)}
    write_atomically(directory / STUDY, strict_json(body).encode())


def is_study(directory: Path) -> bool:
    return (directory / STUDY).is_file()


def load_study(directory: Path) -> tuple[Study, dict[str, tuple[str, bytes]]]:
    """The study, and (heading, content) of the pictures beside its charts that are still there.

    Raises InputError (one line) for a file that is missing or damaged.
    """
    path = directory / STUDY
    try:
        body = _numbers(json.loads(path.read_text(encoding="utf-8")))
        study = Study(
            name=body["name"],
            title=body["title"],
            intro=body["intro"],
            command=body["command"],
            columns=tuple(body["columns"]),
            rows=[tuple(row) for row in body["rows"]],
            charts=[_chart(chart) for chart in body["charts"]],
            panels=[[_chart(chart) for chart in panel] for panel in body["panels"]],
            statements=[Statement(**statement) for statement in body["statements"]],
            figures=body["figures"],
            notes=body["notes"],
        )
        pictures = {
            name: (heading, (directory / name).read_bytes())
            for name, heading in body["pictures"].items()
            if Path(name).name == name and (directory / name).is_file()
        }
        return study, pictures
    except FileNotFoundError:
        raise InputError(f"{directory}: no {STUDY}; not a directory that workbench unmask has written") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: damaged or unreadable ({error}); run the command again") from None


def _chart(body: dict[str, Any]) -> Chart:
    return Chart(**{**body, "series": [Series(**line) for line in body["series"]]})


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else f"{float(value)}"
    return value


def _numbers(value: Any) -> Any:
    """Undoes `_plain` for numbers and intervals."""
    if isinstance(value, dict):
        if set(value) == {"mean", "half_width"}:
            return Estimate(float(value["mean"]), float(value["half_width"]))
        return {key: _numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    return float(value) if value in ("nan", "inf", "-inf") else value
