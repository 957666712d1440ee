"""What controllers are shown: measurements on their way to a decision, and the observations made of the slots.

A measurement is stored when its step ends (`slots.settle`) and shown at the row's next decision, or with a delay at a later one; it
counts as new once per decision point. The arrays of an observation are views that each look fills anew.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from workbench.engine import slots as row
from workbench.engine.kv_blocks import BlockPool
from workbench.protocols import (
    DecisionPoint,
    KeepObservation,
    Observation,
    OrderObservation,
    TemperatureObservation,
)
from workbench.signals import FloatArray, IntArray

MEASUREMENTS = (
    "entropy_raw_nats",
    "varentropy_raw_nats2",
    "entropy_nats",
    "varentropy_nats2",
    "surprisal_nats",
    "temperature_applied",
)
MASS_WIDTH_STEP = 32  # `block_mass` is shown as wide as the longest request so far needs, rounded up to this


def read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


class Sight:
    """Of the slots in `numbers` and `flags`, whose KV blocks `pool` holds. `mass_width` 0: no block masses are shown."""

    def __init__(
        self,
        numbers: np.ndarray,
        flags: np.ndarray,
        pool: BlockPool,
        *,
        delay_steps: int,
        mass_width: int,
        max_chunk_tokens: int,
        length_known: bool,
    ) -> None:
        self.numbers, self.flags, self.pool, self.delay_steps = numbers, flags, pool, delay_steps
        self._max_chunk_tokens, self._length_known = max_chunk_tokens, length_known
        slots = numbers.shape[1]
        self.request_id, self.generated = numbers[row.REQUEST], numbers[row.GENERATED]
        self.block_mass = np.full((slots, mass_width), np.nan)
        self.shown_width = 0  # blocks a slot that are shown
        ring = delay_steps + 1
        self.rings = np.full((ring, len(MEASUREMENTS), slots), np.nan)
        self.ring_step = np.zeros((ring, slots), np.int64)
        # Measurements as decisions see them: the last token's, or with a delay those of an earlier one.
        self.shown = self.rings[0] if ring == 1 else np.full((len(MEASUREMENTS), slots), np.nan)
        points = tuple(DecisionPoint)
        self.fresh = np.zeros((len(points), slots), np.bool_)
        self.seen = dict(zip(points, np.full((len(points), slots), -1, np.int64), strict=True))
        self.heads = {point: (np.zeros((3, slots), np.bool_), np.zeros(slots, np.int64)) for point in points}
        self.fresh_of = dict(zip(points, self.fresh, strict=True))
        self._standing: dict[DecisionPoint, Observation] = {}
        self._want = np.zeros(slots, np.int64)
        self._remaining = np.full(slots, np.nan)
        self._marginal_s = np.full(slots, np.nan)

    def forget(self, slot: int) -> None:
        """A new request takes the slot."""
        self.rings[:, :, slot] = np.nan
        self.fresh[:, slot] = False
        self.block_mass[slot] = np.nan

    def widen(self, num_blocks: int) -> None:
        """Some request holds so many blocks."""
        width = -(-num_blocks // MASS_WIDTH_STEP) * MASS_WIDTH_STEP
        self.shown_width = max(self.shown_width, min(width, self.block_mass.shape[1]))

    def look(self, point: DecisionPoint, active: np.ndarray) -> None:
        """Bring the head of the point's observation up to date."""
        delay = self.delay_steps
        row.look(
            active, self.request_id, self.seen[point], self.fresh_of[point], self.generated, self.ring_step, delay,
            *self.heads[point],
        )  # fmt: skip
        if delay:
            row.hand_over(self.rings, self.generated, delay, self.shown)

    def head(self, point: DecisionPoint) -> dict[str, np.ndarray]:
        """Arrays every observation has, copied, for a point whose rows are not those of a batch."""
        flags, steps = self.heads[point]
        return {
            "active": flags[row.ACTIVE].copy(),
            "joined": flags[row.JOINED].copy(),
            "request_id": self.request_id.copy(),
            "measured": flags[row.MEASURED].copy(),
            "measured_step": steps.copy(),
        }

    def survey(self, marginal_step_s: Callable[[IntArray, IntArray], FloatArray]) -> None:
        """What each slot would compute next, and what that would cost."""
        row.survey(self.numbers, self.flags, self.pool.num_held, self._max_chunk_tokens, self._want, self._remaining)
        if not self._length_known:
            self._remaining[:] = np.nan
        self._marginal_s[:] = marginal_step_s(self.numbers[row.COMPUTED], self._want)

    def observation(self, point: DecisionPoint, step: int) -> Observation:
        """What the point's controller is shown now."""
        standing = self._standing.get(point)
        if isinstance(standing, KeepObservation) and standing.block_mass.shape[1] != self.shown_width:
            standing = None
        if standing is None:
            standing = self._standing[point] = self._standing_observation(point, step)
        return stamped(standing, step)

    def _standing_observation(self, point: DecisionPoint, step: int) -> Observation:
        """The observation of a point: views of arrays that each step fills anew."""
        flags, steps = self.heads[point]
        head: dict[str, Any] = {
            "step": step,
            "active": read_only(flags[row.ACTIVE]),
            "joined": read_only(flags[row.JOINED]),
            "request_id": read_only(self.request_id),
            "measured": read_only(flags[row.MEASURED]),
            "measured_step": read_only(steps),
        }
        shown: dict[str, Any] = {name: read_only(values) for name, values in zip(MEASUREMENTS, self.shown, strict=True)}
        if point is DecisionPoint.TEMPERATURE:
            return TemperatureObservation(**head, token_index=read_only(self.generated), **shown)
        if point is DecisionPoint.KEEP:
            return KeepObservation(
                **head,
                context_tokens=read_only(self.numbers[row.KNOWN]),
                num_blocks=read_only(self.pool.num_logical),
                entropy_raw_nats=shown["entropy_raw_nats"],
                block_mass=read_only(self.block_mass[:, : self.shown_width]),
            )
        return OrderObservation(
            **head,
            served=read_only(self.flags[row.SERVED]),
            running=read_only(self.flags[row.RUNNING]),
            arrival_rank=read_only(self.numbers[row.RANK]),
            kind=read_only(self.numbers[row.KIND]),
            priority=read_only(self.numbers[row.PRIORITY]),
            prompt_tokens=read_only(self.numbers[row.PROMPT]),
            computed_tokens=read_only(self.numbers[row.COMPUTED]),
            generated_tokens=read_only(self.generated),
            remaining_tokens_oracle=read_only(self._remaining),
            entropy_raw_nats=shown["entropy_raw_nats"],
            varentropy_raw_nats2=shown["varentropy_raw_nats2"],
            marginal_step_s=read_only(self._marginal_s),
        )


def stamped(standing: Observation, step: int) -> Observation:
    """A copy of an observation with this step's index; its arrays are the same. `dataclasses.replace` without the checks."""
    fresh = object.__new__(type(standing))
    fresh.__dict__.update(standing.__dict__)
    fresh.__dict__["step"] = step
    return fresh
