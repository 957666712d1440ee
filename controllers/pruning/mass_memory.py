"""Predictors of the next query's attention mass per block, as objects: last, running mean, running sum.

    m_b <- keep m_b + gain a_b,    m_b = a_b where nothing was known

with a_b the measured mass, brought to the scale of dense attention by the share of m that the unread blocks hold.

    LastMass          keep 0, gain 1        the next query looks where the last one did
    RunningMass(w)    keep 1 - w, gain w    an exponentially weighted mean
    SummedMass        keep 1, gain 1        accumulated attention (H2O, arXiv 2306.14048)

How far each is off is measured by `workbench prune`. The bound-based predictor needs keys and is an op (`SketchMass`).
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numba import njit

from workbench.errors import InputError
from workbench.protocols import KeepObservation
from workbench.signals import FloatArray


class MassPredictor(Protocol):
    """`init(capacity)` knows nothing; `update` returns [slots, width], NaN where a block was never measured."""

    def init(self, capacity: int) -> FloatArray: ...

    def update(self, known: FloatArray, observation: KeepObservation, *, evict: bool = False) -> FloatArray: ...


@dataclass(frozen=True)
class LinearMemory:
    """m_b <- keep m_b + gain a_b. Raises InputError unless keep is in [0, 1] and gain in (0, 1]."""

    keep: float
    gain: float

    def __post_init__(self) -> None:
        if not (0.0 <= self.keep <= 1.0 and 0.0 < self.gain <= 1.0):
            raise InputError(
                f"LinearMemory needs keep in [0, 1] and gain in (0, 1], got {self.keep:g} and {self.gain:g}"
            )

    def init(self, capacity: int) -> FloatArray:
        return np.full((capacity, 0), np.nan)

    def update(self, known: FloatArray, observation: KeepObservation, *, evict: bool = False) -> FloatArray:
        """evict: blocks not read are gone, so that what was read is all there is."""
        new = np.empty(observation.block_mass.shape)
        _update(
            observation.active, observation.joined, observation.measured, observation.num_blocks,
            observation.block_mass, known, new, self.keep, self.gain, evict,
        )  # fmt: skip
        return new


class LastMass(LinearMemory):
    def __init__(self) -> None:
        super().__init__(0.0, 1.0)


class RunningMass(LinearMemory):
    def __init__(self, weight: float = 0.2) -> None:
        super().__init__(1.0 - weight, weight)


class SummedMass(LinearMemory):
    def __init__(self) -> None:
        super().__init__(1.0, 1.0)


@njit(cache=True)
def _update(active, joined, measured, num_blocks, mass, old, new, keep, gain, evict):
    num_slots, width = new.shape
    old_width = min(old.shape[1], width)
    for i in range(num_slots):
        fresh = active[i] and joined[i]
        for b in range(width):
            new[i, b] = old[i, b] if b < old_width and not fresh else np.nan
        if not (active[i] and measured[i]):
            continue
        count = min(num_blocks[i], width)
        hidden, total = 0.0, 0.0
        if not evict:
            for b in range(count):
                if not math.isnan(new[i, b]):
                    total += new[i, b]
                    if math.isnan(mass[i, b]):
                        hidden += new[i, b]
        share = 1.0 - hidden / total if total > 0.0 else 1.0
        for b in range(count):
            a = mass[i, b] * share
            if not math.isnan(a):
                new[i, b] = a if math.isnan(new[i, b]) else keep * new[i, b] + gain * a
