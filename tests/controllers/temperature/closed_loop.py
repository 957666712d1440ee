"""A small plant of logits for temperature laws, written without the engine: rows of logits, a clamp, a delay."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.protocols import TemperatureObservation, blank_like
from workbench.signals import FloatArray, entropy_and_varentropy


@dataclass(frozen=True)
class Trace:
    temperature: FloatArray  # [tokens, rows] as applied
    asked: FloatArray  # [tokens, rows]
    entropy_nats: FloatArray  # [tokens, rows]
    states: list[Any]


def observation(num_rows: int, token: int, **values: Any) -> TemperatureObservation:
    """All rows active; what is not given is missing."""
    arrays = blank_like(TemperatureObservation, num_rows)
    arrays["active"][:] = True
    arrays["joined"][:] = token == 0
    arrays["request_id"] = np.arange(num_rows)
    arrays["token_index"][:] = token
    for name, value in values.items():
        arrays[name] = np.broadcast_to(np.asarray(value, dtype=arrays[name].dtype), num_rows).copy()
    return TemperatureObservation(step=token, **arrays)


def close(
    law: Any,
    logits: FloatArray | Callable[[int], FloatArray],
    num_tokens: int,
    *,
    delay_steps: int = 0,
    limit: Callable[[int], tuple[float, float]] = lambda token: (0.0, np.inf),
    missing: Callable[[int], bool] = lambda token: False,
) -> Trace:
    """Run `law` on frozen logits [rows, n], or on `logits(token)`. `limit(token)` is what the plant really allows."""
    rows_at = logits if callable(logits) else (lambda token: logits)
    state, told, states = law.init(rows_at(0).shape[0]), [], []
    asked, applied, entropies = [], [], []
    for token in range(num_tokens):
        z = rows_at(token)
        source = token - 1 - delay_steps
        values = told[source] if source >= 0 and not missing(source) else {}
        state, action = law.step(state, observation(z.shape[0], token, **values))
        low, high = limit(token)
        t = np.clip(np.clip(action.temperature, action.temperature_min, action.temperature_max), low, high)
        h, v = entropy_and_varentropy(z, t)
        h_raw, v_raw = entropy_and_varentropy(z)
        told.append(
            {
                "measured": True,
                "measured_step": token,
                "entropy_nats": h,
                "varentropy_nats2": v,
                "entropy_raw_nats": h_raw,
                "varentropy_raw_nats2": v_raw,
                "temperature_applied": t,
            }
        )
        asked.append(action.temperature)
        applied.append(t)
        entropies.append(h)
        states.append(state)
    return Trace(np.array(applied), np.array(asked), np.array(entropies), states)


def spike_and_uniform(n: int, probability: float) -> FloatArray:
    """Logits of one atom of `probability` against n - 1 equal ones, at T = 1: [1, n]."""
    z = np.zeros((1, n))
    z[0, 0] = np.log(probability * (n - 1) / (1.0 - probability))
    return z


def random_logits(num_rows: int, n: int, seed: int = 0, scale: float = 2.5) -> FloatArray:
    return np.random.default_rng(seed).normal(0.0, scale, (num_rows, n))
