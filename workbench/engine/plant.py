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
from dataclasses import replace
from typing import Any

import numpy as np

from workbench.engine.batching import form_batch
from workbench.engine.clock import Clock
from workbench.engine.config import EngineConfig
from workbench.engine.executor import Batch, Executor, StepResult
from workbench.engine.kv_blocks import evict, new_pool, release
from workbench.engine.patience import Patience, patience_of
from workbench.engine.prefix_cache import PrefixIndex, new_prefix_index, publish
from workbench.engine.requests import RequestLedger, RequestSpec, RequestStatus
from workbench.engine.telemetry import Telemetry
from workbench.errors import InputError
from workbench.protocols import (
    Action,
    DecisionPoint,
    KeepAction,
    KeepObservation,
    Observation,
    OrderAction,
    OrderObservation,
    SamplingAction,
    TemperatureObservation,
)

MEASUREMENTS = (
    "entropy_raw_nats",
    "varentropy_raw_nats2",
    "entropy_nats",
    "varentropy_nats2",
    "surprisal_nats",
    "temperature_applied",
)
MASS_WIDTH_STEP = 32  # `block_mass` is shown as wide as the longest request so far needs, rounded up to this


def read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


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

        self.request_id = np.full(slots, -1, np.int64)
        self.occupied = np.zeros(slots, np.bool_)
        self.known = np.zeros(slots, np.int64)  # prompt and generated tokens so far
        self.computed = np.zeros(slots, np.int64)  # of those, in the KV cache
        self.generated = np.zeros(slots, np.int64)
        self.since_admission = np.zeros(slots, np.int64)
        self.lost_tokens = np.zeros(slots, np.int64)  # KV to be computed again after a preemption
        self.swapped_blocks = np.zeros(slots, np.int64)  # KV in host memory
        self.served = np.zeros(slots, np.bool_)
        self.samples = np.zeros(slots, np.bool_)  # rows that draw a token in the batch at hand
        self.decodes = np.zeros(slots, np.bool_)
        self.block_mass = np.full(
            (slots, config.max_blocks_per_request if DecisionPoint.KEEP in controlled else 0), np.nan
        )
        self._mass_width = 0
        ring = config.delay_steps + 1
        self._rings = {name: np.full((ring, slots), np.nan) for name in MEASUREMENTS}
        self._ring_step = np.zeros((ring, slots), np.int64)
        self._fresh = {point: np.zeros(slots, np.bool_) for point in DecisionPoint}
        self._seen = {point: np.full(slots, -1, np.int64) for point in DecisionPoint}
        self._spec = {
            name: np.zeros(slots, np.int64) for name in ("prompt_tokens", "output_tokens", "kind", "priority", "rank")
        }
        self._batch_slot = np.zeros(config.max_running, np.int64)
        self._batch_tokens = np.zeros(config.max_running, np.int64)
        self._preempted = np.zeros(slots, np.int64)
        self._next_arrival = 0  # requests before this index have arrived
        self._backlog: list[int] = []  # arrived, no slot yet
        self._free_slots = list(range(slots - 1, -1, -1))
        self._order: OrderAction | None = None
        self._sampling: SamplingAction | None = None
        self._keep: KeepAction | None = None
        self.step_index = 0
        self.on_step: Callable[[], None] = lambda: None  # a progress bar
        self.request_columns: Callable[[], Mapping[str, Any]] = dict  # what else the record says of each request
        self.leap: Callable[[EnginePlant], None] | None = None  # runs an uncontrolled plant to its end in compiled code
        self.notes: dict[str, Any] = {}  # what else the manifest says: where requests and costs come from
        self._batch: Batch
        self._steps = self._run()

    @property
    def share_done(self) -> float:
        """Share of all requests that have arrived and left again."""
        inside = int(np.count_nonzero(self.occupied)) + len(self._backlog)
        return (self._next_arrival - inside) / max(len(self.requests), 1)

    # The plant side of the loop

    def advance(self) -> DecisionPoint | None:
        if self.leap is not None:
            leap, self.leap = self.leap, None
            leap(self)
            return None
        return next(self._steps, None)

    def observe(self, point: DecisionPoint) -> Observation:
        if point is DecisionPoint.ORDER:
            return self._observe_order()
        if point is DecisionPoint.TEMPERATURE:
            return TemperatureObservation(
                step=self.step_index,
                **self._head(point, self.samples),
                token_index=read_only(self.generated),
                **self._delayed(MEASUREMENTS),
            )
        if point is DecisionPoint.KEEP:
            return KeepObservation(
                step=self.step_index,
                **self._head(point, self.decodes),
                context_tokens=read_only(self.known),
                num_blocks=read_only(self.pool.num_logical),
                **self._delayed(("entropy_raw_nats",)),
                block_mass=read_only(self.block_mass[:, : self._mass_width]),
            )
        raise ValueError(f"this plant has no {point.value} decisions")

    def apply(self, point: DecisionPoint, action: Any) -> Action:
        if point is DecisionPoint.ORDER:
            self._order = action
        elif point is DecisionPoint.TEMPERATURE:
            low, high = max(0.0, action.temperature_min), action.temperature_max
            self._sampling = action = replace(action, temperature=np.clip(action.temperature, low, high))
        elif point is DecisionPoint.KEEP:
            self._keep = action
        return action

    def leaped_to(self, step_index: int, next_arrival: int, backlog: np.ndarray, occupied: np.ndarray) -> None:
        """Compiled code has changed the arrays of slots, blocks and ledger; these are the counters that go with them."""
        self.step_index, self._next_arrival = step_index, next_arrival
        self._backlog = backlog.tolist()
        self.occupied[:] = False
        self.occupied[occupied] = True

    # One engine step after another

    def _run(self) -> Iterator[DecisionPoint]:
        while (yield from self._ready()):
            start_s = self.clock.now_s
            self._order = self._sampling = self._keep = None
            if DecisionPoint.ORDER in self.controlled:
                yield DecisionPoint.ORDER
            num_preempted = self._form_batch(start_s)
            if DecisionPoint.TEMPERATURE in self.controlled and self.samples.any():
                yield DecisionPoint.TEMPERATURE
            if DecisionPoint.KEEP in self.controlled and self.decodes.any():
                yield DecisionPoint.KEEP
            result = self.executor.execute(self._batch, self._sampling, self._keep)
            yield from self._elapse(result.elapsed_s)
            yield from self._after_forward()
            self._finish_step(result, start_s, num_preempted)
            self.step_index += 1
            self.on_step()

    def _ready(self) -> Generator[DecisionPoint, None, bool]:
        """Wait until a request can be served; False where the run has ended."""
        yield from ()
        horizon_s = self.config.horizon_s
        while True:
            self._admit_arrivals()
            if self.occupied.any():
                return self.clock.now_s < horizon_s
            if self._next_arrival == len(self.requests):
                return False
            next_s = float(self.requests.arrival_s[self._next_arrival])
            if next_s >= horizon_s:
                return False
            self.clock.wait_until(next_s)

    def _elapse(self, elapsed_s: float) -> Iterator[DecisionPoint]:
        """A step takes its time; where several engines share a clock the others act meanwhile (`sims/replica.py`)."""
        self.clock.advance(elapsed_s)
        yield from ()

    def _after_forward(self) -> Iterator[DecisionPoint]:
        """Decisions between a forward pass and the end of its step; `engine/diffusion.py` reveals positions here."""
        yield from ()

    def _admit_arrivals(self) -> None:
        requests, config = self.requests, self.config
        now_s = self.clock.now_s
        while self._next_arrival < len(requests):
            r = self._next_arrival
            arrival_s = requests.arrival_s[r]
            if arrival_s > now_s or arrival_s >= config.horizon_s:
                break
            self._next_arrival += 1
            self._arrive(r)
        if self.patience is not None:
            self._expire(self.patience)
        self._seat()

    def _arrive(self, r: int) -> None:
        """Into the backlog, or refused."""
        config = self.config
        total = int(self.requests.prompt_tokens[r] + self.requests.output_tokens[r])
        if (
            total > config.max_context_tokens
            or -(-total // config.block_size) > config.num_blocks
            or (config.max_queue is not None and self.num_waiting >= config.max_queue)
        ):
            self.ledger.status[r] = RequestStatus.REFUSED
        else:
            self.ledger.status[r] = RequestStatus.WAITING
            self._backlog.append(r)

    @property
    def num_waiting(self) -> int:
        """Requests that have arrived and hold no KV blocks."""
        return len(self._backlog) + int(np.count_nonzero(self.pool.num_held[self.occupied] == 0))

    def _seat(self) -> None:
        """Slots for the backlog, first come first served."""
        requests = self.requests
        taken = min(len(self._backlog), len(self._free_slots))
        for r in self._backlog[:taken]:
            slot = self._free_slots.pop()
            self.request_id[slot], self.occupied[slot] = r, True
            self.known[slot], self.computed[slot], self.generated[slot] = requests.prompt_tokens[r], 0, 0
            self.since_admission[slot] = self.lost_tokens[slot] = 0
            self.served[slot] = False
            for name in ("prompt_tokens", "output_tokens", "kind", "priority"):
                self._spec[name][slot] = getattr(requests, name)[r]
            self._spec["rank"][slot] = r
            for ring in self._rings.values():
                ring[:, slot] = np.nan
            for fresh in self._fresh.values():
                fresh[slot] = False
            self.block_mass[slot] = np.nan
            self.executor.admit(r, slot)
        del self._backlog[:taken]

    def _expire(self, patience: Patience) -> None:
        """Requests whose deadline has passed leave."""
        now_s, ledger = self.clock.now_s, self.ledger
        slots = np.flatnonzero(self.occupied)
        for slot in slots[patience.gone(self.request_id[slots], now_s, ledger.first_token_s)]:
            self._leave(int(slot), patience.status(int(self.request_id[slot]), now_s, ledger.first_token_s))
        if self._backlog:
            waiting = np.array(self._backlog)
            gone = patience.gone(waiting, now_s, ledger.first_token_s)
            for r in waiting[gone]:
                ledger.status[r] = patience.status(int(r), now_s, ledger.first_token_s)
            self._backlog = waiting[~gone].tolist()

    def _form_batch(self, start_s: float) -> int:
        config, ledger = self.config, self.ledger
        ready = np.flatnonzero(self.occupied)
        rank = self._spec["rank"] if self._order is None else self._order.rank
        order = ready[np.argsort(rank[ready], kind="stable")]
        computed_before = self.computed.copy()
        index, swaps = self.index, config.preemption == "swap"
        held_before = self.pool.num_held.copy() if index is not None or swaps else self.pool.num_held
        n, num_preempted = form_batch(
            order, self.pool, self.known, self.computed, self.since_admission, config.block_size, config.max_running,
            config.token_budget, config.max_chunk_tokens, config.watermark_blocks, config.preemption_quantum_tokens,
            self._batch_slot, self._batch_tokens, self._preempted,
            self._swap_room() if swaps else 0, None if index is None else self.request_id, index,
        )  # fmt: skip
        copied_blocks = 0
        if num_preempted:
            lost = self._preempted[:num_preempted]
            victims = self.request_id[lost]
            ledger.num_preempted[victims] += 1
            ledger.status[victims] = RequestStatus.WAITING
            if swaps:
                kept = lost[self.computed[lost] > 0]
                ledger.num_swapped[self.request_id[kept]] += 1
                self.swapped_blocks[kept] = held_before[kept]
                copied_blocks += int(held_before[kept].sum())
                lost = lost[self.computed[lost] == 0]
            self.lost_tokens[lost] = np.maximum(self.lost_tokens[lost], computed_before[lost])
            self.block_mass[lost] = np.nan
            if index is not None:
                for slot in lost:
                    self.executor.lose_kv(int(slot))
        if self.block_mass.shape[1]:
            widest = -(-int(self.pool.num_logical.max()) // MASS_WIDTH_STEP) * MASS_WIDTH_STEP
            self._mass_width = max(self._mass_width, min(widest, self.block_mass.shape[1]))
        slot, tokens = self._batch_slot[:n].copy(), self._batch_tokens[:n].copy()
        request_id = self.request_id[slot]
        start = self.computed[slot]
        if swaps:
            copied_blocks += int(self.swapped_blocks[slot].sum())
            self.swapped_blocks[slot] = 0
        if index is not None:
            adopted = (held_before[slot] == 0) & (computed_before[slot] == 0) & (self.lost_tokens[slot] == 0)
            ledger.prefix_hit_tokens[request_id] += np.where(adopted, start, 0)
        samples = start + tokens == self.known[slot]
        self.samples[:] = False
        self.samples[slot] = samples
        self.decodes[:] = False
        self.decodes[slot] = samples & (tokens == 1) & (start > 0)
        ledger.status[request_id] = RequestStatus.RUNNING
        first = request_id[np.isnan(ledger.first_scheduled_s[request_id])]
        ledger.first_scheduled_s[first] = start_s
        again = np.minimum(start + tokens, self.lost_tokens[slot]) - np.minimum(start, self.lost_tokens[slot])
        ledger.recomputed_tokens[request_id] += again
        self._batch = Batch(
            step=self.step_index,
            slot=slot,
            request_id=request_id,
            start=start,
            num_tokens=tokens,
            samples=samples,
            token_index=self.generated[slot],
            prompt_tokens=self._spec["prompt_tokens"][slot],
            output_tokens=self._spec["output_tokens"][slot],
            kind=self._spec["kind"][slot],
            num_blocks=self.pool.num_logical[slot],
            slot_block_table=self.pool.table,
            block_size=config.block_size,
            copy_s=copied_blocks * config.swap_block_s,
        )
        return num_preempted

    def _swap_room(self) -> int:
        """Blocks of host memory that are free."""
        limit = self.config.swap_blocks
        return self.config.num_blocks * self.num_slots if limit is None else limit - int(self.swapped_blocks.sum())

    def _finish_step(self, result: StepResult, start_s: float, num_preempted: int) -> None:
        batch, ledger, config = self._batch, self.ledger, self.config
        now_s = self.clock.now_s
        slot = batch.slot
        num_waiting = int(np.count_nonzero(self.pool.num_held[self.occupied] == 0))
        self.telemetry.step(
            batch, result, start_s=start_s, elapsed_s=now_s - start_s, num_running=slot.size, num_waiting=num_waiting,
            num_backlog=len(self._backlog), num_preempted=num_preempted,
            blocks_used=config.num_blocks - int(self.pool.num_free[0]), blocks_free=int(self.pool.num_free[0]),
        )  # fmt: skip
        self.computed[slot] += batch.num_tokens
        if self.index is not None:
            publish(
                self.pool, self.index, slot, batch.request_id, batch.start, batch.num_tokens, self.decodes[slot],
                config.block_size,
            )  # fmt: skip
        self.served[:] = False
        self.served[slot] = True
        rows = np.flatnonzero(batch.samples)
        drew = slot[rows]
        place = self.generated[drew] % (config.delay_steps + 1)
        for name, ring in self._rings.items():
            ring[place, drew] = getattr(result, name)[rows]
        self._ring_step[place, drew] = batch.step
        for fresh in self._fresh.values():
            fresh[drew] = True
        if result.block_mass is not None and self.block_mass.shape[1]:
            told = ~np.isnan(result.block_mass).all(axis=1)
            self.block_mass[slot[told], : result.block_mass.shape[1]] = result.block_mass[told]
        if result.evicted is not None:
            if config.preemption == "swap":
                raise InputError(
                    "a keep rule evicts KV blocks and a swap would bring them back; set engine.preemption = recompute"
                )
            for row in np.flatnonzero(result.evicted.any(axis=1)):
                evict(self.pool, slot[row], result.evicted[row], self.index)
        self.generated[drew] += 1
        self.known[drew] += 1
        self.since_admission[drew] += 1
        owner = batch.request_id[rows]
        ledger.generated_tokens[owner] = self.generated[drew]
        first = owner[np.isnan(ledger.first_token_s[owner])]
        ledger.first_token_s[first] = now_s
        for row in rows[result.ended[rows] | (self.generated[drew] >= batch.output_tokens[rows])]:
            self._complete(int(slot[row]), now_s)

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
        self._free_slots.append(slot)
        self.executor.release(r, slot)

    # Observations

    def _head(self, point: DecisionPoint, active: np.ndarray) -> dict[str, np.ndarray]:
        """Arrays every observation has. A measurement is new once per decision point."""
        seen = self._seen[point]
        joined = active & (seen != self.request_id)
        seen[active] = self.request_id[active]
        enough = self.generated > self.config.delay_steps
        measured = active & self._fresh[point] & enough
        self._fresh[point][active] = False
        place = self._delayed_place()
        steps = self._ring_step[place, np.arange(self.num_slots)]
        return {
            "active": active.copy(),
            "joined": joined,
            "request_id": self.request_id.copy(),
            "measured": measured,
            "measured_step": np.where(measured, steps, 0),
        }

    def _delayed_place(self) -> np.ndarray:
        """Ring row of token `generated - 1 - delay` of each slot."""
        return (self.generated - 1 - self.config.delay_steps) % (self.config.delay_steps + 1)

    def _delayed(self, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Measurements of the token `delay_steps` before the last, NaN where that is before the first."""
        if self.config.delay_steps == 0:
            return {name: read_only(self._rings[name][0]) for name in names}
        place, every = self._delayed_place(), np.arange(self.num_slots)
        enough = self.generated > self.config.delay_steps
        return {name: np.where(enough, self._rings[name][place, every], np.nan) for name in names}

    def _observe_order(self) -> OrderObservation:
        active = self.occupied
        want = np.minimum(self.known - self.computed, self.config.max_chunk_tokens)
        cost_s = np.full(self.num_slots, np.nan)
        cost_s[active] = self.executor.marginal_step_s(self.computed[active], want[active])
        known_length = self.requests.length_known
        remaining = self._spec["output_tokens"] - self.generated
        return OrderObservation(
            step=self.step_index,
            **self._head(DecisionPoint.ORDER, active),
            served=read_only(self.served),
            running=self.pool.num_held > 0,
            arrival_rank=read_only(self._spec["rank"]),
            kind=read_only(self._spec["kind"]),
            priority=read_only(self._spec["priority"]),
            prompt_tokens=read_only(self._spec["prompt_tokens"]),
            computed_tokens=read_only(self.computed),
            generated_tokens=read_only(self.generated),
            remaining_tokens_oracle=remaining.astype(float) if known_length else np.full(self.num_slots, np.nan),
            **self._delayed(("entropy_raw_nats", "varentropy_raw_nats2")),
            marginal_step_s=cost_s,
        )
