"""Entropy-based dynamic temperature: feed-forward from the raw entropy, no loop at all."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit

from controllers.temperature.gain_bounds import check_temperatures
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, SamplingAction, TemperatureObservation
from workbench.signals import FloatArray


@dataclass(frozen=True)
class EDTState:
    temperature: FloatArray  # [capacity] T in force, held through missing measurements


@dataclass(frozen=True, kw_only=True)
class EDT:
    """T = T0 N^(theta / H_raw), clamped to [T_min, T_max].

    T0 `temperature_base`, N `base` in (0, 1), theta `theta_nats` >= 0. H_raw -> 0 gives T -> 0, held at T_min; H_raw
    large gives T -> T0. Exploring by sign (entropy high, temperature high) but harmless: H_raw does not depend on T.
    Fed with *tempered* H it would be a loop of slope theta |ln N| V / H^2.
    Source: EDT, arXiv 2403.14541, equation 3.
    Deviates: uses H_raw of the last measured token, the paper that of the token being drawn; clamped.
    Raises InputError for numbers outside their range.
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.TEMPERATURE
    sign: ClassVar[str] = "explore"
    temperature_base: float = 1.0
    base: float = 0.8
    theta_nats: float = 1.0
    temperature_min: float = 0.1
    temperature_max: float = 2.0

    def __post_init__(self) -> None:
        check_temperatures("EDT", self.temperature_min, self.temperature_base, self.temperature_max)
        if not 0.0 < self.base < 1.0:
            raise InputError(f"EDT.base must be in (0, 1), got {self.base:g}; the paper uses 0.8")
        if not 0.0 <= self.theta_nats < np.inf:
            raise InputError(f"EDT.theta_nats must be in [0, inf), got {self.theta_nats:g}; 0 is a constant T")

    def init(self, capacity: int) -> EDTState:
        return EDTState(np.full(capacity, self.temperature_base))

    def step(self, state: EDTState, observation: TemperatureObservation) -> tuple[EDTState, SamplingAction]:
        held = state.temperature.copy()
        temperature = _rows(
            observation.active,
            observation.joined,
            observation.measured,
            observation.entropy_raw_nats,
            held,
            self.temperature_base,
            self.theta_nats * np.log(self.base),
            self.temperature_min,
            self.temperature_max,
        )
        action = SamplingAction(
            temperature=temperature, temperature_min=self.temperature_min, temperature_max=self.temperature_max
        )
        return EDTState(held), action


@njit(cache=True)
def _rows(active, joined, measured, entropy_raw, held, t_base, theta_ln_n, t_min, t_max):
    temperature = np.full(active.shape[0], np.nan)
    for i in range(active.shape[0]):
        if not active[i]:
            continue
        if joined[i]:
            held[i] = t_base
        h = entropy_raw[i]
        if measured[i] and np.isfinite(h):
            # theta_ln_n <= 0; at H_raw = 0 the exponent is -inf (0 when theta is 0) and T is held at the clamp.
            t = t_base * np.exp(theta_ln_n / h) if h > 0.0 else (t_base if theta_ln_n == 0.0 else 0.0)
            held[i] = min(max(t, t_min), t_max)
        temperature[i] = held[i]
    return temperature
