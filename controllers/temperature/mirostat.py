"""Mirostat v2 in nats: an integral loop on the surprisal of the sampled token, acting by truncation."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit

from workbench.errors import InputError
from workbench.protocols import DecisionPoint, SamplingAction, TemperatureObservation
from workbench.signals import FloatArray


@dataclass(frozen=True)
class MirostatState:
    mu_nats: FloatArray  # [capacity] largest surprisal a token may have


@dataclass(frozen=True, kw_only=True)
class Mirostat:
    """mu+ = mu - eta (S - tau); tokens of surprisal above mu are cut, the rest renormalised, T fixed.

    S     `surprisal_nats` of the token drawn last, under the tempered distribution before the cut
    tau   `target_surprisal_nats`; eta `rate` in (0, 2)
    mu    starts at `mu_start_nats` (None: 2 tau), clamped to [0, `mu_max_nats`] so that text which is never
          surprising enough does not wind it up

    All in nats. The original counts bits: its tau = 5 bits is 3.466 nats, its S is 1.443 times ours. The most
    probable token always survives the cut. A missing surprisal holds mu.
    Source: Mirostat, arXiv 2007.14966, version 2 of the authors' code (surprisal threshold instead of top-k).
    Deviates: nats; mu clamped; composes with T (T first, then the cut).
    Raises InputError for numbers outside their range.
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.TEMPERATURE
    sign: ClassVar[str] = "stabilise"
    target_surprisal_nats: float = 3.0
    rate: float = 0.1
    mu_start_nats: float | None = None
    mu_max_nats: float = 25.0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 < self.target_surprisal_nats < np.inf:
            raise InputError(
                f"Mirostat.target_surprisal_nats must be in (0, inf), got {self.target_surprisal_nats:g}; "
                "bits times 0.6931 are nats"
            )
        if not 0.0 < self.rate < 2.0:
            raise InputError(f"Mirostat.rate must be in (0, 2), got {self.rate:g}; the paper uses 0.1")
        if self.mu_start_nats is None:
            object.__setattr__(self, "mu_start_nats", 2.0 * self.target_surprisal_nats)
        if not 0.0 <= self.start <= self.mu_max_nats < np.inf:
            raise InputError(
                f"Mirostat needs 0 <= mu_start_nats <= mu_max_nats < inf, got {self.start:g} and {self.mu_max_nats:g}"
            )
        if not 0.0 < self.temperature < np.inf:
            raise InputError(f"Mirostat.temperature must be in (0, inf), got {self.temperature:g}")

    @property
    def start(self) -> float:
        """The first mu in nats."""
        assert self.mu_start_nats is not None
        return self.mu_start_nats

    def init(self, capacity: int) -> MirostatState:
        return MirostatState(np.full(capacity, self.start))

    def step(self, state: MirostatState, observation: TemperatureObservation) -> tuple[MirostatState, SamplingAction]:
        mu = state.mu_nats.copy()
        asked = _rows(
            observation.active,
            observation.joined,
            observation.measured,
            observation.surprisal_nats,
            mu,
            self.start,
            self.rate,
            self.target_surprisal_nats,
            self.mu_max_nats,
        )
        temperature = np.where(observation.active, self.temperature, np.nan)
        return MirostatState(mu), SamplingAction(temperature=temperature, mirostat_mu_nats=asked)


@njit(cache=True)
def _rows(active, joined, measured, surprisal, mu, start, rate, target, mu_max):
    asked = np.full(active.shape[0], np.nan)
    for i in range(active.shape[0]):
        if not active[i]:
            continue
        if joined[i]:
            mu[i] = start
        if measured[i] and np.isfinite(surprisal[i]):
            mu[i] = min(max(mu[i] - rate * (surprisal[i] - target), 0.0), mu_max)
        asked[i] = mu[i]
    return asked
