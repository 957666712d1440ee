"""Semi-autoregressive blocks: any policy, confined to the leftmost block that still has masked positions."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from workbench.errors import InputError
from workbench.protocols import Controller, DecisionPoint, RevealAction, RevealObservation


@dataclass(frozen=True)
class SemiAutoregressive:
    """Blocks of `block_length` from left to right (the last may be shorter); `inner` sees only the current one as masked.

    Outside the block its measurements are NaN, as if nothing were masked there, and nothing is revealed. A policy that
    counts iterations counts those of the whole request. Lengths are never rounded up to blocks.
    Source: block decoding of LLaDA (arXiv 2502.09992) and block diffusion (arXiv 2503.09573).
    Raises InputError unless `inner` is an unmasking policy and the block length is at least 1.
    """

    inner: Controller[RevealObservation, Any, RevealAction]
    block_length: int = 32
    point: ClassVar[DecisionPoint] = DecisionPoint.REVEAL
    action_type: ClassVar[type] = RevealAction

    def __post_init__(self) -> None:
        if getattr(self.inner, "point", None) is not DecisionPoint.REVEAL:
            raise InputError(f"SemiAutoregressive wraps an unmasking policy, got {type(self.inner).__name__}")
        if self.block_length < 1:
            raise InputError(f"SemiAutoregressive.block_length must be at least 1, got {self.block_length}")

    @property
    def needs_divergence(self) -> bool:
        return getattr(self.inner, "needs_divergence", False)

    def init(self, capacity: int) -> Any:
        return self.inner.init(capacity)

    def step(self, state: Any, observation: RevealObservation) -> tuple[Any, RevealAction]:
        length = observation.masked.shape[1]
        block = np.arange(length) // self.block_length
        current = np.where(observation.masked, block, length).min(axis=1, initial=length)
        inside = observation.masked & (block == current[:, None])

        def within(values: Any) -> Any:
            return np.where(inside, values, np.nan)

        state, action = self.inner.step(
            state,
            replace(
                observation,
                masked=inside,
                entropy_nats=within(observation.entropy_nats),
                confidence=within(observation.confidence),
                runner_up=within(observation.runner_up),
                divergence_nats=within(observation.divergence_nats),
            ),
        )
        # Positions outside come after every position inside, and the count ends the batch before them.
        size = np.maximum(inside.sum(axis=1), 1)
        outside = observation.masked & observation.active[:, None] & ~inside
        rank = np.where(outside, action.rank.max(axis=1, keepdims=True) + 1 + np.arange(length), action.rank)
        return state, replace(
            action,
            rank=rank,
            max_count=np.where(observation.active, np.minimum(action.max_count, size), action.max_count),
        )
