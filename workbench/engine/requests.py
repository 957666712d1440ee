"""Requests and their life cycle: what was asked, and when each thing happened to it.

arrives -> (backlog until a slot is free) -> waiting -> running <-> paused (KV kept)
                                                ^           |
                                                +-----------+ preempted (KV freed, recomputed)
running -> completed;   on arrival -> refused (can never fit, or the queue is full);   at the horizon -> unfinished
any time -> timed out (by the engine) or cancelled (by the client): it leaves before the next batch is formed
"""

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from workbench.engine.prompt_blocks import PromptBlocks
from workbench.signals import FloatArray, IntArray


class RequestStatus(IntEnum):
    """Every request of a run is in exactly one of these when it ends."""

    NOT_ARRIVED = 0
    WAITING = 1  # arrived, holds no KV blocks (preempted requests are waiting again)
    RUNNING = 2  # holds KV blocks (paused ones too)
    COMPLETED = 3
    REFUSED = 4  # longer than the context limit or the whole cache, or turned away by `max_queue`
    TIMED_OUT = 5
    CANCELLED = 6


@dataclass(frozen=True, kw_only=True)
class RequestSpec:
    """All requests of a run, one array each, sorted by arrival (ties in file order). Row index is `request_id`."""

    arrival_s: FloatArray
    prompt_tokens: IntArray
    output_tokens: IntArray  # true output length where known (trace, simulator), else the cap `max_tokens`
    kind: IntArray  # index into `kind_names`
    priority: IntArray
    kind_names: tuple[str, ...] = ("any",)
    length_known: bool = True  # False: `output_tokens` is a cap and the end is drawn (live runs)
    cancel_s: FloatArray | None = None  # when the client goes away, inf for never; None: nobody does
    prompt_blocks: PromptBlocks | None = None  # what prompts begin with, for prefix caching

    def __len__(self) -> int:
        return self.arrival_s.shape[0]


def _nan(n: int) -> FloatArray:
    return np.full(n, np.nan)


@dataclass
class RequestLedger:
    """What happened to each request. Times in seconds of the plant's clock; NaN means it has not happened."""

    num_requests: int
    status: IntArray = field(init=False)
    first_scheduled_s: FloatArray = field(init=False)
    first_token_s: FloatArray = field(init=False)
    finished_s: FloatArray = field(init=False)
    generated_tokens: IntArray = field(init=False)
    num_preempted: IntArray = field(init=False)
    recomputed_tokens: IntArray = field(init=False)  # KV lost to preemption or failure and computed again
    prefix_hit_tokens: IntArray = field(init=False)  # prompt tokens found in memory at first admission, not computed
    num_swapped: IntArray = field(init=False)  # of the preemptions, those that kept KV in host memory
    num_retried: IntArray = field(init=False)  # times its replica failed under it
    replica: IntArray = field(init=False)  # that served it last; 0 where there is one, -1: none has taken it

    def __post_init__(self) -> None:
        n = self.num_requests
        self.status = np.zeros(n, np.int64)
        self.first_scheduled_s, self.first_token_s, self.finished_s = _nan(n), _nan(n), _nan(n)
        self.generated_tokens, self.num_preempted = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self.recomputed_tokens, self.prefix_hit_tokens = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self.num_swapped, self.num_retried = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self.replica = np.zeros(n, np.int64)
