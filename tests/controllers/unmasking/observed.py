"""A hand-made observation of one or more rows, and the positions an action takes from it."""

import numpy as np

from kernels.selection_numpy import reveal_prefix
from workbench.protocols import RevealAction, RevealObservation


def observe(
    entropy,
    *,
    confidence=None,
    runner_up=None,
    divergence=None,
    masked=None,
    rank=None,
    iteration=0,
    request_id=None,
) -> RevealObservation:
    h = np.atleast_2d(np.asarray(entropy, dtype=float))
    rows, length = h.shape

    def full(values, fill):
        return np.full(h.shape, fill) if values is None else np.broadcast_to(np.asarray(values, float), h.shape).copy()

    at = np.ones(h.shape, bool) if masked is None else np.broadcast_to(np.asarray(masked, bool), h.shape).copy()
    blank = np.where(at, 1.0, np.nan)
    return RevealObservation(
        step=iteration,
        active=np.ones(rows, bool),
        joined=np.full(rows, iteration == 0),
        request_id=np.arange(rows) if request_id is None else np.asarray(request_id),
        measured=np.ones(rows, bool),
        measured_step=np.full(rows, iteration),
        iteration=np.full(rows, iteration),
        masked=at,
        entropy_nats=h * blank,
        confidence=full(confidence, 0.5) * blank,
        runner_up=full(runner_up, 0.2) * blank,
        divergence_nats=full(divergence, np.nan) * blank,
        permutation_rank=np.tile(np.arange(length), (rows, 1)) if rank is None else np.atleast_2d(np.asarray(rank)),
    )


def taken(action: RevealAction, observation: RevealObservation, row: int = 0) -> list[int]:
    """Positions of `row` the op reveals."""
    chosen = reveal_prefix(
        action.rank, action.cost, observation.masked, action.budget, action.include_crossing, action.min_count,
        action.max_count,
    )  # fmt: skip
    return np.flatnonzero(chosen[row]).tolist()


def decide(policy, observation: RevealObservation, state=None) -> list[int]:
    _, action = policy.step(policy.init(observation.num_slots) if state is None else state, observation)
    return taken(action, observation)
