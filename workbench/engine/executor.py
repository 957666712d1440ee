"""The seam between the two plants: the engine forms a `Batch`, an `Executor` carries it out and returns a `StepResult`.

The simulated executor (`sims/executor.py`) computes an elapsed time from a step-cost model and draws entropies and
block masses from processes; the live one (`workbench/live/executor.py`) runs the model and its kernels. Everything else,
request life cycle, KV blocks, batching, delay, decision points, is the same code.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from workbench.protocols import KeepAction, SamplingAction
from workbench.signals import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, kw_only=True)
class RequestSpec:
    """All requests of a run, one array each, sorted by arrival (ties in file order). Row index is `request_id`."""

    arrival_s: FloatArray
    prompt_tokens: IntArray
    output_tokens: IntArray  # true output length where known (trace, simulator), else the cap `max_tokens`
    kind: IntArray  # index into `kind_names`
    priority: IntArray
    kind_names: tuple[str, ...] = ("any",)

    def __len__(self) -> int:
        return self.arrival_s.shape[0]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One engine step: n rows, each a decode token or a chunk of prefill. Shapes [n] unless said otherwise."""

    step: int
    slot: IntArray
    request_id: IntArray
    start: IntArray  # tokens of the row already in the KV cache
    num_tokens: IntArray  # tokens computed in this step: 1 for a decode, a chunk length for a prefill
    samples: BoolArray  # the row reaches the end of its known tokens, so a token is drawn
    token_index: IntArray  # index of that token among the request's outputs, 0 for the first
    prompt_tokens: IntArray
    output_tokens: IntArray  # length (known or cap) after which the request ends
    kind: IntArray
    num_blocks: IntArray  # logical blocks of the row, those written in this step included
    block_table: IntArray  # [n, max_blocks] physical block of each logical block, -1 beyond `num_blocks` or evicted
    block_size: int


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What a step did. Measurements have shape [n], NaN where the row drew no token or cannot say."""

    elapsed_s: float
    energy_j: float  # NaN where there is no power model
    flops: float
    kv_bytes_read: float  # as really read, after pruning
    kv_bytes_dense: float  # what reading every block would have taken
    token_id: IntArray  # -1 where no token was drawn
    ended: BoolArray  # end of sequence drawn
    entropy_raw_nats: FloatArray
    varentropy_raw_nats2: FloatArray
    entropy_nats: FloatArray
    varentropy_nats2: FloatArray
    surprisal_nats: FloatArray  # under the tempered distribution it was drawn from
    surprisal_raw_nats: FloatArray  # under T = 1 without truncation: the quality measure is its mean
    temperature_applied: FloatArray
    block_mass: FloatArray | None  # [n, max_blocks], only for rows that decode; see `KeepObservation.block_mass`
    dropped_mass: FloatArray  # attention mass not read, mean over layers and query heads; 0 with no pruning
    evicted: BoolArray | None = None  # [n, max_blocks] logical blocks the keep rule freed for good


class Executor(Protocol):
    """Carries out one batch. `sampling` and `keep` are indexed by slot; None means the default everywhere."""

    def admit(self, request_id: int, slot: int) -> None:
        """A request takes a slot (once, before its first batch)."""
        ...

    def release(self, request_id: int, slot: int) -> None:
        """The request has ended and its slot is free."""
        ...

    def execute(self, batch: Batch, sampling: SamplingAction | None, keep: KeepAction | None) -> StepResult: ...

    def marginal_step_s(self, start: IntArray, num_tokens: IntArray) -> FloatArray:
        """Seconds each row would add to the next step: the scheduler's cost."""
        ...


def no_measurement(n: int) -> FloatArray:
    return np.full(n, np.nan)
