"""A plant whose every number about request r at its k-th decision depends on (seed, r, k) and r's own actions only.

So a request must be treated alike whoever shares the batch and whatever slot it sits in; contract tests compare runs
that differ in exactly that. It has requests that join, pause, leave and share slots, measurements that go missing, and
for the temperature point real logits: H and V follow the temperature that was applied.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from workbench.protocols import (
    Action,
    DecisionPoint,
    KeepObservation,
    Observation,
    OrderObservation,
    RevealObservation,
    RouteObservation,
    SamplingAction,
    TemperatureObservation,
    blank_like,
)
from workbench.signals import FloatArray, IntArray, entropy_and_varentropy

VOCAB = 50
WIDTH = {
    OrderObservation: {},
    TemperatureObservation: {},
    KeepObservation: {"block_mass": 12},
    RevealObservation: {
        name: 10
        for name in ("masked", "entropy_nats", "confidence", "runner_up", "divergence_nats", "permutation_rank")
    },
    RouteObservation: {"probe_entropy_nats": 64, "probe_surprisal_raw_nats": 64},
}
OBSERVATION = {kind.point: kind for kind in WIDTH}


@dataclass(frozen=True)
class Life:
    """When a request is there: slot, first step, number of steps."""

    slot: int
    first_step: int
    num_steps: int


@cache
def _coin(seed: int, request: int, step: int) -> float:
    return float(np.random.default_rng([seed, request, step, 0]).random())


@cache
def _draw(seed: int, request: int, k: int) -> tuple[FloatArray, dict[str, float]]:
    """Logits of a request's k-th token, and what does not depend on the temperature."""
    rng = np.random.default_rng([seed, request, k, 1])
    logits = rng.normal(0.0, rng.uniform(0.1, 6.0), VOCAB)
    h, v = entropy_and_varentropy(logits)
    return logits, {
        "entropy_raw_nats": float(h),
        "varentropy_raw_nats2": float(v),
        "surprisal_nats": float(rng.exponential(2.0)),
    }


MEASURED = ("entropy_nats", "varentropy_nats2", "temperature_applied", *_draw(0, 0, 0)[1])


class ScriptedPlant:
    """`requests` chooses who is there (None: all); `slot_order` says which slot each row sits in."""

    def __init__(
        self,
        point: DecisionPoint,
        *,
        seed: int = 0,
        num_steps: int = 40,
        num_slots: int = 8,
        delay_steps: int = 0,
        missing_frac: float = 0.15,
        requests: frozenset[int] | None = None,
        slot_order: IntArray | None = None,
        garbage: bool = False,
    ) -> None:
        self.point, self.seed, self.num_slots = point, seed, num_slots
        self.num_steps, self.delay_steps, self.missing_frac = num_steps, delay_steps, missing_frac
        self.slot_order = np.arange(num_slots) if slot_order is None else slot_order
        self.garbage = garbage
        self.lives = {r: life for r, life in self._script().items() if requests is None or r in requests}
        self.decisions: dict[int, int] = {}  # request -> decisions so far
        self.served: dict[int, int] = {}  # request -> step of its last decision
        self.history: dict[int, list[dict[str, float]]] = {r: [] for r in self.lives}
        self.step = -1
        self.now: Observation

    def _script(self) -> dict[int, Life]:
        rng = np.random.default_rng([self.seed, 12345])
        lives: dict[int, Life] = {}
        for slot in range(self.num_slots):
            step = int(rng.integers(0, 6))
            while step < self.num_steps:
                length = int(rng.integers(1, 25))
                lives[len(lives)] = Life(slot, step, length)
                step += length + int(rng.integers(0, 4))
        return lives

    def rng(self, request: int, k: int, what: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, request, k, what])

    def coin(self, request: int) -> float:
        return _coin(self.seed, request, self.step)

    # Plant

    def advance(self) -> DecisionPoint | None:
        while self.step + 1 < self.num_steps:
            self.step += 1
            present = self._present()
            if present:
                self.now = self._observe(present)
                return self.point
        return None

    def observe(self, point: DecisionPoint) -> Observation:
        return self.now

    def apply(self, point: DecisionPoint, action: Any) -> Action:
        if point is DecisionPoint.TEMPERATURE:
            action = replace(
                action, temperature=np.clip(action.temperature, action.temperature_min, action.temperature_max)
            )
        for request in self._present():
            self.decisions[request] = self.decisions.get(request, -1) + 1
            self.served[request] = self.step
        if point is DecisionPoint.TEMPERATURE:
            self._measure(action)
        return action

    # One row

    def _present(self) -> list[int]:
        """Requests that take a decision now: alive and, two times in ten, paused."""
        alive = [r for r, life in self.lives.items() if 0 <= self.step - life.first_step < life.num_steps]
        return [r for r in alive if self.coin(r) > 0.2 or self.point is DecisionPoint.ORDER]

    def _slot(self, request: int) -> int:
        return int(self.slot_order[self.lives[request].slot])

    def _measure(self, action: SamplingAction) -> None:
        """Each request present draws a token: H and V of its logits at the temperature it is given."""
        present = self._present()
        slots = [self._slot(r) for r in present]
        temperature = action.temperature[slots]
        if action.target_entropy_nats is not None:
            # Any bounded function will do: what a plant solves for is its own business here.
            temperature = np.clip(0.5 + 0.1 * action.target_entropy_nats[slots], 0.1, 2.0)
        drawn = [_draw(self.seed, r, self.decisions[r]) for r in present]
        h, v = entropy_and_varentropy(np.array([logits for logits, _ in drawn]), temperature)
        for i, request in enumerate(present):
            told = {"entropy_nats": h[i], "varentropy_nats2": v[i], "temperature_applied": temperature[i]}
            self.history[request].append({"step": self.step} | drawn[i][1] | told)

    def _observe(self, present: list[int]) -> Observation:
        kind = OBSERVATION[self.point]
        arrays = blank_like(kind, self.num_slots, **WIDTH[kind])
        arrays |= {
            name: np.full((self.num_slots, width), np.nan) for name, width in WIDTH[kind].items() if name not in arrays
        }
        if self.garbage:
            noise = np.random.default_rng(self.step)
            for name, array in arrays.items():
                if name not in ("active", "joined", "request_id", "measured"):
                    array[...] = (noise.normal(0, 1e6, array.shape)).astype(array.dtype)
        for request in present:
            slot, k = self._slot(request), self.decisions.get(request, -1) + 1
            arrays["active"][slot] = True
            arrays["joined"][slot] = k == 0
            arrays["request_id"][slot] = request
            for name, value in self._row(request, k).items():
                arrays[name][slot] = value
        for array in arrays.values():
            array.flags.writeable = False
        return kind(step=self.step, **arrays)

    def _row(self, request: int, k: int) -> dict[str, Any]:
        rng = self.rng(request, k, 2)
        missing = rng.random() < self.missing_frac
        row: dict[str, Any] = {"measured": k > self.delay_steps and not missing, "measured_step": 0}
        if self.point is DecisionPoint.TEMPERATURE:
            row["token_index"] = k
            if k > self.delay_steps:
                told = dict(self.history[request][k - 1 - self.delay_steps])
                row["measured_step"] = told.pop("step")
                row |= {name: np.nan if missing and k % 2 else value for name, value in told.items()}
            else:
                row |= dict.fromkeys(MEASURED, np.nan)
        elif self.point is DecisionPoint.ORDER:
            h, v = rng.uniform(0.0, 4.0, 2)
            row |= {
                "served": k > 0 and rng.random() < 0.5,
                "running": rng.random() < 0.5,
                "arrival_rank": request,
                "kind": request % 3,
                "priority": request % 4,
                "prompt_tokens": 5 + request,
                "computed_tokens": k,
                "generated_tokens": k,
                "remaining_tokens_oracle": np.nan if request % 5 == 0 else float(self.lives[request].num_steps - k),
                "entropy_raw_nats": h if row["measured"] else np.nan,
                "varentropy_raw_nats2": v if row["measured"] else np.nan,
                "marginal_step_s": np.nan if rng.random() < 0.05 else rng.uniform(0.0, 1e-3),
            }
        elif self.point is DecisionPoint.KEEP:
            width = WIDTH[KeepObservation]["block_mass"]
            filled = min(width, 2 + (request + k) // 3)
            mass = rng.dirichlet(np.full(filled, 0.3))
            mass[rng.random(filled) < 0.3] = np.nan
            row |= {
                "context_tokens": filled * 16 - 3,
                "num_blocks": filled,
                "entropy_raw_nats": np.nan if missing else rng.uniform(0.0, 4.0),
                "block_mass": np.concatenate([mass, np.full(width - filled, np.nan)]),
            }
        elif self.point is DecisionPoint.REVEAL:
            length = WIDTH[RevealObservation]["masked"]
            masked = rng.random(length) < max(0.1, 1.0 - 0.1 * k)
            masked[rng.integers(length)] = True
            confidence = rng.uniform(0.3, 1.0, length)
            blank = np.where(masked, 1.0, np.nan)
            row |= {
                "iteration": k,
                "masked": masked,
                "entropy_nats": rng.uniform(0.0, 3.0, length) * blank,
                "confidence": confidence * blank,
                "runner_up": (1.0 - confidence) * 0.7 * blank,
                "divergence_nats": (np.nan if k == 0 else rng.exponential(0.1, length)) * blank,
                "permutation_rank": rng.permutation(length),
            }
        else:
            count = int(rng.integers(0, 65))
            probe = np.full(64, np.nan)
            probe[:count] = rng.uniform(0.0, 3.0, count)
            surprisal = np.full(64, np.nan)
            surprisal[:count] = rng.exponential(1.0, count)
            row |= {
                "num_probe_tokens": count,
                "probe_entropy_nats": probe,
                "probe_surprisal_raw_nats": surprisal,
                "measured": True,
            }
        return row
