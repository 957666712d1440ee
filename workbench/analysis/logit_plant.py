"""A plant of one sequence whose next-token logits are given in advance: what a temperature law does, without its text.

    advance -> observe -> controller -> apply          driven by `loop.close_loop`, as every other plant

Logits of token k are levels z[k, j] with multiplicities m[j] (or m[k, j]): p ~ m exp(z/T). H and V are exact at any T;
there is no outer loop, the next logits do not depend on the token. Measurements arrive `delay_steps` tokens late.
"""

from dataclasses import dataclass

import numpy as np

from workbench.loop import close_loop
from workbench.protocols import (
    Action,
    Controller,
    DecisionPoint,
    Observation,
    SamplingAction,
    TemperatureObservation,
    blank_like,
)
from workbench.signals import FloatArray


def weighted_statistics(
    levels: FloatArray, multiplicity: FloatArray, temperature: FloatArray | float
) -> tuple[FloatArray, FloatArray]:
    """(H, V) of p ~ m exp(z/T) over sum(m) outcomes. levels, multiplicity: [..., L]; T > 0 broadcasts against [...]."""
    x = (levels - levels.max(axis=-1, keepdims=True)) / np.asarray(temperature)[..., None]
    weight = multiplicity * np.exp(x)
    total = weight.sum(axis=-1, keepdims=True)
    p = weight / total
    log_p = x - np.log(total)  # of one outcome of the level
    entropy = -(p * log_p).sum(axis=-1)
    return np.maximum(entropy, 0.0), (p * (log_p + entropy[..., None]) ** 2).sum(axis=-1)


@dataclass(frozen=True)
class Trajectory:
    """One run [K]: temperature applied, tempered H and V at it, and the raw H."""

    temperature: FloatArray
    entropy_nats: FloatArray
    varentropy_nats2: FloatArray
    entropy_raw_nats: FloatArray


class LogitPlant:
    """`Plant` with one slot. `temperature_limit` (optional) is a second clamp the law does not know of."""

    num_slots = 1

    def __init__(
        self,
        levels: FloatArray,
        multiplicity: FloatArray,
        delay_steps: int = 0,
        temperature_limit: tuple[float, float] = (0.0, np.inf),
    ) -> None:
        self.levels = np.asarray(levels, dtype=np.float64)
        self.multiplicity = np.broadcast_to(np.asarray(multiplicity, dtype=np.float64), self.levels.shape)
        self.delay_steps, self.temperature_limit = delay_steps, temperature_limit
        self.rows: list[tuple[float, float, float, float]] = []

    def advance(self) -> DecisionPoint | None:
        return DecisionPoint.TEMPERATURE if len(self.rows) < len(self.levels) else None

    def observe(self, point: DecisionPoint) -> TemperatureObservation:
        k = len(self.rows)
        source = k - 1 - self.delay_steps
        known = source >= 0
        t, h, v, raw = self.rows[source] if known else (np.nan,) * 4
        given = {
            "active": np.array([True]),
            "joined": np.array([k == 0]),
            "request_id": np.array([0]),
            "measured": np.array([known]),
            "measured_step": np.array([max(source, 0)]),
            "token_index": np.array([k]),
            "entropy_raw_nats": np.array([raw]),
            "entropy_nats": np.array([h]),
            "varentropy_nats2": np.array([v]),
            "temperature_applied": np.array([t]),
        }
        return TemperatureObservation(step=k, **{**blank_like(TemperatureObservation, 1), **given})

    def apply(self, point: DecisionPoint, action: SamplingAction) -> Action:
        k = len(self.rows)
        low, high = self.temperature_limit
        t = float(np.clip(action.temperature[0], low, high))
        (h, raw), (v, _) = weighted_statistics(self.levels[k], self.multiplicity[k], np.array([t, 1.0]))
        self.rows.append((t, float(h), float(v), float(raw)))
        return SamplingAction(temperature=np.array([t]))


class _Forget:
    def decision(self, observation: Observation, action: Action, applied: Action) -> None:
        return None


def run_law(
    controller: Controller,
    levels: FloatArray,
    multiplicity: FloatArray,
    delay_steps: int = 0,
    temperature_limit: tuple[float, float] = (0.0, np.inf),
) -> Trajectory:
    """One temperature law over given logits [K, L]."""
    plant = LogitPlant(levels, multiplicity, delay_steps, temperature_limit)
    close_loop(plant, {DecisionPoint.TEMPERATURE: controller}, _Forget())
    return Trajectory(*np.array(plant.rows).T)


def widest_levels(num_outcomes: int) -> tuple[FloatArray, FloatArray]:
    """(levels [2], multiplicities [2]) of the logits with the largest varentropy at T = 1: one atom against the rest."""
    a = np.log(num_outcomes - 1.0)
    x, low, high = 0.0, 0.0, 4.0
    for _ in range(60):
        x = 0.5 * (low + high)
        low, high = (x, high) if np.tanh(x / 2.0) * (a + x) < 2.0 else (low, x)
    return np.array([a + x, 0.0]), np.array([1.0, num_outcomes - 1.0])


def made_up_text(
    num_tokens: int, num_outcomes: int, seed: int, wander_nats: float = 0.8, gap_nats: float = 6.0
) -> tuple[FloatArray, FloatArray]:
    """(levels [K, 4], multiplicities [4]): a few good words, rivals, a tail, the rest. The gaps wander from token to
    token as an AR(1) of deviation `wander_nats` and lag-1 correlation 0.8."""
    rng = np.random.default_rng(seed)
    counts = np.array([3.0, 60.0, 1500.0, num_outcomes - 1563.0])
    noise = np.zeros((num_tokens, 3))
    for k in range(1, num_tokens):
        noise[k] = 0.8 * noise[k - 1] + 0.6 * rng.normal(size=3)
    tops = gap_nats + np.array([8.0, 5.0, 2.0]) + wander_nats * noise
    return np.column_stack([tops, np.zeros(num_tokens)]), counts
