"""PI in positional form with back-calculation: the textbook form, for comparison with the velocity form."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit

from controllers.temperature.feedback import check_feedback, check_finite
from controllers.temperature.gain_bounds import check_integral_gain, integral_gain_limit
from controllers.temperature.setpoint import TargetSteps, target_at
from controllers.temperature.velocity import SAME_LOG_TEMPERATURE
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, SamplingAction, TemperatureObservation
from workbench.signals import FloatArray, IntArray


@dataclass(frozen=True)
class PositionalState:
    integral: FloatArray  # [capacity] I, in nepers
    log_temperature: FloatArray  # [capacity] u in force, clamped
    asked_step: IntArray  # [capacity, delay_steps + 1] engine steps of the latest requests, newest first; -1 none
    asked_output: FloatArray  # [capacity, delay_steps + 1] v before the clamp in them


@dataclass(frozen=True, kw_only=True)
class PositionalPI:
    """v = u_start + k_p e + I,  u = clip(v),  I+ = I + k_i e + k_t b,  e = H* - H.

    b is back-calculation: min(v, ln T_a) - v where clamp or plant applied a T_a below what was asked, max(v, ln T_a) - v
    where above, else 0, so the integral is drawn to what was really applied by the share k_t `tracking_gain` in (0, 1]
    (0 switches anti-windup off and needs `unsafe`).
    A step of H* kicks T by k_p at once, unlike the velocity form. Gain interval and other fields as in `PITemperature`
    (the linear loop is the same). A missing measurement holds T and I.
    Source: arXiv 2603.03310 (positional PI); back-calculation: Astrom and Hagglund, chapter 3.
    Raises InputError as `PITemperature` does, and for k_t outside its range.
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.TEMPERATURE
    sign: ClassVar[str] = "stabilise"
    target_entropy_nats: float
    vocab_size: int
    k_i: float | None = None
    k_p: float = 0.0
    tracking_gain: float = 1.0
    delay_steps: int = 0
    target_steps: TargetSteps = ()
    temperature_start: float = 1.0
    temperature_min: float = 0.1
    temperature_max: float = 2.0
    unsafe: bool = False

    def __post_init__(self) -> None:
        check_feedback(self)
        owner = type(self).__name__
        if self.k_i is None:
            limit = integral_gain_limit(self.vocab_size, self.delay_steps, self.k_p)
            object.__setattr__(self, "k_i", 0.5 * limit)
        check_finite(owner, k_i=self.gain, k_p=self.k_p)
        if not self.unsafe:
            check_integral_gain(
                owner, self.gain, vocab_size=self.vocab_size, delay_steps=self.delay_steps, k_p=self.k_p
            )
        if not (0.0 < self.tracking_gain <= 1.0 or (self.unsafe and self.tracking_gain == 0.0)):
            raise InputError(
                f"{owner}.tracking_gain must be in (0, 1], got {self.tracking_gain:g}; 0 winds up, pass unsafe=True"
            )

    @property
    def gain(self) -> float:
        """k_i as used."""
        assert self.k_i is not None
        return self.k_i

    def init(self, capacity: int) -> PositionalState:
        return PositionalState(
            integral=np.zeros(capacity),
            log_temperature=np.full(capacity, math.log(self.temperature_start)),
            asked_step=np.full((capacity, self.delay_steps + 1), -1, dtype=np.int64),
            asked_output=np.zeros((capacity, self.delay_steps + 1)),
        )

    def step(
        self, state: PositionalState, observation: TemperatureObservation
    ) -> tuple[PositionalState, SamplingAction]:
        new = PositionalState(
            integral=state.integral.copy(),
            log_temperature=state.log_temperature.copy(),
            asked_step=state.asked_step.copy(),
            asked_output=state.asked_output.copy(),
        )
        temperature = _rows(
            observation.step,
            observation.active,
            observation.joined,
            observation.measured,
            observation.measured_step,
            observation.entropy_nats,
            observation.temperature_applied,
            target_at(self.target_entropy_nats, self.target_steps, observation.token_index),
            new.integral,
            new.log_temperature,
            new.asked_step,
            new.asked_output,
            self.gain,
            self.k_p,
            self.tracking_gain,
            math.log(self.temperature_start),
            math.log(self.temperature_min),
            math.log(self.temperature_max),
            math.log(self.vocab_size),
        )
        action = SamplingAction(
            temperature=temperature, temperature_min=self.temperature_min, temperature_max=self.temperature_max
        )
        return new, action


@njit(cache=True)
def _rows(
    step,
    active,
    joined,
    measured,
    measured_step,
    entropy,
    temperature_applied,
    target,
    integral,  # the four arrays of the new state, written in place
    u,
    asked_step,
    asked_output,
    k_i,
    k_p,
    k_t,
    u_start,
    u_min,
    u_max,
    entropy_limit,
):
    num_slots = active.shape[0]
    depth = asked_step.shape[1]
    temperature = np.full(num_slots, np.nan)
    t_min, t_max = math.exp(u_min), math.exp(u_max)
    for i in range(num_slots):
        if not active[i]:
            continue
        if joined[i]:
            integral[i] = 0.0
            u[i] = u_start
            for j in range(depth):
                asked_step[i, j] = -1
        output = u[i] if asked_step[i, 0] < 0 else asked_output[i, 0]
        if measured[i] and math.isfinite(entropy[i]):
            h = min(max(entropy[i], 0.0), entropy_limit)
            applied = temperature_applied[i]
            if applied > 0.0 and applied < np.inf:
                for j in range(depth):
                    if asked_step[i, j] == measured_step[i] and asked_step[i, j] >= 0:
                        u_applied = math.log(applied)
                        if u_applied < asked_output[i, j] - SAME_LOG_TEMPERATURE:
                            integral[i] += k_t * (min(output, u_applied) - output)
                        elif u_applied > asked_output[i, j] + SAME_LOG_TEMPERATURE:
                            integral[i] += k_t * (max(output, u_applied) - output)
                        break
            error = target[i] - h
            integral[i] += k_i * error
            output = u_start + k_p * error + integral[i]
            u[i] = min(max(output, u_min), u_max)
        for j in range(depth - 1, 0, -1):
            asked_step[i, j] = asked_step[i, j - 1]
            asked_output[i, j] = asked_output[i, j - 1]
        asked_step[i, 0] = step
        asked_output[i, 0] = output
        temperature[i] = min(max(math.exp(u[i]), t_min), t_max)
    return temperature
