"""The target entropy of a temperature law, as a function of the token index: H* from token 0, then steps.

`target_steps = ((128, 1.0),)` means: from token 128 on the target is 1.0 nats. Settling and overshoot are read off
such a step. Source: ours.
"""

import itertools
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from workbench.errors import InputError
from workbench.signals import FloatArray, IntArray

TargetSteps = tuple[tuple[int, float], ...]


def checked_steps(owner: str, steps: Sequence[Sequence[float]]) -> TargetSteps:
    """`steps` as a tuple of (first token index, nats), indices rising and at least 1."""
    try:
        pairs = tuple((int(index), float(nats)) for index, nats in steps)
    except (TypeError, ValueError):
        raise InputError(f"{owner}.target_steps must be pairs [token index, nats], got {steps!r}") from None
    indices = [index for index, _ in pairs]
    if any(index < 1 for index in indices) or any(a >= b for a, b in itertools.pairwise(indices)):
        raise InputError(f"{owner}.target_steps needs rising token indices from 1 on, got {indices}; sort them")
    return pairs


@lru_cache(maxsize=16)
def _everywhere(num_slots: int, nats: float) -> FloatArray:
    target = np.full(num_slots, nats)
    target.flags.writeable = False
    return target


def target_at(start_nats: float, steps: TargetSteps, token_index: IntArray) -> FloatArray:
    """Target entropy in nats for each row [num_slots]."""
    if not steps:
        return _everywhere(token_index.shape[0], start_nats)
    levels = np.array([start_nats, *(nats for _, nats in steps)])
    return levels[np.searchsorted([index for index, _ in steps], token_index, side="right")]
