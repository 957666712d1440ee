"""The uniform schedule: random positions, equally many an iteration, blind to what the model believes."""

from dataclasses import dataclass
from typing import ClassVar

from controllers.unmasking.selection import eligible, reveal
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, RevealAction, RevealObservation


@dataclass(frozen=True, kw_only=True)
class Uniform:
    """ceil(masked / iterations left) random positions, so that `num_iterations` passes (or one a position) finish.

    Past its schedule (after remasking) it reveals all that is left. Source: the sampler of masked diffusion models.
    Raises InputError unless `num_iterations` is at least 1.
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.REVEAL
    num_iterations: int = 16

    def __post_init__(self) -> None:
        if self.num_iterations < 1:
            raise InputError(f"Uniform.num_iterations must be at least 1, got {self.num_iterations}")

    def init(self, capacity: int) -> None:
        return None

    def step(self, state: None, observation: RevealObservation) -> tuple[None, RevealAction]:
        left = (self.num_iterations - observation.iteration).clip(1, self.num_iterations)
        masked = eligible(observation).sum(axis=1)
        return None, reveal(observation, rank=observation.permutation_rank, max_count=-(-masked // left))
