"""The seam between the two plants: the engine forms a `Batch`, an `Executor` carries it out and returns a `StepResult`.

The simulated executor (`sims/executor.py`) computes an elapsed time from a step-cost model and draws entropies and
block masses from processes; the live one (`workbench/live/executor.py`) runs the model and its kernels. Everything
else, request life cycle, KV blocks, batching, delay, decision points, is the same code.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from workbench.engine.requests import RequestSpec as RequestSpec
from workbench.protocols import KeepAction, SamplingAction
from workbench.signals import BoolArray, FloatArray, IntArray


@dataclass(kw_only=True, slots=True)
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
    slot_block_table: NDArray[np.int32]  # [num_slots, max_blocks]; see `block_table`
    block_size: int
    copy_s: float = 0.0  # seconds that swapped KV takes to and from host memory before the forward pass

    @property
    def block_table(self) -> NDArray[np.int32]:
        """[n, max_blocks] physical block of each logical block of a row, -1 beyond `num_blocks` or evicted."""
        return self.slot_block_table[self.slot]


@dataclass(kw_only=True, slots=True)
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
    block_mass: FloatArray | None  # [n, width]; a row of NaN says nothing new; None: no row does. See `KeepObservation`
    dropped_mass: FloatArray  # attention mass not read, mean over layers and query heads; 0 with no pruning
    told: BoolArray | None = None  # [n] rows of `block_mass` that say something new; None: those not all NaN
    evicted: BoolArray | None = None  # [n, width] logical blocks the keep rule freed for good
    extra: Mapping[str, NDArray[Any]] = field(
        default_factory=dict
    )  # more measurements, first axis n; recorded as they are

    def extra_rows(self, rows: IntArray) -> dict[str, NDArray[Any]]:
        return {name: values[rows] for name, values in self.extra.items()}


class Executor(Protocol):
    """Carries out one batch. `sampling` and `keep` are indexed by slot; None means the default everywhere."""

    vocab_size: int

    def admit(self, request_id: int, slot: int) -> None:
        """A request takes a slot (once, before its first batch)."""
        ...

    def release(self, request_id: int, slot: int) -> None:
        """The request has ended and its slot is free."""
        ...

    def lose_kv(self, slot: int) -> None:
        """The slot was preempted and its KV dropped; its request stays and will be computed again."""
        ...

    def execute(self, batch: Batch, sampling: SamplingAction | None, keep: KeepAction | None) -> StepResult: ...

    def marginal_step_s(self, start: IntArray, num_tokens: IntArray) -> FloatArray:
        """Seconds each row would add to the next step: the scheduler's cost."""
        ...


@runtime_checkable
class BeginsEarly(Protocol):
    """An executor that can start the pass of a batch before its temperatures are known; `execute` then ends it."""

    def begin(self, batch: Batch, keep: KeepAction | None) -> None: ...
