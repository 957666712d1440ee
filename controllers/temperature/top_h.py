"""Top-H truncation around any temperature law."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from controllers.wrappers import CertificateEffect, check_inner
from workbench.errors import InputError
from workbench.protocols import Controller, DecisionPoint, SamplingAction, TemperatureObservation


@dataclass(frozen=True)
class TopH:
    """Keep the largest prefix, in falling p, whose entropy is at most `top_h` H.

    Order: T first, then min-p, then top-H, then Mirostat; each renormalises what the one before left. H and V are
    measured before any truncation, so the loop inside, and its certificate, do not change.
    Source: top-H decoding, arXiv 2509.02510. Raises InputError unless top_h is in (0, 1].
    """

    inner: Controller[TemperatureObservation, Any, SamplingAction]
    top_h: float = 0.4
    point: ClassVar[DecisionPoint] = DecisionPoint.TEMPERATURE
    action_type: ClassVar[type] = SamplingAction

    def __post_init__(self) -> None:
        check_inner("TopH", self.inner)
        if not 0.0 < self.top_h <= 1.0:
            raise InputError(f"TopH.top_h must be in (0, 1], got {self.top_h:g}; 1 keeps every token")

    @property
    def certificate_effect(self) -> CertificateEffect:
        return CertificateEffect(True, 0, "entropy is measured before truncation")

    def init(self, capacity: int) -> Any:
        return self.inner.init(capacity)

    def step(self, state: Any, observation: TemperatureObservation) -> tuple[Any, SamplingAction]:
        state, action = self.inner.step(state, observation)
        return state, replace(action, top_h=np.where(observation.active, self.top_h, np.nan))
