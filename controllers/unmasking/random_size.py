"""A random-size schedule: random positions in batches of random size, a fixed number of iterations."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controllers.unmasking.selection import eligible, reveal
from kernels.philox import uniform
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, RevealAction, RevealObservation

STREAM = 0x51  # of the run's counter-based generator


@dataclass(frozen=True, kw_only=True)
class RandomSize:
    """With m positions masked and r iterations left: 1 + floor((m - r)(1 - U^(1/(r-1)))) of them, all if r = 1.

    Breaking the stick this way makes the batch sizes a uniform random composition, up to rounding. U comes from
    a counter keyed by `seed`, request and iteration: the same request gets the same sizes in every arm and slot.
    Source: random batch sizes adapt to unknown dependence (arXiv 2602.20126). Deviates: our size law, not its two.
    Raises InputError unless `num_iterations` is at least 1.
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.REVEAL
    num_iterations: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        if self.num_iterations < 1:
            raise InputError(f"RandomSize.num_iterations must be at least 1, got {self.num_iterations}")

    def init(self, capacity: int) -> None:
        return None

    def step(self, state: None, observation: RevealObservation) -> tuple[None, RevealAction]:
        active = observation.active
        masked = eligible(observation).sum(axis=1)
        request = np.where(active, observation.request_id, 0)
        iteration = np.where(active, observation.iteration, 0)
        left = np.minimum((self.num_iterations - iteration).clip(1, self.num_iterations), np.maximum(masked, 1))
        u = uniform(self.seed, STREAM, request, iteration)
        share = 1.0 - u ** (1.0 / np.maximum(left - 1, 1))
        count = np.where(left == 1, masked, 1 + np.floor((masked - left) * share).astype(np.int64))
        return None, reveal(observation, rank=observation.permutation_rank, max_count=count)
