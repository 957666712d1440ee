"""Exact per-step solve: the sampler finds the T at which this token's entropy equals H*."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controllers.temperature.gain_bounds import check_target, check_temperatures
from controllers.temperature.setpoint import TargetSteps, checked_steps, target_at
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, SamplingAction, TemperatureObservation
from workbench.signals import FloatArray


@dataclass(frozen=True)
class ExactState:
    temperature: FloatArray  # [capacity] last T the plant applied, the start of the next solve


@dataclass(frozen=True, kw_only=True)
class ExactSolve:
    """Ask for H(T) = H* on the logits at hand; the op in `kernels` solves by safeguarded Newton within the clamp.

    H(u) rises with slope V, so the solution is unique wherever V > 0; an H* out of reach gives the nearer clamp. It needs
    no gain and has no delay: the best tracker there is, and the yardstick for the others. T jumps freely from
    token to token. H*, steps and clamp as in `PITemperature`.
    Source: ours (bisection on T for a target entropy is folklore).
    Raises InputError for a target outside [0, ln n] (above only with `unsafe`).
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.TEMPERATURE
    sign: ClassVar[str] = "stabilise"
    solves_in_step: ClassVar[bool] = True
    target_entropy_nats: float
    vocab_size: int
    target_steps: TargetSteps = ()
    temperature_start: float = 1.0
    temperature_min: float = 0.1
    temperature_max: float = 2.0
    unsafe: bool = False

    def __post_init__(self) -> None:
        if self.vocab_size < 2:
            raise InputError(f"ExactSolve.vocab_size must be at least 2, got {self.vocab_size}")
        object.__setattr__(self, "target_steps", checked_steps("ExactSolve", self.target_steps))
        targets = [self.target_entropy_nats, *(nats for _, nats in self.target_steps)]
        check_target("ExactSolve", targets, self.vocab_size, self.unsafe)
        check_temperatures("ExactSolve", self.temperature_min, self.temperature_start, self.temperature_max)

    def init(self, capacity: int) -> ExactState:
        return ExactState(np.full(capacity, self.temperature_start))

    def step(self, state: ExactState, observation: TemperatureObservation) -> tuple[ExactState, SamplingAction]:
        active, applied = observation.active, observation.temperature_applied
        start = np.where(active & observation.joined, self.temperature_start, state.temperature)
        with np.errstate(invalid="ignore"):
            known = active & observation.measured & (applied > 0.0) & (applied < np.inf)
        start = np.where(known, np.clip(applied, self.temperature_min, self.temperature_max), start)
        target = target_at(self.target_entropy_nats, self.target_steps, observation.token_index)
        action = SamplingAction(
            temperature=np.where(active, start, np.nan),
            target_entropy_nats=np.where(active, target, np.nan),
            temperature_min=self.temperature_min,
            temperature_max=self.temperature_max,
        )
        return ExactState(start), action
