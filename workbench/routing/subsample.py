"""A seeded choice of questions in which asking for more never changes the earlier ones.

Question i gets the counter-based uniform of (seed, i); the n smallest are taken, in that order.
Source: ours.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from kernels.philox import uniform
from workbench.errors import InputError

STREAM = 12
Item = TypeVar("Item")


def subsample(items: Sequence[Item], num_items: int | None, seed: int) -> tuple[Item, ...]:
    """`num_items` of `items` (all of them if None) in an order drawn from `seed`; raises if there are not that many."""
    if num_items is not None and not 1 <= num_items <= len(items):
        raise InputError(f"num_questions must be in 1 .. {len(items)}, got {num_items}; the task has no more")
    index = np.arange(len(items))
    draw = uniform(seed, STREAM, index, np.zeros_like(index))
    order = np.argsort(draw, kind="stable")[:num_items]
    return tuple(items[int(i)] for i in order)
