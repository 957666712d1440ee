"""Faults of a GPU, as SimPy processes beside the engine: slow spells, and failures with repair.

They act between steps, on the same clock. Gaps are exponential; every draw is Philox of (seed, stream, number of the fault,
replica), so a fault hits all arms at the same times.
"""

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Protocol

import simpy

from kernels.philox import uniform_fine
from sims import streams
from sims.executor import SimExecutor
from workbench.errors import InputError


def _check(what: object, name: str, low: float) -> None:
    value = getattr(what, name)
    if not low < value < math.inf:
        raise InputError(f"{type(what).__name__}.{name} must be above {max(low, 0):g} and finite, got {value}")


def _gap_s(mean_gap_s: float, seed: int, stream: int, number: int, replica: int) -> float:
    return -math.log1p(-float(uniform_fine(seed, stream, number, replica))) * mean_gap_s


@dataclass(frozen=True, kw_only=True)
class SlowSpells:
    """Mean gap between spells, length of a spell, and how many times longer a step takes that begins in one."""

    mean_gap_s: float
    length_s: float
    factor: float = 2.0

    def __post_init__(self) -> None:
        for name, low in (("mean_gap_s", 0.0), ("length_s", 0.0), ("factor", 1.0 - 1e-12)):
            _check(self, name, low)

    def start(self, env: simpy.Environment, executor: SimExecutor, seed: int, replica: int = 0) -> None:
        """Let the spells come and go while `env` runs."""
        env.process(self._run(env, executor, seed, replica))

    def _run(
        self, env: simpy.Environment, executor: SimExecutor, seed: int, replica: int
    ) -> Generator[simpy.Event, Any, None]:
        number = 0
        while True:
            yield env.timeout(_gap_s(self.mean_gap_s, seed, streams.FAULT, number, replica))
            executor.slowdown = self.factor
            yield env.timeout(self.length_s)
            executor.slowdown = 1.0
            number += 1


class CanFail(Protocol):
    def fail(self, replica: int) -> None: ...

    def recover(self, replica: int) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Failures:
    """Mean time from repair to the next failure, and how long a repair takes (restart and loading of weights included).

    A replica is up mean_gap_s / (mean_gap_s + repair_s) of the time.
    """

    mean_gap_s: float
    repair_s: float

    def __post_init__(self) -> None:
        for name in ("mean_gap_s", "repair_s"):
            _check(self, name, 0.0)

    def start(self, env: simpy.Environment, fleet: CanFail, seed: int, replica: int) -> None:
        """Let the replica fail and recover while `env` runs."""
        env.process(self._run(env, fleet, seed, replica))

    def _run(
        self, env: simpy.Environment, fleet: CanFail, seed: int, replica: int
    ) -> Generator[simpy.Event, Any, None]:
        number = 0
        while True:
            yield env.timeout(_gap_s(self.mean_gap_s, seed, streams.FAILURE, number, replica))
            fleet.fail(replica)
            yield env.timeout(self.repair_s)
            fleet.recover(replica)
            number += 1
