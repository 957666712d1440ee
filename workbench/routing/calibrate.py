"""From recorded calibration questions to routers, saved as one JSON file that `workbench route` reads back.

What each router takes from the first `num_calibration` questions of every task:

    dataset-level     one strategy a task, from the mean trend of its probes (`DatasetRouter`)
    mlp               weights and temperature, from all tasks together (`fit_mlp`); left out, with the reason, where one
                      strategy is best everywhere
    token-signature   nothing: threshold 0
    surrogate         nothing: its threshold is simulated, its error rate is stated beforehand
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from controllers.routing.dataset_level import DatasetRouter
from controllers.routing.descriptors import describe
from controllers.routing.fixed import FixedRouter
from controllers.routing.heuristic import HeuristicRouter
from controllers.routing.mlp import MLPRouter
from controllers.routing.surrogate import SurrogateRouter
from controllers.routing.token_signature import TokenSignatureRouter
from workbench.errors import InputError
from workbench.protocols import Controller, RouteReason, Strategy
from workbench.routing.fit_mlp import FittedMLP, fit_mlp
from workbench.routing.generation_record import write_atomic
from workbench.routing.panel import Panel

FORMAT = "entropic-workbench routing calibration 1"
FIXED = {f"always-{s.name.lower()}": FixedRouter(strategy=s) for s in Strategy}


@dataclass(frozen=True, kw_only=True)
class Calibration:
    dataset_level: dict[str, DatasetRouter]  # by task
    mlp: MLPRouter | None
    notes: dict[str, Any]  # held-out quality of the MLP, or why there is none

    def save(self, path: Path) -> None:
        data = {
            "format": FORMAT,
            "dataset_level": {task: _plain(router) for task, router in self.dataset_level.items()},
            "mlp": None if self.mlp is None else asdict(self.mlp),
            "notes": self.notes,
        }
        write_atomic(path, json.dumps(data, indent=1, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: Path) -> "Calibration":
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            if data["format"] != FORMAT:
                raise ValueError(f"format is {data['format']!r}")
            return cls(
                dataset_level={task: _dataset_router(row) for task, row in data["dataset_level"].items()},
                mlp=None if data["mlp"] is None else MLPRouter(**_tuples(data["mlp"])),
                notes=data["notes"],
            )
        except InputError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"calibration {path} cannot be used ({error}); write it with `workbench route --calibrate`"
            ) from None


def calibrate(panels: Sequence[Panel], *, false_route_rate: float = 0.05, seed: int = 0) -> Calibration:
    """`panels` hold calibration questions only, one panel a task."""
    levels = {
        p.task: DatasetRouter.calibrated(
            describe(p.probe_entropy_nats, p.probe_tokens), false_route_rate=false_route_rate
        )
        for p in panels
    }
    fitted: FittedMLP | None = None
    notes: dict[str, Any] = {"num_questions": {p.task: len(p) for p in panels}}
    try:
        fitted = fit_mlp(panels, seed=seed)
        notes["mlp"] = {
            "calibration_error": fitted.calibration_error,
            "held_out_accuracy": fitted.held_out_accuracy,
            "majority_share": fitted.majority_share,
        }
    except InputError as error:
        notes["mlp"] = str(error)
    return Calibration(dataset_level=levels, mlp=fitted.router if fitted else None, notes=notes)


def routers(
    task: str | None,
    calibration: Calibration | None,
    *,
    k: float = 0.07,
    overload_nats: float = 32.0,
    false_route_rate: float = 0.05,
) -> dict[str, Controller[Any, Any, Any]]:
    """Every router there is for a task, by name; learned ones only where calibrated."""
    made: dict[str, Controller[Any, Any, Any]] = dict(FIXED)
    made["heuristic"] = HeuristicRouter(k=k, overload_nats=overload_nats)
    made["heuristic-no-overload"] = HeuristicRouter(k=k, overload_nats=float("inf"))
    made["surrogate"] = SurrogateRouter(false_route_rate=false_route_rate)
    made["token-signature"] = TokenSignatureRouter()
    if calibration is not None:
        if task in calibration.dataset_level:
            made["dataset-level"] = calibration.dataset_level[task]
        if calibration.mlp is not None:
            made["mlp"] = calibration.mlp
    return made


def _plain(router: DatasetRouter) -> dict[str, Any]:
    data = asdict(router)
    for name in ("mean_trend", "p_value"):
        data[name] = data[name] if data[name] == data[name] else None
    return {**data, "strategy": router.strategy.name.lower(), "reason": router.reason.name.lower()}


def _dataset_router(row: Mapping[str, Any]) -> DatasetRouter:
    values = {f.name: row[f.name] for f in fields(DatasetRouter)}
    for name in ("mean_trend", "p_value"):
        values[name] = float("nan") if values[name] is None else float(values[name])
    return DatasetRouter(
        **{**values, "strategy": Strategy[row["strategy"].upper()], "reason": RouteReason[row["reason"].upper()]}
    )


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
