"""The plant both worlds share: arrivals, batching, delay and decision points around one executor and one clock.

One engine step, in order:

    1. arrivals up to now come in (ties in file order; one exactly at a step's end is in before the next batch is formed,
       and after that step's completions have freed their slots and blocks), requests past a deadline leave, slots are taken
    2. ORDER          the controller ranks every ready request; the batch is formed (preemption happens here)
    3. TEMPERATURE    for rows that will sample;   KEEP for rows that will decode
    4. the executor carries the batch out; the clock moves on by what it took
    5. measurements are stored for later decisions (`delay_steps`), tokens counted, ended requests leave

With nothing ready the clock jumps to the next arrival. Requests that can never fit are refused on arrival and counted.
A deadline (timeout, cancellation) acts at the first step boundary after it; a request that ends in the step under way
ends late and counts as given up.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

import numpy as np

from workbench.engine import slots as row
from workbench.engine.clock import Clock
from workbench.engine.config import EngineConfig
from workbench.engine.executor import Batch, BeginsEarly, Executor, StepResult
from workbench.engine.kv_blocks import evict, new_pool, release
from workbench.engine.patience import Patience, patience_of
from workbench.engine.prefix_cache import PrefixIndex, new_prefix_index, publish
from workbench.engine.requests import RequestLedger, RequestSpec, RequestStatus
from workbench.engine.sight import Sight
from workbench.engine.telemetry import Telemetry
from workbench.errors import InputError
from workbench.protocols import (
    Action,
    Controllers,
    DecisionPoint,
    KeepAction,
    Observation,
    OrderAction,
    SamplingAction,
)

NOBODY = np.zeros(0, np.bool_)


class EnginePlant:
    """A `Plant`. `controlled` lists the decision points that have a controller; the others follow the default."""

    def __init__(
        self,
        requests: RequestSpec,
        executor: Executor,
        clock: Clock,
        config: EngineConfig,
        controlled: frozenset[DecisionPoint] = frozenset(),
        window_steps: int | None = None,
    ) -> None:
        self.requests, self.executor, self.clock, self.config = requests, executor, clock, config
        self.controlled = controlled
        slots = self.num_slots = config.slots_for(len(requests))
        self.pool = new_pool(config.num_blocks, slots, config.max_blocks_per_request)
        self.index: PrefixIndex | None = None
        if config.prefix_caching:
            if requests.prompt_blocks is None:
                raise InputError(
                    "engine.prefix_caching needs to know how prompts begin: a trace with prefix hashes, live prompts, or "
                    "workload.prefix_tokens"
                )
            self.index = new_prefix_index(config.num_blocks, requests.prompt_blocks)
        self.patience: Patience | None = patience_of(requests, config)
        self.ledger = RequestLedger(len(requests))
        self.telemetry = Telemetry(len(requests), window_steps, config.entropy_target_nats)

        # Everything a slot holds, in two tables; the names below are views of their rows.
        self.numbers, self.flags = row.number_table(slots), row.flag_table(slots)
        self.request_id = self.numbers[row.REQUEST]
        self.known = self.numbers[row.KNOWN]  # prompt and generated tokens so far
        self.computed = self.numbers[row.COMPUTED]  # of those, in the KV cache
        self.generated = self.numbers[row.GENERATED]
        self.since_admission = self.numbers[row.SINCE_ADMISSION]
        self.lost_tokens = self.numbers[row.LOST]  # KV to be computed again after a preemption
        self.swapped_blocks = np.zeros(slots, np.int64)  # KV in host memory
        self.occupied, self.served = self.flags[row.OCCUPIED], self.flags[row.SERVED]
        self.samples = self.flags[row.SAMPLES]  # rows that draw a token in the batch at hand
        self.decodes = self.flags[row.DECODES]
        self.num_samples = self.num_decodes = 0
        self.sight = Sight(
            self.numbers, self.flags, self.pool, delay_steps=config.delay_steps,
            mass_width=config.max_blocks_per_request if DecisionPoint.KEEP in controlled else 0,
            max_chunk_tokens=config.max_chunk_tokens, length_known=requests.length_known,
        )  # fmt: skip
        self._order_slots = np.zeros(slots, np.int64)
        self._preempted = np.zeros(slots, np.int64)
        self.next_arrival = 0  # requests before this index have arrived
        self.backlog: list[int] = []  # arrived, no slot yet
        self.free_slots = list(range(slots - 1, -1, -1))
        self._order: OrderAction | None = None
        self._sampling: SamplingAction | None = None
        self._keep: KeepAction | None = None
        self.step_index = 0
        self.on_step: Callable[[], None] = lambda: None  # a progress bar
        self.request_columns: Callable[[], Mapping[str, Any]] = dict  # what else the record says of each request
        self.leap: Callable[[EnginePlant], None] | None = None  # runs an uncontrolled plant to its end in compiled code
        self.leap_controlled: Callable[[EnginePlant, Controllers, dict[DecisionPoint, Any]], bool] | None = None
        self._deciders: tuple[Controllers, dict[DecisionPoint, Any]] | None = None
        self.notes: dict[str, Any] = {}  # what else the manifest says: where requests and costs come from
        self._batch: Batch
        self._steps = self._run()

    @property
    def share_done(self) -> float:
        """Share of all requests that have arrived and left again."""
        inside = int(np.count_nonzero(self.occupied)) + len(self.backlog)
        return (self.next_arrival - inside) / max(len(self.requests), 1)

    # The plant side of the loop

    def advance(self) -> DecisionPoint | None:
        if self.leap is not None:
            leap, self.leap = self.leap, None
            self._steps.close()  # it holds the plant, which holds it
            leap(self)
            return None
        return next(self._steps, None)

    def meet(self, controllers: Controllers, states: dict[DecisionPoint, Any]) -> None:
        """What decides. Where nobody records decisions, `leap_controlled` may run it in compiled code, states and all."""
        self._deciders = controllers, states

    def _leaps_from_here(self) -> bool:
        """Whether compiled code has taken the run from this step boundary to its end."""
        leap = self.leap_controlled
        if leap is None or self._deciders is None:
            return False
        window = self.telemetry.window_steps
        if window is None or self.step_index < window:
            return False
        self.leap_controlled = None
        return leap(self, *self._deciders)

    def observe(self, point: DecisionPoint) -> Observation:
        if point is DecisionPoint.ORDER:
            self._look(point, self.occupied)
            self.sight.survey(self.executor.marginal_step_s)
        elif point is DecisionPoint.TEMPERATURE:
            self._look(point, self.samples)
        elif point is DecisionPoint.KEEP:
            self._look(point, self.decodes)
        else:
            raise ValueError(f"this plant has no {point.value} decisions")
        return self.sight.observation(point, self.step_index)

    def apply(self, point: DecisionPoint, action: Any) -> Action:
        if point is DecisionPoint.ORDER:
            self._order = action
        elif point is DecisionPoint.TEMPERATURE:
            self._sampling = action = clamped(action)
        elif point is DecisionPoint.KEEP:
            self._keep = action
        return action

    def leaped_to(self, step_index: int, next_arrival: int, backlog: np.ndarray, occupied: np.ndarray) -> None:
        """Compiled code has changed the arrays of slots, blocks and ledger; these are the counters that go with them."""
        self.step_index, self.next_arrival = step_index, next_arrival
        self.backlog = backlog.tolist()
        self.occupied[:] = False
        self.occupied[occupied] = True

    # One engine step after another

    def _run(self) -> Generator[DecisionPoint, None, None]:
        while (yield from self._ready()):
            if self._leaps_from_here():
                continue
            start_s = self.clock.now_s
            self._order = self._sampling = self._keep = None
            yield from self._before_batch()
            if DecisionPoint.ORDER in self.controlled:
                yield DecisionPoint.ORDER
            num_preempted = self._form_batch(start_s)
            yield from self._decisions()
            result = self.executor.execute(self._batch, self._sampling, self._keep)
            yield from self._elapse(result.elapsed_s)
            yield from self._after_forward(result)
            self._finish_step(result, start_s, num_preempted)
            self.step_index += 1
            self.on_step()

    def _decisions(self) -> Iterator[DecisionPoint]:
        """Temperatures and keep rules. With a delay the pass starts before temperatures are asked for: only sampling needs
        them, so that deciding takes its time while the pass runs."""
        keeps = DecisionPoint.KEEP in self.controlled and self.num_decodes
        tempers = DecisionPoint.TEMPERATURE in self.controlled and self.num_samples
        early = self.executor if tempers and self.config.delay_steps else None
        if tempers and not isinstance(early, BeginsEarly):
            yield DecisionPoint.TEMPERATURE
        if keeps:
            yield DecisionPoint.KEEP
        if isinstance(early, BeginsEarly):
            early.begin(self._batch, self._keep)
            yield DecisionPoint.TEMPERATURE

    def _ready(self) -> Generator[DecisionPoint, None, bool]:
        """Wait until a request can be served; False where the run has ended."""
        yield from ()
        horizon_s = self.config.horizon_s
        while True:
            self._admit_arrivals()
            if len(self.free_slots) < self.num_slots:
                return self.clock.now_s < horizon_s
            if self.next_arrival == len(self.requests):
                return False
            next_s = float(self.requests.arrival_s[self.next_arrival])
            if next_s >= horizon_s:
                return False
            self.clock.wait_until(next_s)

    def _elapse(self, elapsed_s: float) -> Iterator[DecisionPoint]:
        """A step takes its time; where several engines share a clock the others act meanwhile (`sims/replica.py`)."""
        self.clock.advance(elapsed_s)
        yield from ()

    def _before_batch(self) -> Iterator[DecisionPoint]:
        """Decisions on requests that have just arrived; `engine/routing.py` routes here what needs no probe."""
        yield from ()

    def _after_forward(self, result: StepResult) -> Iterator[DecisionPoint]:
        """Decisions between a forward pass and the end of its step: positions to reveal, probes to route."""
        yield from ()

    def _most_tokens(self, request: int) -> int:
        """The longest context the request can reach: what decides whether it is refused."""
        return int(self.requests.prompt_tokens[request] + self.requests.output_tokens[request])

    def _admit_arrivals(self) -> None:
        requests, config = self.requests, self.config
        now_s = self.clock.now_s
        while self.next_arrival < len(requests):
            r = self.next_arrival
            arrival_s = requests.arrival_s[r]
            if arrival_s > now_s or arrival_s >= config.horizon_s:
                break
            self.next_arrival += 1
            self._arrive(r)
        if self.patience is not None:
            self._expire(self.patience)
        self._seat()

    def _arrive(self, r: int) -> None:
        """Into the backlog, or refused."""
        config = self.config
        total = self._most_tokens(r)
        if (
            total > config.max_context_tokens
            or -(-total // config.block_size) > config.num_blocks
            or (config.max_queue is not None and self.num_waiting >= config.max_queue)
        ):
            self.ledger.status[r] = RequestStatus.REFUSED
        else:
            self.ledger.status[r] = RequestStatus.WAITING
            self.backlog.append(r)

    @property
    def num_waiting(self) -> int:
        """Requests that have arrived and hold no KV blocks."""
        return len(self.backlog) + int(np.count_nonzero(self.pool.num_held[self.occupied] == 0))

    def _seat(self) -> None:
        """Slots for the backlog, first come first served."""
        requests = self.requests
        taken = min(len(self.backlog), len(self.free_slots))
        for r in self.backlog[:taken]:
            slot = self.free_slots.pop()
            self.request_id[slot], self.occupied[slot] = r, True
            self.known[slot], self.computed[slot], self.generated[slot] = requests.prompt_tokens[r], 0, 0
            self.since_admission[slot] = self.lost_tokens[slot] = 0
            self.served[slot] = False
            self.numbers[row.PROMPT, slot], self.numbers[row.OUTPUT, slot] = (
                requests.prompt_tokens[r],
                requests.output_tokens[r],
            )
            self.numbers[row.KIND, slot], self.numbers[row.PRIORITY, slot] = requests.kind[r], requests.priority[r]
            self.numbers[row.RANK, slot] = r
            self.sight.forget(slot)
            self.executor.admit(r, slot)
        del self.backlog[:taken]

    def _expire(self, patience: Patience) -> None:
        """Requests whose deadline has passed leave."""
        now_s, ledger = self.clock.now_s, self.ledger
        slots = np.flatnonzero(self.occupied)
        for slot in slots[patience.gone(self.request_id[slots], now_s, ledger.first_token_s)]:
            self._leave(int(slot), patience.status(int(self.request_id[slot]), now_s, ledger.first_token_s))
        if self.backlog:
            waiting = np.array(self.backlog)
            gone = patience.gone(waiting, now_s, ledger.first_token_s)
            for r in waiting[gone]:
                ledger.status[r] = patience.status(int(r), now_s, ledger.first_token_s)
            self.backlog = waiting[~gone].tolist()

    def _form_batch(self, start_s: float) -> int:
        config, ledger = self.config, self.ledger
        index, swaps = self.index, config.preemption == "swap"
        special = index is not None or swaps
        computed_before = self.computed.copy() if special else self.computed
        held_before = self.pool.num_held.copy() if special else self.pool.num_held
        batch, samples, num_preempted, self.num_decodes, self._num_unheld, widest = row.next_batch(
            self._order_of_slots(), self.pool, self.numbers, self.flags, config.block_size, config.max_running,
            config.token_budget, config.max_chunk_tokens, config.watermark_blocks, config.preemption_quantum_tokens,
            start_s, ledger.status, ledger.first_scheduled_s, ledger.num_preempted, ledger.recomputed_tokens,
            self._preempted, self._swap_room() if swaps else 0, index,
        )  # fmt: skip
        copied_blocks = 0
        if num_preempted:
            lost = self._preempted[:num_preempted]
            if swaps:
                kept = lost[self.computed[lost] > 0]
                ledger.num_swapped[self.request_id[kept]] += 1
                self.swapped_blocks[kept] = held_before[kept]
                copied_blocks += int(held_before[kept].sum())
                lost = lost[self.computed[lost] == 0]
            self.sight.block_mass[lost] = np.nan
            if index is not None:
                for slot in lost:
                    self.executor.lose_kv(int(slot))
        self.sight.widen(widest)
        slot, start = batch[row.B_SLOT], batch[row.B_START]
        if swaps:
            copied_blocks += int(self.swapped_blocks[slot].sum())
            self.swapped_blocks[slot] = 0
        if index is not None:
            adopted = (held_before[slot] == 0) & (computed_before[slot] == 0) & (self.lost_tokens[slot] == 0)
            ledger.prefix_hit_tokens[batch[row.B_REQUEST]] += np.where(adopted, start, 0)
        self.num_samples = int(np.count_nonzero(samples))
        self._batch = Batch(
            step=self.step_index,
            slot=slot,
            request_id=batch[row.B_REQUEST],
            start=start,
            num_tokens=batch[row.B_TOKENS],
            samples=samples,
            token_index=batch[row.B_INDEX],
            prompt_tokens=batch[row.B_PROMPT],
            output_tokens=batch[row.B_OUTPUT],
            kind=batch[row.B_KIND],
            num_blocks=batch[row.B_BLOCKS],
            slot_block_table=self.pool.table,
            block_size=config.block_size,
            copy_s=copied_blocks * config.swap_block_s,
        )
        return num_preempted

    def _order_of_slots(self) -> np.ndarray:
        """Ready slots, first served first: by the controller's rank, else by arrival."""
        if self._order is not None:
            count = row.slots_by_rank(self._order.rank, self.occupied, self._order_slots)
            if count >= 0:
                return self._order_slots[:count]
        ready = np.flatnonzero(self.occupied)
        rank = self.numbers[row.RANK] if self._order is None else self._order.rank
        return ready[np.argsort(rank[ready], kind="stable")]

    def _swap_room(self) -> int:
        """Blocks of host memory that are free."""
        limit = self.config.swap_blocks
        return self.config.num_blocks * self.num_slots if limit is None else limit - int(self.swapped_blocks.sum())

    def _finish_step(self, result: StepResult, start_s: float, num_preempted: int) -> None:
        batch, ledger, config, sight = self._batch, self.ledger, self.config, self.sight
        now_s = self.clock.now_s
        slot = batch.slot
        num_free = int(self.pool.num_free[0])
        self.telemetry.step(
            batch, result, start_s=start_s, elapsed_s=now_s - start_s, num_waiting=self._num_unheld,
            num_backlog=len(self.backlog), num_preempted=num_preempted, blocks_used=config.num_blocks - num_free,
            blocks_free=num_free,
        )  # fmt: skip
        if self.index is not None:
            publish(
                self.pool, self.index, slot, batch.request_id, batch.start, batch.num_tokens, self.decodes[slot],
                config.block_size,
            )  # fmt: skip
        done = row.settle(
            slot, batch.num_tokens, batch.samples, batch.output_tokens, result.ended, result.entropy_raw_nats,
            result.varentropy_raw_nats2, result.entropy_nats, result.varentropy_nats2, result.surprisal_nats,
            result.temperature_applied, batch.step, now_s, self.numbers, self.flags, sight.rings, sight.ring_step,
            sight.fresh, ledger.generated_tokens, ledger.first_token_s,
        )  # fmt: skip
        if result.block_mass is not None and sight.block_mass.shape[1]:
            told = NOBODY if result.told is None else result.told
            row.take_masses(result.block_mass, told, slot, sight.block_mass)
        if result.evicted is not None:
            if config.preemption == "swap":
                raise InputError(
                    "a keep rule evicts KV blocks and a swap would bring them back; set engine.preemption = recompute"
                )
            for i in np.flatnonzero(result.evicted.any(axis=1)):
                evict(self.pool, slot[i], result.evicted[i], self.index)
        for i in done:
            self._complete(int(slot[i]), now_s)

    def _complete(self, slot: int, now_s: float) -> None:
        """The request in `slot` has all its tokens: it leaves, and its slot and blocks are free."""
        r, patience = int(self.request_id[slot]), self.patience
        if patience is not None and patience.late(r, now_s, self.ledger.first_token_s):
            self._leave(slot, patience.status(r, now_s, self.ledger.first_token_s))
        else:
            self.ledger.finished_s[r] = now_s
            self._leave(slot, RequestStatus.COMPLETED)

    def _leave(self, slot: int, status: RequestStatus) -> None:
        """The request in `slot` is served no longer; its slot and blocks are free."""
        r = int(self.request_id[slot])
        self.ledger.status[r] = status
        release(self.pool, slot, self.index)
        self.swapped_blocks[slot] = 0
        self.request_id[slot], self.occupied[slot] = -1, False
        self.samples[slot] = self.decodes[slot] = self.served[slot] = False
        self.free_slots.append(slot)
        self.executor.release(r, slot)

    # Observations

    def _look(self, point: DecisionPoint, active: np.ndarray) -> None:
        """Bring the head of the point's observation up to date."""
        self.sight.look(point, active)

    def _head(self, point: DecisionPoint, active: np.ndarray) -> dict[str, np.ndarray]:
        """Arrays every observation has, for a point whose rows are not those of a batch."""
        self._look(point, active)
        return self.sight.head(point)


def clamped(action: SamplingAction) -> SamplingAction:
    """The action with its temperatures inside its own limits, as the plant applies it."""
    low, high = max(0.0, action.temperature_min), action.temperature_max
    applied = object.__new__(SamplingAction)
    applied.__dict__.update(action.__dict__)
    applied.__dict__["temperature"] = np.minimum(np.maximum(action.temperature, low), high)
    return applied
