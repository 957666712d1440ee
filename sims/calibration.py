"""What a recorded live run taught the simulator, as one JSON file: entropy process, mass process, step cost.

`workbench calibrate RUN` writes it, `hardware.calibration` in a scenario names it. Without one the built-in file is used,
fitted to SmolLM2-135M-Instruct on the built-in prompts; it says so in `source`.
"""

import json
import math
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from sims.arrivals import KindMix
from sims.entropy_process import EntropyProcess, KindLaw
from sims.mass_process import MassProcess
from sims.step_cost import StepCost
from workbench.errors import InputError

FORMAT = 1
DIGITS = 5  # significant digits of stored shapes


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """kinds               request kinds with their share in the record, in rising mean entropy
    step_cost           of the machine the record was made on; None where steps were not fitted
    max_context_tokens  of the recorded model
    figures             goodness of fit, name -> number
    """

    process: EntropyProcess
    mass: MassProcess = field(default_factory=MassProcess)
    kinds: KindMix = field(default_factory=KindMix)
    step_cost: StepCost | None = None
    max_context_tokens: int = 8192
    figures: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "vocab": self.process.vocab,
            "source": self.process.source,
            "laws": [_law_to_json(law) for law in self.process.laws],
            "mass": vars(self.mass),
            "kinds": {"names": self.kinds.names, "weights": self.kinds.weights},
            "step_cost": None if self.step_cost is None else _plain(_fields_of(self.step_cost)),
            "max_context_tokens": self.max_context_tokens,
            "figures": _plain(self.figures),
        }


def _fields_of(record: Any) -> dict[str, Any]:
    return {f.name: getattr(record, f.name) for f in fields(record)}


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Arrays as lists, what is not finite as text that `float` reads."""

    def plain(v: Any) -> Any:
        if isinstance(v, np.ndarray):
            return [plain(x) for x in v.tolist()]
        if isinstance(v, float) and not math.isfinite(v):
            return repr(v)
        return float(v) if isinstance(v, np.floating) else v

    return {name: plain(v) for name, v in values.items()}


def _law_to_json(law: KindLaw) -> dict[str, Any]:
    values = {f.name: getattr(law, f.name) for f in fields(law) if f.name != "shapes"}
    shapes = [[float(f"{v:.{DIGITS}g}") for v in row] for row in law.shapes]
    return {**_plain(values), "shapes": shapes}


def write_calibration(path: Path, calibration: Calibration) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(calibration.to_json(), indent=None, separators=(",", ":"), allow_nan=False))
    temporary.replace(path)


def read_calibration(path: Path) -> Calibration:
    """Raises `InputError`, one line naming the file."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"calibration {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise InputError(f"calibration {path} is not JSON: {error}") from None
    return _from_json(data, str(path))


def _from_json(data: Any, where: str) -> Calibration:
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InputError(f"calibration {where}: format {FORMAT} expected; write it anew with workbench calibrate")
    try:
        laws = tuple(_law_from_json(row) for row in data["laws"])
        cost = data["step_cost"]
        tables = ("dense_s", "output_s", "noise")
        return Calibration(
            process=EntropyProcess(vocab=int(data["vocab"]), laws=laws, source=data["source"]),
            mass=MassProcess(**data["mass"]),
            kinds=KindMix(names=tuple(data["kinds"]["names"]), weights=tuple(data["kinds"]["weights"])),
            step_cost=None if cost is None else StepCost(**{k: _value(v, k in tables) for k, v in cost.items()}),
            max_context_tokens=int(data["max_context_tokens"]),
            figures={name: float(v) for name, v in data["figures"].items()},
        )
    except (KeyError, TypeError) as error:
        raise InputError(f"calibration {where}: field {error} is missing or wrong; write it anew") from None


def _value(value: Any, is_table: bool) -> Any:
    if is_table and value is not None:
        return np.array(value, dtype=float)
    return float(value) if isinstance(value, str) and value in ("nan", "inf", "-inf") else value


def _law_from_json(row: dict[str, Any]) -> KindLaw:
    values = {name: _value(v, False) for name, v in row.items() if name != "shapes"}
    values["regime_weights"] = tuple(values["regime_weights"])
    return KindLaw(shapes=np.array(row["shapes"], dtype=float), **values)


@cache
def builtin_calibration() -> Calibration:
    """The fit that comes with the project; its step cost is left out, because it is of another machine."""
    return _from_json(json.loads((files("sims") / "smollm2_calibration.json").read_text()), "built in")
