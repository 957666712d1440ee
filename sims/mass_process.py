"""Where a simulated sequence looks: attention mass over its KV blocks, mean over layers and heads.

Block b of B (0 the oldest) of request r has weight

    w_b = sink [b = 0] + age^-decay exp(spread n_{r,b} + flicker n_{r,b,B}),   age = B - b

with n standard normal: n_{r,b} makes heavy hitters that stay, n_{r,b,B} makes them change a little each time the block count
changes, which is when masses are drawn anew (n_{r,b,B} is one of `FLICKER_GRID` equally likely normal quantiles). mass_b = w_b / sum w. The last block is part full at first; its mass is as it
would be on average over its filling.

Source: ours; sinks after StreamingLLM (arXiv 2309.17453), heavy hitters after H2O (arXiv 2306.14048).
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit
from scipy.special import ndtri

from sims import streams
from sims.scalar_philox import normal_quantile, philox_words, unit_fine
from workbench.errors import InputError
from workbench.signals import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, kw_only=True)
class MassProcess:
    """The symbols are those of the module; weights are relative to the newest block's 1.

    sink 4, decay 0.6 and spread 0.8 are assumptions in the range seen on small Llama models; `workbench calibrate` fits them.
    """

    sink: float = 4.0
    decay: float = 0.6
    spread: float = 0.8
    flicker: float = 0.3
    source: str = "assumed, not fitted"

    def __post_init__(self) -> None:
        for name in ("sink", "decay", "spread", "flicker"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise InputError(f"MassProcess.{name} must be in [0, inf), got {getattr(self, name)}")


FLICKER_GRID = 4096  # a draw of the flicker takes twelve random bits


class MassLaw(NamedTuple):
    """A `MassProcess` as compiled code reads it."""

    sink: float
    spread: float
    age_weight: FloatArray  # [width] age^-decay, age from 1
    flicker: FloatArray  # [FLICKER_GRID] exp(flicker n) at the quantiles of n, which have unit variance


def mass_law(process: MassProcess, width: int) -> MassLaw:
    """For slots of up to `width` blocks."""
    normal = ndtri((np.arange(FLICKER_GRID) + 0.5) / FLICKER_GRID)
    age = np.arange(1, width + 1, dtype=float)
    return MassLaw(process.sink, process.spread, age**-process.decay, np.exp(process.flicker * normal / normal.std()))


class MassState(NamedTuple):
    """Per slot, changed in place. Blocks evicted stay evicted until the slot has a new owner or is preempted."""

    mass: FloatArray  # [slots, width] true dense mass of each block
    counted: IntArray  # [slots] block count the masses were drawn for, 0: none
    kept: BoolArray  # [slots, width] read in the last step
    gone: BoolArray  # [slots, width] evicted for good
    num_gone: IntArray  # [slots] how many those are
    dropped: FloatArray  # [slots] mass not read in the last step
    num_read: IntArray  # [slots] blocks read in the last step
    heavy: FloatArray  # [slots, width] exp(spread n_{r,b})
    heavy_count: IntArray  # [slots] blocks `heavy` is drawn for
    spent: FloatArray  # [slots] score given up by evictions
    threshold: FloatArray  # [slots] score limit of the last LEAST_MASS choice, tried first in the next


def new_mass_state(num_slots: int, width: int) -> MassState:
    return MassState(
        np.zeros((num_slots, width)), np.zeros(num_slots, np.int64), np.zeros((num_slots, width), np.bool_),
        np.zeros((num_slots, width), np.bool_), np.zeros(num_slots, np.int64), np.zeros(num_slots),
        np.zeros(num_slots, np.int64), np.zeros((num_slots, width)), np.zeros(num_slots, np.int64), np.zeros(num_slots),
        np.zeros(num_slots),
    )  # fmt: skip


@njit(cache=True)
def forget_slot(state: MassState, slot: int) -> None:
    """The slot has a new owner."""
    state.counted[slot] = 0
    state.heavy_count[slot] = state.num_gone[slot] = state.num_read[slot] = 0
    state.dropped[slot] = state.spent[slot] = state.threshold[slot] = 0.0
    state.gone[slot, :] = False
    state.kept[slot, :] = False


@njit(cache=True)
def draw_masses(
    state: MassState,
    law: MassLaw,
    seed: int,
    slot: IntArray,
    request_id: IntArray,
    num_blocks: IntArray,
    wanted: BoolArray,
) -> None:
    """True masses of the wanted rows for their present block counts; blocks new since the last draw are kept at first."""
    masses, heavies, kept, counted, heavy_count = state.mass, state.heavy, state.kept, state.counted, state.heavy_count
    sink, spread, age_weight, flicker = law.sink, law.spread, law.age_weight, law.flicker
    for i in range(slot.shape[0]):
        if not wanted[i]:
            continue
        s, request, count = slot[i], request_id[i], num_blocks[i]
        for b in range(heavy_count[s], count):
            w0, w1, _, _ = philox_words(seed, streams.MASS, request, b, 0)
            heavies[s, b] = math.exp(spread * normal_quantile(unit_fine(w0, w1)))
        heavy_count[s] = max(heavy_count[s], count)
        total = 0.0
        for group in range((count + 7) // 8):
            # One counter gives eight draws; the token index tells block counts apart.
            words = philox_words(seed, streams.MASS, request, count, 1 + group)
            for lane in range(min(8, count - 8 * group)):
                b = 8 * group + lane
                bits = words[lane // 2] >> np.uint64(16 * (lane % 2) + 4)
                noise = flicker[bits & np.uint64(FLICKER_GRID - 1)]
                weight = heavies[s, b] * noise * age_weight[count - 1 - b]
                if b == 0:
                    weight += sink
                masses[s, b] = weight
                total += weight
        for b in range(count):
            masses[s, b] /= total
        for b in range(counted[s], count):
            kept[s, b] = True
        counted[s] = count
