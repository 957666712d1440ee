"""Behaviour added to a temperature law from outside: rate limit, delay, saturation.

A wrapper is a controller around a controller. Each declares the action type it may wrap and what it does to a
certificate of the law inside, so that a certificate is asked for the loop as built:

    RateLimited   u moves by at most `max_step` a token      keeps nonexpansive: the slope of clip is 0 or 1
    Saturated     T clipped to [low, high]                   keeps nonexpansive: a projection
    Delayed       T asked for `steps` tokens earlier         adds `steps` to the delay the certificate is asked at

Back-calculation in the law inside sees the temperature that was really applied, so it does not wind up behind a wrapper.
Source: ours.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from workbench.errors import InputError
from workbench.protocols import Controller, DecisionPoint, SamplingAction, TemperatureObservation
from workbench.signals import FloatArray


@dataclass(frozen=True)
class CertificateEffect:
    """What wrapping does to a certificate of the law inside."""

    keeps_nonexpansive: bool
    delay_steps: int
    why: str


def certificate_effects(controller: Any) -> tuple[CertificateEffect, ...]:
    """Effects of every wrapper around a law, outermost first; empty for a bare law."""
    effects: list[CertificateEffect] = []
    while hasattr(controller, "certificate_effect"):
        effects.append(controller.certificate_effect)
        controller = controller.inner
    return tuple(effects)


def wrapped_delay_steps(controller: Any) -> int:
    """Delay that wrappers add; a certificate is asked for at the plant's delay plus this."""
    return sum(effect.delay_steps for effect in certificate_effects(controller))


def law_inside(controller: Any) -> Any:
    """The bare law under any wrappers."""
    while hasattr(controller, "inner"):
        controller = controller.inner
    return controller


def check_inner(owner: str, inner: Any) -> None:
    point = getattr(inner, "point", None)
    if point is not DecisionPoint.TEMPERATURE:
        given = type(inner).__name__
        raise InputError(f"{owner} wraps a temperature law (its action is SamplingAction), got {given}; unwrap it")


@dataclass(frozen=True)
class WrapperState:
    inner: Any
    log_temperature: FloatArray  # [capacity] u asked for last, NaN before the first


@dataclass(frozen=True)
class RateLimited:
    """u_k = u_{k-1} + clip(u_wanted - u_{k-1}, -max_step, max_step) with u = ln T; a row's first T is free.

    `max_step` in nepers a token (0.1 is about 10 %). Raises InputError unless it is above 0, or if the law inside
    solves for T within the step, where there is nothing to limit.
    """

    inner: Controller[TemperatureObservation, Any, SamplingAction]
    max_step: float = 0.1
    point: ClassVar[DecisionPoint] = DecisionPoint.TEMPERATURE
    action_type: ClassVar[type] = SamplingAction

    def __post_init__(self) -> None:
        check_inner("RateLimited", self.inner)
        if not 0.0 < self.max_step < np.inf:
            raise InputError(f"RateLimited.max_step must be in (0, inf) nepers a token, got {self.max_step:g}")
        law = law_inside(self.inner)
        if getattr(law, "solves_in_step", False):
            raise InputError(
                f"RateLimited cannot wrap {type(law).__name__}: it solves for T within the step; use Saturated"
            )

    @property
    def certificate_effect(self) -> CertificateEffect:
        return CertificateEffect(True, 0, "u + clip(f(u) - u) has slope 1 or that of f")

    def init(self, capacity: int) -> WrapperState:
        return WrapperState(self.inner.init(capacity), np.full(capacity, np.nan))

    def step(self, state: WrapperState, observation: TemperatureObservation) -> tuple[WrapperState, SamplingAction]:
        inner, action = self.inner.step(state.inner, observation)
        wanted = np.log(np.maximum(action.temperature, np.finfo(float).tiny))
        last = np.where(observation.joined, np.nan, state.log_temperature)
        limited = last + np.clip(wanted - last, -self.max_step, self.max_step)
        asked = np.where(np.isnan(last) | (limited == wanted), wanted, limited)
        temperature = np.where(asked == wanted, action.temperature, np.exp(asked))
        kept = np.where(observation.active, asked, state.log_temperature)
        return WrapperState(inner, kept), replace(action, temperature=temperature)


@dataclass(frozen=True)
class Saturated:
    """T clipped to [`temperature_min`, `temperature_max`], also where the plant solves for T.

    Raises InputError unless 0 <= min <= max < inf.
    """

    inner: Controller[TemperatureObservation, Any, SamplingAction]
    temperature_min: float = 0.2
    temperature_max: float = 1.5
    point: ClassVar[DecisionPoint] = DecisionPoint.TEMPERATURE
    action_type: ClassVar[type] = SamplingAction

    def __post_init__(self) -> None:
        check_inner("Saturated", self.inner)
        if not 0.0 <= self.temperature_min <= self.temperature_max < np.inf:
            raise InputError(
                "Saturated needs 0 <= temperature_min <= temperature_max < inf, "
                f"got {self.temperature_min:g} and {self.temperature_max:g}"
            )

    @property
    def certificate_effect(self) -> CertificateEffect:
        return CertificateEffect(True, 0, "a projection onto an interval is nonexpansive")

    def init(self, capacity: int) -> Any:
        return self.inner.init(capacity)

    def step(self, state: Any, observation: TemperatureObservation) -> tuple[Any, SamplingAction]:
        state, action = self.inner.step(state, observation)
        low = min(max(self.temperature_min, action.temperature_min), self.temperature_max)
        high = max(min(self.temperature_max, action.temperature_max), self.temperature_min)
        temperature = np.clip(action.temperature, self.temperature_min, self.temperature_max)
        return state, replace(action, temperature=temperature, temperature_min=low, temperature_max=high)


PER_ROW = ("temperature", "target_entropy_nats", "min_p", "top_h", "mirostat_mu_nats")


@dataclass(frozen=True)
class DelayedState:
    inner: Any
    pending: dict[str, FloatArray]  # [capacity, steps] what was asked for, newest first; NaN where nothing yet


@dataclass(frozen=True)
class Delayed:
    """Everything the law asks for reaches the plant `steps` tokens later; until then a row keeps what was asked first.

    Raises InputError unless `steps` is in 1 .. 64, or if the law inside has a `delay_steps` smaller than the delays
    around it (its gain would be checked, and its memory sized, for another loop) and is not `unsafe`.
    """

    inner: Controller[TemperatureObservation, Any, SamplingAction]
    steps: int = 1
    point: ClassVar[DecisionPoint] = DecisionPoint.TEMPERATURE
    action_type: ClassVar[type] = SamplingAction

    def __post_init__(self) -> None:
        check_inner("Delayed", self.inner)
        if not 1 <= self.steps <= 64:
            raise InputError(f"Delayed.steps must be in 1 .. 64 tokens, got {self.steps}; leave the wrapper out for 0")
        law = law_inside(self.inner)
        total = self.steps + wrapped_delay_steps(self.inner)
        declared = getattr(law, "delay_steps", total)
        if declared < total and not getattr(law, "unsafe", False):
            raise InputError(
                f"{type(law).__name__}.delay_steps must be at least {total} inside Delayed, got {declared}; "
                "give plant delay plus wrapper delay, or pass unsafe=True"
            )

    @property
    def certificate_effect(self) -> CertificateEffect:
        return CertificateEffect(True, self.steps, "a pure delay of the action adds to the delay of the loop")

    def init(self, capacity: int) -> DelayedState:
        blank = {name: np.full((capacity, self.steps), np.nan) for name in PER_ROW}
        return DelayedState(self.inner.init(capacity), blank)

    def step(self, state: DelayedState, observation: TemperatureObservation) -> tuple[DelayedState, SamplingAction]:
        inner, action = self.inner.step(state.inner, observation)
        pending = dict(state.pending)
        applied: dict[str, FloatArray] = {}
        for name in PER_ROW:
            asked = getattr(action, name)
            if asked is None:
                continue
            line = pending[name]
            fresh = observation.active & (observation.joined | np.isnan(line[:, 0]))
            line = np.where(fresh[:, None], asked[:, None], line)
            applied[name] = np.where(observation.active, line[:, -1], np.nan)
            moved = np.concatenate([asked[:, None], line[:, :-1]], axis=1)
            pending[name] = np.where(observation.active[:, None], moved, line)
        return DelayedState(inner, pending), replace(action, **applied)
