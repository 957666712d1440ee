"""Several temperature laws in one batch: each governs its own requests. Nothing is shared but the forward pass."""

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np

from workbench.protocols import DecisionPoint, SamplingAction, TemperatureObservation, blank_like
from workbench.signals import FloatArray

# What an optional law says where it does nothing.
OFF = {"target_entropy_nats": np.nan, "min_p": 0.0, "top_h": 1.0, "mirostat_mu_nats": np.inf}


def laws_used(controller: Any) -> tuple[str, ...]:
    """The optional fields of `SamplingAction` this controller fills: laws that cost time only where they are asked for."""
    observation = TemperatureObservation(step=0, **blank_like(TemperatureObservation, 1))
    _, action = controller.step(controller.init(1), observation)
    return tuple(name for name in OFF if getattr(action, name) is not None)


@dataclass(frozen=True)
class SideBySide:
    """Part i governs requests i `num_requests` .. (i + 1) `num_requests` - 1."""

    parts: tuple[Any, ...]
    num_requests: int
    point: ClassVar[DecisionPoint] = DecisionPoint.TEMPERATURE

    def init(self, capacity: int) -> tuple[Any, ...]:
        return tuple(part.init(capacity) for part in self.parts)

    def step(
        self, state: tuple[Any, ...], observation: TemperatureObservation
    ) -> tuple[tuple[Any, ...], SamplingAction]:
        owner = observation.request_id // self.num_requests
        merged: dict[str, FloatArray] = {"temperature": np.full(observation.num_slots, np.nan)}
        states, lows, highs = [], [], []
        for index, (part, before) in enumerate(zip(self.parts, state, strict=True)):
            mine = observation.active & (owner == index)
            after, action = part.step(before, replace(observation, active=mine, joined=observation.joined & mine))
            states.append(after)
            lows.append(action.temperature_min)
            highs.append(action.temperature_max)
            for field in fields(action):
                value = getattr(action, field.name)
                if isinstance(value, np.ndarray):
                    base = merged.setdefault(field.name, np.full(observation.num_slots, OFF.get(field.name, np.nan)))
                    base[mine] = value[mine]
        return tuple(states), SamplingAction(**merged, temperature_min=min(lows), temperature_max=max(highs))
