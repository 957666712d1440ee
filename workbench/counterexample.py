"""A case that broke a property, as a small JSON file: what it shows, and what it takes to see it again.

    {"statement": "...", "controller": {"kind": "pi", ...}, "levels": [..], "multiplicities": [..],
     "num_tokens": 200, "delay_steps": 0, "starts": [1.0, 1.01], "expect": "cycles"}

The logits are frozen: `multiplicities[i]` outcomes share `levels[i]`. The law starts from each temperature in `starts`
as separate rows. `expect` names what must be seen: "expands" (two starts end further apart than they began), "cycles"
(the last tokens keep moving), "settles" (they do not), "at a clamp". `workbench replay FILE` runs it.
Several gains in turn (`gain_pattern`) replace the logits by a bare linear loop u+ = u - g u_{k-d}.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pydantic
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass as checked

from workbench.catalog import build_controller
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, TemperatureObservation, blank_like
from workbench.signals import FloatArray


@checked(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Counterexample:
    """Raises `InputError` through `load` for a file that is not one."""

    statement: str
    expect: Literal["expands", "cycles", "settles", "at a clamp", "diverges"]
    controller: dict[str, Any] | None = None
    levels: tuple[float, ...] = ()
    multiplicities: tuple[int, ...] = ()
    starts: tuple[float, ...] = (1.0,)
    num_tokens: int = 400
    delay_steps: int = 0
    gain_pattern: tuple[float, ...] = ()

    @classmethod
    def load(cls, path: Path) -> "Counterexample":
        try:
            return pydantic.TypeAdapter(cls).validate_python(json.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from None
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: not JSON ({error})") from None
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            raise InputError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg'].lower()}") from None


@dataclass(frozen=True)
class CounterexampleResult:
    ok: bool
    statement: str
    log_temperature: FloatArray  # [tokens, starts] (or the bare loop's u)
    entropy_nats: FloatArray  # [tokens, starts], empty for a bare loop


def entropy_of_levels(levels: FloatArray, multiplicities: FloatArray, u: FloatArray) -> tuple[FloatArray, FloatArray]:
    """H and V at T = exp(u) [rows] of logits with few distinct values, in float64."""
    z = levels[:, None] / np.exp(u)[None, :]
    z = z - z.max(axis=0)
    weight = multiplicities[:, None] * np.exp(z)
    total = weight.sum(axis=0)
    mean = (weight * z).sum(axis=0) / total
    return np.log(total) - mean, (weight * (z - mean) ** 2).sum(axis=0) / total


def run_counterexample(case: Counterexample) -> CounterexampleResult:
    """Run it and say whether what it states is still so."""
    if case.gain_pattern:
        u, h = _bare_loop(case), np.empty((0, 0))
    else:
        u, h = _closed_loop(case)
    last = u[-max(20, case.num_tokens // 10) :]
    swing = float((last.max(axis=0) - last.min(axis=0)).max())
    if case.expect == "expands":
        ok = bool(abs(u[-1, 0] - u[-1, -1]) > abs(u[0, 0] - u[0, -1]))
    elif case.expect == "cycles":
        ok = swing > 1e-3
    elif case.expect == "settles":
        ok = swing < 1e-6
    elif case.expect == "diverges":
        ok = bool(np.abs(last).max() > 10.0 * np.abs(u[:8]).max())
    else:
        ok = bool(swing == 0.0 and (np.isclose(last[-1], u.max()) | np.isclose(last[-1], u.min())).all())
    return CounterexampleResult(ok, case.statement, u, h)


def _bare_loop(case: Counterexample) -> FloatArray:
    u = [1.0] * (case.delay_steps + 1)
    for k in range(case.num_tokens):
        u.append(u[-1] - case.gain_pattern[k % len(case.gain_pattern)] * u[-1 - case.delay_steps])
    return np.array(u)[:, None]


def _closed_loop(case: Counterexample) -> tuple[FloatArray, FloatArray]:
    if case.controller is None or not case.levels or len(case.levels) != len(case.multiplicities):
        raise InputError("a counterexample needs a controller, levels and as many multiplicities, or a gain_pattern")
    levels, multiplicities = np.array(case.levels), np.array(case.multiplicities, dtype=np.float64)
    context = {"vocab_size": int(multiplicities.sum()), "delay_steps": case.delay_steps}
    laws = [
        build_controller(DecisionPoint.TEMPERATURE, {**case.controller, "temperature_start": start}, context)
        for start in case.starts
    ]
    states = [law.init(1) for law in laws]
    us, hs, told = [], [], []
    for token in range(case.num_tokens):
        source = token - 1 - case.delay_steps
        temperature = []
        for row, law in enumerate(laws):
            arrays = blank_like(TemperatureObservation, 1)
            arrays["active"][:] = True
            arrays["joined"][:] = token == 0
            arrays["request_id"][:] = 0
            arrays["token_index"][:] = token
            if source >= 0:
                arrays["measured"][:] = True
                arrays["measured_step"][:] = source
                for name, values in told[source].items():
                    arrays[name][:] = values[row]
            states[row], action = law.step(states[row], TemperatureObservation(step=token, **arrays))
            temperature.append(float(action.temperature[0]))
        u = np.log(np.array(temperature))
        h, v = entropy_of_levels(levels, multiplicities, u)
        told.append({"entropy_nats": h, "varentropy_nats2": v, "temperature_applied": np.array(temperature)})
        us.append(u)
        hs.append(h)
    return np.array(us), np.array(hs)
