"""Slow spells of a GPU, as a SimPy process beside the engine.

It acts between steps, on the same clock: a step that begins while a spell lasts takes `factor` times as long. Gaps
between spells are exponential; every draw is Philox of (seed, stream, number of the spell), so a fault hits all arms at the same times.
"""

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import simpy

from kernels.philox import uniform_fine
from sims import streams
from sims.executor import SimExecutor
from workbench.errors import InputError


@dataclass(frozen=True, kw_only=True)
class SlowSpells:
    """Mean gap between spells, length of a spell, and how many times longer a step takes in one."""

    mean_gap_s: float
    length_s: float
    factor: float = 2.0

    def __post_init__(self) -> None:
        for name, low in (("mean_gap_s", 0.0), ("length_s", 0.0), ("factor", 1.0 - 1e-12)):
            if not low < getattr(self, name) < math.inf:
                raise InputError(
                    f"SlowSpells.{name} must be above {max(low, 0):g} and finite, got {getattr(self, name)}"
                )

    def start(self, env: simpy.Environment, executor: SimExecutor, seed: int) -> None:
        """Let the spells come and go while `env` runs."""
        env.process(self._run(env, executor, seed))

    def _run(self, env: simpy.Environment, executor: SimExecutor, seed: int) -> Generator[simpy.Event, Any, None]:
        number = 0
        while True:
            gap = -math.log1p(-float(uniform_fine(seed, streams.FAULT, number, 0)))
            yield env.timeout(gap * self.mean_gap_s)
            executor.slowdown = self.factor
            yield env.timeout(self.length_s)
            executor.slowdown = 1.0
            number += 1
