"""The velocity form that the feedback temperature laws share: one row of the law, and its state.

With u = ln T, H the tempered entropy the plant measured and T_a the temperature it really applied for it,

    base = min(u, ln T_a) where T_a < T_asked,  max(u, ln T_a) where T_a > T_asked,  else u            (anti-windup)
    du   = k_i (H* - H_k) + k_p (H_{k-1} - H_k) - k_d (H_k - 2 H_{k-1} + H_{k-2})
    du   = du / max(V, V_floor)                          only where the law is gain-scheduled
    u    = clip(base + clip(du, -max_step, max_step), ln T_min, ln T_max)

T_asked is what this controller asked for in the engine step the measurement came from, found by `measured_step` among
the last `delay_steps` + 1 requests. Where the actuator was held below (above) the wish, the state is pulled down (up) to
it, never beyond it. With delay 0 that is base = ln T_a. Adding ln T_a - ln T_asked to u instead, as with delay 0, would
answer one and the same saturation d + 1 times over and ring for ever.
*Anchored* laws take base = ln T_a itself. A row without a new, finite measurement holds its T.
H is read within [0, ln n] and V within [0, V_max], where every true value lies.
Source: ours; velocity form and tracking anti-windup as in Astrom and Hagglund, PID Controllers, chapter 3.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from controllers.temperature.setpoint import TargetSteps
from workbench.protocols import SamplingAction, TemperatureObservation
from workbench.signals import FloatArray, IntArray

# A temperature that went through float32 on its way to the plant is still the one that was asked for.
SAME_LOG_TEMPERATURE = 1e-6


@dataclass(frozen=True)
class VelocityState:
    """One row per slot."""

    log_temperature: FloatArray  # [capacity] u, inside the clamp
    asked_step: IntArray  # [capacity, delay_steps + 1] engine steps of the latest requests, newest first; -1 none
    asked_log_temperature: FloatArray  # [capacity, delay_steps + 1] what was asked for in them
    entropy_nats: FloatArray  # [capacity, 2] H_{k-1} and H_{k-2}, NaN before they were measured
    saturated_tokens: IntArray  # [capacity] tokens in a row at a clamp with the target still beyond it


@dataclass(frozen=True)
class VelocityGains:
    """Numbers of one law. `varentropy_floor` above 0 turns gain scheduling on."""

    k_i: float
    k_p: float
    k_d: float
    varentropy_floor: float
    max_step: float
    anchored: bool
    temperature_start: float
    temperature_min: float
    temperature_max: float
    entropy_limit: float
    varentropy_limit: float


def velocity_init(capacity: int, delay_steps: int, temperature_start: float) -> VelocityState:
    return VelocityState(
        log_temperature=np.full(capacity, math.log(temperature_start)),
        asked_step=np.full((capacity, delay_steps + 1), -1, dtype=np.int64),
        asked_log_temperature=np.zeros((capacity, delay_steps + 1)),
        entropy_nats=np.full((capacity, 2), np.nan),
        saturated_tokens=np.zeros(capacity, dtype=np.int64),
    )


def velocity_step(
    state: VelocityState, observation: TemperatureObservation, target_nats: FloatArray, gains: VelocityGains
) -> tuple[VelocityState, SamplingAction]:
    """One decision for every active row. target_nats: [num_slots]."""
    new = VelocityState(
        log_temperature=state.log_temperature.copy(),
        asked_step=state.asked_step.copy(),
        asked_log_temperature=state.asked_log_temperature.copy(),
        entropy_nats=state.entropy_nats.copy(),
        saturated_tokens=state.saturated_tokens.copy(),
    )
    temperature = _velocity_rows(
        observation.step,
        observation.active,
        observation.joined,
        observation.measured,
        observation.measured_step,
        observation.entropy_nats,
        observation.varentropy_nats2,
        observation.temperature_applied,
        target_nats,
        new.log_temperature,
        new.asked_step,
        new.asked_log_temperature,
        new.entropy_nats,
        new.saturated_tokens,
        gains.k_i,
        gains.k_p,
        gains.k_d,
        gains.varentropy_floor,
        gains.max_step,
        gains.anchored,
        math.log(gains.temperature_start),
        math.log(gains.temperature_min),
        math.log(gains.temperature_max),
        gains.entropy_limit,
        gains.varentropy_limit,
    )
    action = SamplingAction(
        temperature=temperature, temperature_min=gains.temperature_min, temperature_max=gains.temperature_max
    )
    return new, action


@njit(cache=True)
def _velocity_rows(
    step,
    active,
    joined,
    measured,
    measured_step,
    entropy,
    varentropy,
    temperature_applied,
    target,
    u,  # the five arrays of the new state, written in place
    asked_step,
    asked_u,
    past_entropy,
    saturated,
    k_i,
    k_p,
    k_d,
    varentropy_floor,
    max_step,
    anchored,
    u_start,
    u_min,
    u_max,
    entropy_limit,
    varentropy_limit,
):
    num_slots = active.shape[0]
    depth = asked_step.shape[1]
    temperature = np.full(num_slots, np.nan)
    t_min, t_max = math.exp(u_min), math.exp(u_max)
    for i in range(num_slots):
        if not active[i]:
            continue
        if joined[i]:
            u[i] = u_start
            past_entropy[i, 0] = np.nan
            past_entropy[i, 1] = np.nan
            saturated[i] = 0
            for j in range(depth):
                asked_step[i, j] = -1
        if measured[i] and math.isfinite(entropy[i]):
            h = min(max(entropy[i], 0.0), entropy_limit)
            base = u[i]
            applied = temperature_applied[i]
            if applied > 0.0 and applied < np.inf:
                u_applied = math.log(applied)
                for j in range(depth):
                    if asked_step[i, j] == measured_step[i] and asked_step[i, j] >= 0:
                        if u_applied < asked_u[i, j] - SAME_LOG_TEMPERATURE:
                            base = min(base, u_applied)
                        elif u_applied > asked_u[i, j] + SAME_LOG_TEMPERATURE:
                            base = max(base, u_applied)
                        break
                if anchored:
                    base = u_applied
            h1 = past_entropy[i, 0]
            h2 = past_entropy[i, 1]
            du = k_i * (target[i] - h)
            if math.isfinite(h1):
                du += k_p * (h1 - h)
                if math.isfinite(h2):
                    du -= k_d * (h - 2.0 * h1 + h2)
            if varentropy_floor > 0.0:
                v = varentropy_limit  # unknown: the cautious gain
                if math.isfinite(varentropy[i]):
                    v = min(max(varentropy[i], 0.0), varentropy_limit)
                du /= max(v, varentropy_floor)
            wanted = base + min(max(du, -max_step), max_step)
            u[i] = min(max(wanted, u_min), u_max)
            saturated[i] = saturated[i] + 1 if u[i] != wanted else 0
            past_entropy[i, 1] = h1
            past_entropy[i, 0] = h
        for j in range(depth - 1, 0, -1):
            asked_step[i, j] = asked_step[i, j - 1]
            asked_u[i, j] = asked_u[i, j - 1]
        asked_step[i, 0] = step
        asked_u[i, 0] = u[i]
        temperature[i] = min(max(math.exp(u[i]), t_min), t_max)
    return temperature


def velocity_rule(
    state: VelocityState, target_entropy_nats: float, target_steps: TargetSteps, gains: VelocityGains
) -> "VelocityRule | None":
    """The compiled step of a law (`controllers.compiled`), for a target that stays."""
    if target_steps:
        return None
    start, low, high = gains.temperature_start, gains.temperature_min, gains.temperature_max
    return VelocityRule(
        np.full(state.log_temperature.shape[0], target_entropy_nats), state.log_temperature.copy(),
        state.asked_step.copy(), state.asked_log_temperature.copy(), state.entropy_nats.copy(),
        state.saturated_tokens.copy(), float(gains.k_i), float(gains.k_p), float(gains.k_d),
        float(gains.varentropy_floor), float(gains.max_step), bool(gains.anchored), math.log(start), math.log(low), math.log(high), gains.entropy_limit, gains.varentropy_limit,
        float(low), float(high),
    )  # fmt: skip


@njit(cache=True)
def _decide(rule, view, out):
    out[:] = _velocity_rows(
        view.step, view.active, view.joined, view.measured, view.measured_step, view.entropy_nats,
        view.varentropy_nats2, view.temperature_applied, rule.target, rule.u, rule.asked_step, rule.asked_u,
        rule.past_entropy, rule.saturated, rule.k_i, rule.k_p, rule.k_d, rule.varentropy_floor, rule.max_step,
        rule.anchored, rule.u_start, rule.u_min, rule.u_max, rule.entropy_limit, rule.varentropy_limit,
    )  # fmt: skip


class VelocityRule(NamedTuple):
    """A law in the velocity form as compiled code has it: target, state, gains."""

    target: FloatArray
    u: FloatArray
    asked_step: IntArray
    asked_u: FloatArray
    past_entropy: FloatArray
    saturated: IntArray
    k_i: float
    k_p: float
    k_d: float
    varentropy_floor: float
    max_step: float
    anchored: bool
    u_start: float
    u_min: float
    u_max: float
    entropy_limit: float
    varentropy_limit: float
    temperature_min: float
    temperature_max: float

    decide = _decide

    def state(self, shown_width: int) -> VelocityState:
        return VelocityState(self.u, self.asked_step, self.asked_u, self.past_entropy, self.saturated)
