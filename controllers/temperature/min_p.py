"""Min-p truncation around any temperature law."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from controllers.wrappers import CertificateEffect, check_inner
from workbench.errors import InputError
from workbench.protocols import Controller, DecisionPoint, SamplingAction, TemperatureObservation


@dataclass(frozen=True)
class MinP:
    """Keep the tokens with p >= `min_p` max p, renormalise.

    Order: T first, then min-p, then top-H, then Mirostat; each renormalises what the one before left. H and V are
    measured before any truncation, so the loop inside, and its certificate, do not change.
    Source: min-p sampling, arXiv 2407.01082. Raises InputError unless min_p is in [0, 1].
    """

    inner: Controller[TemperatureObservation, Any, SamplingAction]
    min_p: float = 0.05
    point: ClassVar[DecisionPoint] = DecisionPoint.TEMPERATURE
    action_type: ClassVar[type] = SamplingAction

    def __post_init__(self) -> None:
        check_inner("MinP", self.inner)
        if not 0.0 <= self.min_p <= 1.0:
            raise InputError(f"MinP.min_p must be in [0, 1], got {self.min_p:g}; 0 keeps every token")

    @property
    def certificate_effect(self) -> CertificateEffect:
        return CertificateEffect(True, 0, "entropy is measured before truncation")

    def init(self, capacity: int) -> Any:
        return self.inner.init(capacity)

    def step(self, state: Any, observation: TemperatureObservation) -> tuple[Any, SamplingAction]:
        state, action = self.inner.step(state, observation)
        return state, replace(action, min_p=np.where(observation.active, self.min_p, np.nan))
