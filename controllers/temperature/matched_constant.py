"""The constant T whose mean entropy equals that of another law: the baseline that law must beat."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controllers.temperature.fixed import FixedRule
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, SamplingAction, TemperatureObservation


@dataclass(frozen=True, kw_only=True)
class MatchedConstant:
    """T = `temperature`, found so that mean H equals `matched_entropy_nats`.

    An integral law makes mean H equal H* by construction, so meeting H* on average is no merit: a constant does it too.
    What a law may win is mean |H - H*|, spread between texts, drift and NLL at *equal* mean H.
    Source: ours. Raises InputError for T outside [0, inf), or where no T in the range gives the entropy.
    """

    point: ClassVar[DecisionPoint] = DecisionPoint.TEMPERATURE
    temperature: float = 1.0
    matched_entropy_nats: float | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature < np.inf:
            raise InputError(f"MatchedConstant.temperature must be in [0, inf), got {self.temperature:g}")

    @classmethod
    def solved(
        cls, mean_entropy_nats: Callable[[float], float], target_nats: float, *, low: float = 0.1, high: float = 2.0
    ) -> "MatchedConstant":
        """Bisect on u = ln T in [low, high]; `mean_entropy_nats(T)` must not fall with T, as on recorded logits."""
        if not mean_entropy_nats(low) <= target_nats <= mean_entropy_nats(high):
            raise InputError(
                f"no constant temperature in [{low:g}, {high:g}] has mean entropy {target_nats:.4g} nats; "
                f"the range gives [{mean_entropy_nats(low):.4g}, {mean_entropy_nats(high):.4g}]"
            )
        u_low, u_high = np.log(low), np.log(high)
        for _ in range(40):
            u = 0.5 * (u_low + u_high)
            u_low, u_high = (u, u_high) if mean_entropy_nats(float(np.exp(u))) < target_nats else (u_low, u)
        return cls(temperature=float(np.exp(0.5 * (u_low + u_high))), matched_entropy_nats=target_nats)

    @classmethod
    def interpolated(
        cls, temperatures: Sequence[float], mean_entropies_nats: Sequence[float], target_nats: float
    ) -> "MatchedConstant":
        """From runs at several constant T (sampled text, so mean H is noisy): linear in ln T, made monotone first."""
        u = np.log(np.asarray(temperatures, dtype=np.float64))
        order = np.argsort(u)
        u, h = u[order], np.maximum.accumulate(np.asarray(mean_entropies_nats, dtype=np.float64)[order])
        if not h[0] <= target_nats <= h[-1]:
            raise InputError(
                f"mean entropy {target_nats:.4g} nats lies outside what T in [{np.exp(u[0]):.3g}, {np.exp(u[-1]):.3g}] "
                f"gave, [{h[0]:.4g}, {h[-1]:.4g}]; run more temperatures"
            )
        return cls(temperature=float(np.exp(np.interp(target_nats, h, u))), matched_entropy_nats=target_nats)

    def init(self, capacity: int) -> None:
        return None

    def step(self, state: None, observation: TemperatureObservation) -> tuple[None, SamplingAction]:
        return None, SamplingAction(temperature=np.where(observation.active, self.temperature, np.nan))

    def compiled(self, state: None, width: int) -> FixedRule:
        """As in `controllers.compiled`."""
        return FixedRule(float(self.temperature))
