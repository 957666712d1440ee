"""The masked-diffusion requests of an engine: an `UnmaskPlant` of one row each, shown to the engine by slot.

Reveals, draws and random orders are those of `UnmaskPlant`, keyed by request: a request decodes alike in the engine and
alone, whatever its slot, the batch or the scheduler.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np

from workbench.protocols import RevealAction, RevealObservation, blank_like
from workbench.signals import BoolArray, IntArray
from workbench.unmasking.plant import UnmaskPlant
from workbench.unmasking.predictor import MaskedPredictor

WIDE = ("masked", "entropy_nats", "confidence", "runner_up", "divergence_nats", "permutation_rank")


class MaskedRows:
    """`DiffusionRows` of `workbench.engine.diffusion`.

    is_diffusion  [num_requests]
    length        [num_requests] positions to reveal
    predictor_of  request id -> the predictor of its sequence (an oracle of that length, an encoder)
    """

    def __init__(
        self,
        is_diffusion: BoolArray,
        length: IntArray,
        predictor_of: Callable[[int], MaskedPredictor],
        *,
        seed: int = 0,
        measure_divergence: bool = False,
    ):
        self.is_diffusion, self.length = is_diffusion, length
        self.width = int(length[is_diffusion].max(initial=1))
        self._predictor_of, self._seed, self._measure_divergence = predictor_of, seed, measure_divergence
        self._plants: dict[int, UnmaskPlant] = {}
        self._predicted: set[int] = set()  # slots whose pass is done and not yet revealed from
        self.tokens: dict[int, IntArray] = {}  # request id -> what it was decoded to

    def admit(self, request_id: int, slot: int) -> None:
        self._plants[slot] = UnmaskPlant(
            self._predictor_of(request_id),
            np.full((1, int(self.length[request_id])), -1),
            seed=self._seed,
            request_id=np.array([request_id]),
            measure_divergence=self._measure_divergence,
        )

    def release(self, slot: int) -> None:
        plant = self._plants.pop(slot)
        self.tokens[int(plant.request_id[0])] = plant.tokens[0]

    def forward(self, slots: IntArray) -> None:
        for slot in map(int, slots):
            if slot not in self._predicted:
                self._plants[slot].advance()
                self._predicted.add(slot)

    def measurements(self, slots: IntArray, num_slots: int) -> dict[str, Any]:
        out = blank_like(RevealObservation, num_slots, **dict.fromkeys(WIDE, self.width))
        for slot in slots:
            plant = self._plants[int(slot)]
            seen = plant.observe(RevealObservation.point)
            assert isinstance(seen, RevealObservation)
            out["iteration"][slot] = seen.iteration[0]
            for name in WIDE:
                out[name][slot, : plant.length] = getattr(seen, name)[0]
        return {name: out[name] for name in ("iteration", *WIDE)}

    def reveal(self, slots: IntArray, action: RevealAction) -> IntArray:
        counts = np.zeros(slots.size, dtype=np.int64)
        for index, slot in enumerate(slots):
            plant = self._plants[int(slot)]
            self._predicted.discard(int(slot))
            before = int(plant.masked.sum())
            plant.apply(RevealAction.point, _row(action, int(slot), plant.length))
            counts[index] = before - int(plant.masked.sum())
        return counts

    def num_masked(self, slots: IntArray) -> IntArray:
        return np.array([int(self._plants[int(slot)].masked.sum()) for slot in slots], dtype=np.int64)


def _row(action: RevealAction, slot: int, length: int) -> RevealAction:
    """What `action` says about one slot, as an action over one row of `length` positions."""
    parts: dict[str, Any] = {}
    for field in fields(action):
        value = getattr(action, field.name)
        if value is not None:
            parts[field.name] = value[slot : slot + 1, :length] if value.ndim == 2 else value[slot : slot + 1]
    return replace(action, **parts)
