"""What every pruning policy shares: range checks, and a `KeepAction` from a rule and its numbers."""

import numpy as np

from workbench.errors import InputError
from workbench.protocols import KeepAction, KeepObservation, KeepRule
from workbench.signals import FloatArray, IntArray


def check_share(owner: str, name: str, share: float) -> None:
    """Raises InputError unless `share` is in (0, 1]."""
    if not 0.0 < share <= 1.0:
        raise InputError(f"{owner}.{name} must be in (0, 1], got {share:g}; 1 keeps every block")


def check_mass_budget(owner: str, mass_budget: float, name: str = "mass_budget") -> None:
    """Raises InputError unless `mass_budget` is in [0, 1)."""
    if not 0.0 <= mass_budget < 1.0:
        raise InputError(f"{owner}.{name} must be in [0, 1), got {mass_budget:g}; 0 drops nothing")


def check_spared(owner: str, sink_blocks: int, recent_blocks: int) -> None:
    """Raises InputError unless sink_blocks >= 0 and recent_blocks >= 1."""
    if sink_blocks < 0 or recent_blocks < 1:
        raise InputError(
            f"{owner} needs sink_blocks >= 0 and recent_blocks >= 1 (the block being written), "
            f"got {sink_blocks} and {recent_blocks}"
        )


def keep_action(
    observation: KeepObservation,
    rule: KeepRule | IntArray,
    *,
    mass_budget: float | FloatArray = 0.0,
    block_budget_frac: float | FloatArray = 1.0,
    sink_blocks: int | IntArray = 0,
    recent_blocks: int | IntArray = 1,
    score: FloatArray | None = None,
    evict: bool = False,
    layer_taper: float | None = None,
    output_budget: float | None = None,
) -> KeepAction:
    """Numbers are per row, or one for all rows. Without a `score` every block has none."""
    n = observation.num_slots

    def floats(value: float | FloatArray) -> FloatArray:
        return np.array(np.broadcast_to(np.asarray(value, dtype=np.float64), (n,)))

    def ints(value: int | IntArray) -> IntArray:
        return np.array(np.broadcast_to(np.asarray(value, dtype=np.int64), (n,)))

    return KeepAction(
        rule=ints(np.asarray(rule, dtype=np.int64)),
        mass_budget=floats(mass_budget),
        block_budget_frac=floats(block_budget_frac),
        sink_blocks=ints(sink_blocks),
        recent_blocks=ints(recent_blocks),
        score=np.full(observation.block_mass.shape, np.nan) if score is None else score,
        evict=np.full(n, evict),
        layer_taper=None if layer_taper is None else floats(layer_taper),
        output_budget=None if output_budget is None else floats(output_budget),
    )
