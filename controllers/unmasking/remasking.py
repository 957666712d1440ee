"""Remasking: positions revealed with little confidence are masked again and get a second chance."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from workbench.errors import InputError
from workbench.protocols import Controller, DecisionPoint, RevealAction, RevealObservation
from workbench.signals import FloatArray, IntArray


@dataclass(frozen=True)
class RemaskState:
    inner: Any
    confidence: FloatArray  # [capacity, length] last confidence seen while the position was masked, NaN before
    times: IntArray  # [capacity, length] how often it was masked again


@dataclass(frozen=True)
class Remasking:
    """Around any policy: a revealed position whose confidence at its reveal was below `threshold` is masked again, the least
    sure first, at most `count` an iteration and `max_times` a position.

    At most length x (1 + max_times) positions are revealed in all, so decoding ends. Only positions of earlier iterations
    are masked again, and only while others are still masked, when the context has grown. The joint distribution of such a
    sampler is no product along an order: the accounts of divergence refuse it.
    Source: remasking as in ReMDM (arXiv 2503.00307). Deviates: by confidence, deterministic, with a cap per position.
    Raises InputError for numbers outside their range or an `inner` that is no unmasking policy.
    """

    inner: Controller[RevealObservation, Any, RevealAction]
    threshold: float = 0.5
    count: int = 2
    max_times: int = 1
    point: ClassVar[DecisionPoint] = DecisionPoint.REVEAL
    action_type: ClassVar[type] = RevealAction
    remasks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if getattr(self.inner, "point", None) is not DecisionPoint.REVEAL:
            raise InputError(f"Remasking wraps an unmasking policy, got {type(self.inner).__name__}")
        if not 0.0 <= self.threshold <= 1.0:
            raise InputError(f"Remasking.threshold must be in [0, 1], got {self.threshold:g}")
        if self.count < 1 or self.max_times < 1:
            raise InputError(
                f"Remasking needs count and max_times of at least 1, got {self.count} and {self.max_times}"
            )

    @property
    def needs_divergence(self) -> bool:
        return getattr(self.inner, "needs_divergence", False)

    def init(self, capacity: int) -> RemaskState:
        return RemaskState(
            self.inner.init(capacity),
            np.full((capacity, 0), np.nan),
            np.zeros((capacity, 0), dtype=np.int64),
        )

    def step(self, state: RemaskState, observation: RevealObservation) -> tuple[RemaskState, RevealAction]:
        num_slots, length = observation.masked.shape
        kept = np.where(observation.joined, False, True)[:, None]
        masked, active = observation.masked, observation.active[:, None]

        def wide(values: Any, blank: Any, fill: Any) -> Any:
            out = np.full((num_slots, length), blank, dtype=values.dtype)
            width = min(length, values.shape[1])
            out[:, :width] = values[:, :width]
            return out, np.where(kept, out, fill)

        old_confidence, confidence = wide(state.confidence, np.nan, np.nan)
        old_times, times = wide(state.times, 0, 0)
        inner, action = self.inner.step(state.inner, observation)

        doubtful = active & ~masked & (confidence < self.threshold) & (times < self.max_times)
        doubtful &= np.any(masked, axis=1, keepdims=True)
        order = np.argsort(np.where(doubtful, confidence, np.inf), axis=1, kind="stable")
        chosen = np.zeros_like(doubtful)
        first = order[:, : self.count]
        np.put_along_axis(chosen, first, np.take_along_axis(doubtful, first, axis=1), axis=1)
        new = RemaskState(
            inner,
            np.where(active, np.where(masked, observation.confidence, confidence), old_confidence),
            np.where(active, times + chosen, old_times),
        )
        return new, replace(action, remask=chosen)
