"""The whole plug-in surface: `Controller` and `Plant`, and the records that pass between them. Read second.

    plant --observation--> controller --action--> plant --what was really applied--> record

A controller is frozen parameters, explicit state and a pure step: NumPy in, NumPy out, no clock, no I/O, no hidden
randomness. The same object steers the simulator (`sims`) and the real model (`workbench/live`).

Slots. State rows live in fixed slots 0 .. num_slots - 1; every request that has arrived and not yet ended holds one,
waiting requests included. Every array below has the slot as its first axis. An observation carries

    active      this decision concerns the row; a controller neither reads nor changes the others
    joined      the row's request is new to this decision point: its state starts afresh (never set by preemption)
    request_id  whose row it is (-1 only where inactive)

Permuting slots permutes actions, and no row's action depends on whether another sequence joins, except through what
an order is by nature. What an inactive row holds is unspecified. Arrays are read-only views of the plant's own: valid
until the next `advance`, so a controller copies what it wants to remember, and a recorder copies at once.

Delay. With `delay_steps` = d the measurements in an observation are those of the row's token k - d when it decides
for token k + 1; `measured_step` says which engine step produced them.

Actions are setpoints and rules with numbers. What must happen inside a forward pass (solving T on this token's
logits, choosing pages per layer and head, taking the entropy-sum prefix) is an op in `kernels`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import IntEnum, StrEnum
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import numpy as np

from workbench.signals import BoolArray, FloatArray, IntArray


class DecisionPoint(StrEnum):
    """Where a controller is asked, in the order of one engine step."""

    ORDER = "order"  # before the batch is formed
    TEMPERATURE = "temperature"  # before the forward pass
    KEEP = "keep"  # before the forward pass
    REVEAL = "reveal"  # after a masked-diffusion forward pass
    ROUTE = "route"  # at the end of a probe


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What every observation carries. Arrays have shape [num_slots] unless said otherwise."""

    point: ClassVar[DecisionPoint]
    step: int  # index of the engine step this decision shapes
    active: BoolArray
    joined: BoolArray
    request_id: IntArray
    measured: BoolArray  # a new measurement has arrived for the row since the last observation at this point
    measured_step: IntArray  # the engine step that produced it (0 where not measured)

    @property
    def num_slots(self) -> int:
        return self.active.shape[0]


@dataclass(frozen=True, kw_only=True)
class OrderObservation(Observation):
    """Before a batch is formed: every ready request, waiting, paused or running."""

    point = DecisionPoint.ORDER
    served: BoolArray  # the row was in the batch of the previous step
    running: BoolArray  # holds KV blocks
    arrival_rank: IntArray  # 0 for the request that arrived first among all; ties in file order
    kind: IntArray  # index of the request kind, for priors
    priority: IntArray  # user's priority class, 0 the most urgent
    prompt_tokens: IntArray
    computed_tokens: IntArray  # tokens whose KV is in the cache
    generated_tokens: IntArray
    remaining_tokens_oracle: FloatArray  # true remaining output length; NaN where the plant cannot know it
    entropy_raw_nats: FloatArray  # H_raw of the last generated token, NaN before the first
    varentropy_raw_nats2: FloatArray
    marginal_step_s: FloatArray  # seconds this row would add to the next step


@dataclass(frozen=True, kw_only=True)
class TemperatureObservation(Observation):
    """Before a forward pass: the rows that will sample a token in it."""

    point = DecisionPoint.TEMPERATURE
    token_index: IntArray  # index of the token about to be sampled, 0 for the first
    entropy_raw_nats: FloatArray
    varentropy_raw_nats2: FloatArray
    entropy_nats: FloatArray  # tempered, before truncation
    varentropy_nats2: FloatArray
    surprisal_nats: FloatArray  # of the sampled token under the tempered distribution
    temperature_applied: FloatArray  # the T that produced these measurements, as the plant really applied it


@dataclass(frozen=True, kw_only=True)
class KeepObservation(Observation):
    """Before a forward pass: the rows that will decode, with the attention mass of each of their KV blocks."""

    point = DecisionPoint.KEEP
    context_tokens: IntArray
    num_blocks: IntArray  # filled logical blocks; the last may be part full
    entropy_raw_nats: FloatArray
    block_mass: FloatArray  # [num_slots, width] attention mass per block, mean over layers and query heads; `width`
    #                         covers every filled block and may grow from one observation to the next;
    #                         sums to 1 over measured blocks; NaN where not measured (dropped, evicted, too new)
    prompt_mass: FloatArray | None = None  # [num_slots, width] for rows that join: mass of each block summed over the
    #                                        queries of the prompt before `block_mass`; None where a plant does not measure it


@dataclass(frozen=True, kw_only=True)
class RevealObservation(Observation):
    """After a masked-diffusion forward pass: what the model believes about each position."""

    point = DecisionPoint.REVEAL
    iteration: IntArray  # 0 for the first forward pass of the request
    masked: BoolArray  # [num_slots, length] still to be revealed
    entropy_nats: FloatArray  # [num_slots, length] marginal entropy, NaN where not masked
    confidence: FloatArray  # [num_slots, length] largest marginal probability, NaN where not masked
    runner_up: FloatArray  # [num_slots, length] second-largest marginal probability
    divergence_nats: FloatArray  # [num_slots, length] KL of this marginal from the previous iteration's, NaN at first
    permutation_rank: IntArray  # [num_slots, length] the plant's random order, drawn anew each iteration


@dataclass(frozen=True, kw_only=True)
class RouteObservation(Observation):
    """At the end of a probe: its raw entropies. `num_probe_tokens` real tokens, the rest NaN."""

    point = DecisionPoint.ROUTE
    num_probe_tokens: IntArray
    probe_entropy_nats: FloatArray  # [num_slots, probe_length] H_raw, full vocabulary
    probe_surprisal_raw_nats: FloatArray | None = None  # [num_slots, probe_length] of the sampled tokens, at T = 1


@dataclass(frozen=True, kw_only=True)
class OrderAction:
    """A total order over the active rows. Used for admission, chunk budget, pausing, and preemption from the end."""

    point = DecisionPoint.ORDER
    rank: IntArray  # 0 is served first; a permutation of 0 .. active - 1 on active rows, num_slots elsewhere


@dataclass(frozen=True, kw_only=True)
class SamplingAction:
    """How the next token is drawn. Laws, in this order: T (or solve T), min-p, top-H, Mirostat truncation."""

    point = DecisionPoint.TEMPERATURE
    temperature: FloatArray  # T >= 0, 0 is greedy; the start value where a target is solved for
    target_entropy_nats: FloatArray | None = None  # solve H(T) = target on this token's logits; NaN: use temperature
    temperature_min: float = 0.0  # the plant clamps to [min, max] and reports the T it applied
    temperature_max: float = np.inf
    min_p: FloatArray | None = None  # keep p >= min_p * max p, in [0, 1]
    top_h: FloatArray | None = None  # keep the largest prefix whose entropy is at most top_h * H, in (0, 1]
    mirostat_mu_nats: FloatArray | None = None  # keep tokens with surprisal at most mu


class KeepRule(IntEnum):
    """Which op in `kernels` turns a `KeepAction` into a keep-list of blocks."""

    ALL = 0
    LEAST_MASS = 1  # drop the lowest-score blocks while their summed score stays within `mass_budget`
    TOP_BLOCKS = 2  # keep the `block_budget_frac` share of blocks with the highest score
    WINDOW = 3  # keep sinks and recent blocks only
    CERTIFIED = 4  # read blocks back until the bound on dropped mass is within `mass_budget`
    TOP_BOUND = 5  # as TOP_BLOCKS on upper-bound scores computed in the op from block key bounds, per KV head
    LEAST_ESTIMATE = 6  # as LEAST_MASS on masses estimated in the op from a key sketch, per KV head; at least the share
    #                     `block_budget_frac` stays


@dataclass(frozen=True, kw_only=True)
class KeepAction:
    """A keep rule with its numbers, per row. Sinks, recent blocks and unmeasured blocks are never dropped."""

    point = DecisionPoint.KEEP
    rule: IntArray  # `KeepRule` per row
    mass_budget: FloatArray  # attention mass that may be dropped, in [0, 1)
    block_budget_frac: FloatArray  # share of filled blocks to keep, in (0, 1]
    sink_blocks: IntArray
    recent_blocks: IntArray
    score: FloatArray  # [num_slots, max_blocks] predicted mass (or another score) per block; NaN: keep
    evict: BoolArray  # False: mask (read fewer bytes, the block can return). True: free the dropped blocks
    layer_taper: FloatArray | None = None  # layer l of L keeps block_budget_frac (1 + taper (1 - 2 l / (L - 1)))
    output_budget: FloatArray | None = (
        None  # CERTIFIED stops once each head's output is bounded this closely (NaN: by mass)
    )


@dataclass(frozen=True, kw_only=True)
class RevealAction:
    """Which masked positions to reveal now.

    Positions are taken in the order of `rank`; `kernels` takes the prefix: cost is summed until it exceeds `budget`
    (the crossing position is included if `include_crossing`), between `min_count` and `max_count` positions.
    """

    point = DecisionPoint.REVEAL
    rank: IntArray  # [num_slots, length] order in which positions are considered; not read where not masked
    cost: FloatArray  # [num_slots, length] what revealing a position spends, usually its entropy in nats
    budget: FloatArray  # [num_slots], may be inf
    include_crossing: BoolArray  # [num_slots]
    min_count: IntArray  # [num_slots], at least 1
    max_count: IntArray  # [num_slots]
    remask: BoolArray | None = None  # [num_slots, length] revealed positions to mask again


class Strategy(IntEnum):
    """How a request is answered."""

    STANDARD = 0
    DIRECT = 1
    COT = 2


class RouteReason(IntEnum):
    """Why a router decided as it did; recorded beside every decision."""

    NO_TREND = 0  # neither test fired
    FALLING = 1  # entropy falls: chain of thought helps
    RISING = 2  # entropy rises: reasoning does not help
    OVERLOAD = 3  # summed entropy above the limit; wins over a trend
    TOO_SHORT = 4  # fewer tokens than a trend can be tested on
    FIXED = 5  # a baseline that does not look
    LEARNED = 6  # a trained router's choice


@dataclass(frozen=True, kw_only=True)
class RouteAction:
    point = DecisionPoint.ROUTE
    strategy: IntArray  # `Strategy` per row
    reason: IntArray  # `RouteReason` per row


Action = OrderAction | SamplingAction | KeepAction | RevealAction | RouteAction

ObservationT = TypeVar("ObservationT", bound=Observation, contravariant=True)
StateT = TypeVar("StateT")
ActionT = TypeVar("ActionT", covariant=True)


class Controller(Protocol[ObservationT, StateT, ActionT]):
    """Frozen parameters, explicit state, a pure step.

    `init(capacity)` gives the state of `capacity` empty slots. `step` never changes the state it is given: it returns a
    new one. It must accept any observation of its decision point, missing measurements (NaN) included, and return a
    finite, bounded action.
    """

    point: ClassVar[DecisionPoint]

    def init(self, capacity: int) -> StateT: ...

    def step(self, state: StateT, observation: ObservationT) -> tuple[StateT, ActionT]: ...


Controllers = Mapping[DecisionPoint, Controller[Any, Any, Any]]


class Plant(Protocol):
    """What is controlled: the simulator or the real model. It applies actions, advances time and measures."""

    num_slots: int

    def advance(self) -> DecisionPoint | None:
        """Run until a decision is due and say which; None when every request has ended."""
        ...

    def observe(self, point: DecisionPoint) -> Observation: ...

    def apply(self, point: DecisionPoint, action: Any) -> Action:
        """Take the action and return what was really applied (after clamps)."""
        ...


@runtime_checkable
class LeapingPlant(Protocol):
    """A plant that may take steps by itself, with the controllers' own compiled steps, once nobody records decisions."""

    def meet(self, controllers: Controllers, states: dict[DecisionPoint, Any]) -> None:
        """Told once, before the first step: who decides. `states` are kept up to date."""
        ...


BLANKS: dict[Any, tuple[type, Any]] = {
    BoolArray: (np.bool_, False),
    IntArray: (np.int64, 0),
    FloatArray: (np.float64, np.nan),
}


def blank_like(observation_type: type[Observation], num_slots: int, **widths: int) -> dict[str, Any]:
    """Arrays of an all-inactive observation: NaN, 0 and False. `widths` gives the second axis of the 2-D fields."""
    blanks: dict[str, Any] = {}
    for field in fields(observation_type):
        if field.type in BLANKS:
            dtype, fill = BLANKS[field.type]
            shape = (num_slots, widths[field.name]) if field.name in widths else (num_slots,)
            blanks[field.name] = np.full(shape, -1 if field.name == "request_id" else fill, dtype=dtype)
    return blanks
