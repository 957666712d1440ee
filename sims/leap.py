"""A whole uncontrolled run in compiled code: the engine's own batching, with many steps taken in one leap.

With no controller on, nothing is decided between two scheduling events. While every holder of KV decodes, the next events
are an arrival, a request's last token, and a block that may not be had; until the first of them the batch stays as it
is, and a step is one addition to the summed context. `leap_through` runs a fresh plant to its end that way and
leaves plant, ledger and telemetry as stepping does, bit for bit (a property test holds the two together).

Batching is `workbench.engine.batching.form_batch`, costs are `step_totals`, tokens `draw_tokens`: nothing is restated here
but the order of events. The plant must have no controllers, a `SimExecutor` at its usual speed, and no delay window; prefix caching, swap, queue limit and deadlines act between steps, so
they are stepped through as well.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from sims.entropy_process import LawTable
from sims.executor import SimExecutor
from sims.step_cost import StepRates, step_totals
from sims.token_draws import (
    ENTROPY,
    ENTROPY_RAW,
    FRESH,
    SURPRISAL_RAW,
    TEMPERATURE,
    ProcessState,
    TokenDraws,
    draw_tokens,
    new_draws,
)
from workbench.engine.batching import form_batch
from workbench.engine.kv_blocks import BlockPool, allocate, release
from workbench.engine.plant import EnginePlant
from workbench.engine.requests import RequestStatus
from workbench.engine.telemetry import STEP_COLUMNS, record_step
from workbench.signals import FloatArray, IntArray

REFUSED, WAITING, RUNNING, COMPLETED = (
    int(s) for s in (RequestStatus.REFUSED, RequestStatus.WAITING, RequestStatus.RUNNING, RequestStatus.COMPLETED)
)
CHUNK_STEPS = 1 << 15  # steps a compiled call may take before its rows go to the telemetry
NUM_COLUMNS = len(STEP_COLUMNS)


class Asked(NamedTuple):
    """The requests, [num_requests]."""

    arrival_s: FloatArray
    prompt_tokens: IntArray
    output_tokens: IntArray
    kind: IntArray
    priority: IntArray


class Limits(NamedTuple):
    block_size: int
    num_blocks: int
    max_context_tokens: int
    max_running: int
    token_budget: int
    max_chunk_tokens: int
    watermark_blocks: int
    quantum: int
    horizon_s: float


class Ledger(NamedTuple):
    """Arrays of `RequestLedger`."""

    status: IntArray
    first_scheduled_s: FloatArray
    first_token_s: FloatArray
    finished_s: FloatArray
    generated_tokens: IntArray
    num_preempted: IntArray
    recomputed_tokens: IntArray


class Slots(NamedTuple):
    """Per slot, as in `EnginePlant`, and the queues of slots and requests."""

    request_id: IntArray
    known: IntArray
    computed: IntArray
    generated: IntArray
    since_admission: IntArray
    lost_tokens: IntArray
    order: IntArray  # occupied slots, oldest request first
    free: IntArray  # stack of free slots
    backlog: IntArray  # [num_requests] arrived, no slot yet: first in, first out
    counters: IntArray  # see the names below
    now_s: FloatArray  # [1]


READY, NEXT_ARRIVAL, FREE, BACKLOG_HEAD, BACKLOG_TAIL, STEP = range(6)


def can_leap(plant: EnginePlant) -> bool:
    """True where `leap_through` gives what stepping would."""
    executor, config = plant.executor, plant.config
    return (
        type(plant) is EnginePlant
        and not plant.controlled
        and plant.index is None
        and plant.patience is None
        and config.max_queue is None
        and config.preemption == "recompute"
        and isinstance(executor, SimExecutor)
        and executor.mass is None
        and executor.step_cost.noise is None
        and plant.step_index == 0
        and plant.telemetry.window_steps == 0
    )


def leap_through(plant: EnginePlant) -> None:
    """Run a fresh uncontrolled plant to its end."""
    executor, config, requests = plant.executor, plant.config, plant.requests
    assert isinstance(executor, SimExecutor)
    executor.make_room(plant.num_slots, 0)
    slots = Slots(
        plant.request_id, plant.known, plant.computed, plant.generated, plant.since_admission, plant.lost_tokens,
        np.zeros(plant.num_slots, np.int64), np.arange(plant.num_slots - 1, -1, -1),
        np.zeros(len(requests), np.int64), np.zeros(6, np.int64), np.array([float(plant.clock.now_s)]),
    )  # fmt: skip
    slots.counters[FREE] = plant.num_slots
    asked = Asked(requests.arrival_s, requests.prompt_tokens, requests.output_tokens, requests.kind, requests.priority)
    limits = Limits(
        config.block_size, config.num_blocks, config.max_context_tokens, config.max_running, config.token_budget,
        config.max_chunk_tokens, config.watermark_blocks, config.preemption_quantum_tokens, config.horizon_s,
    )  # fmt: skip
    ledger = Ledger(*(getattr(plant.ledger, name) for name in Ledger._fields))
    telemetry = plant.telemetry
    rows = new_draws(config.max_running)
    columns = np.empty((CHUNK_STEPS, NUM_COLUMNS))
    while True:
        count, done = _run(
            asked, limits, plant.pool, slots, ledger, telemetry.sums, telemetry.counts, telemetry.target_nats,
            executor.step_cost.rates, executor.law, executor.vocab_size, executor.token_state, executor.seed, executor.slot_temperature, rows, columns,
        )  # fmt: skip
        telemetry.append_steps(columns[:count])
        c = slots.counters
        backlog = slots.backlog[c[BACKLOG_HEAD] : c[BACKLOG_TAIL]]
        plant.leaped_to(int(c[STEP]), int(c[NEXT_ARRIVAL]), backlog, slots.order[: c[READY]])
        plant.clock.wait_until(float(slots.now_s[0]))
        plant.on_step()
        if done:
            return


@njit(cache=True)
def take_arrivals(
    asked: Asked, limits: Limits, status: IntArray, now_s: float, next_arrival: int, backlog: IntArray, tail: int
) -> tuple[int, int]:
    """Requests that have arrived by now: into the backlog, or refused where they can never fit. (next arrival, tail)."""
    while next_arrival < asked.arrival_s.shape[0]:
        r = next_arrival
        if asked.arrival_s[r] > now_s or asked.arrival_s[r] >= limits.horizon_s:
            break
        next_arrival += 1
        total = asked.prompt_tokens[r] + asked.output_tokens[r]
        if total > limits.max_context_tokens or -(-total // limits.block_size) > limits.num_blocks:
            status[r] = REFUSED
        else:
            status[r] = WAITING
            backlog[tail] = r
            tail += 1
    return next_arrival, tail


@njit(cache=True)
def _admit(asked: Asked, limits: Limits, slots: Slots, ledger: Ledger, tokens: ProcessState) -> None:
    """Arrivals up to now, then slots for the backlog, first come first served."""
    c = slots.counters
    c[NEXT_ARRIVAL], c[BACKLOG_TAIL] = take_arrivals(
        asked, limits, ledger.status, slots.now_s[0], c[NEXT_ARRIVAL], slots.backlog, c[BACKLOG_TAIL]
    )
    while c[BACKLOG_HEAD] < c[BACKLOG_TAIL] and c[FREE] > 0:
        r = slots.backlog[c[BACKLOG_HEAD]]
        c[BACKLOG_HEAD] += 1
        c[FREE] -= 1
        s = slots.free[c[FREE]]
        slots.request_id[s] = r
        slots.known[s] = asked.prompt_tokens[r]
        slots.computed[s] = slots.generated[s] = slots.since_admission[s] = slots.lost_tokens[s] = 0
        slots.order[c[READY]] = s
        c[READY] += 1
        tokens.counts[FRESH, s] = 1


@njit(cache=True)
def _steps_ahead(asked: Asked, pool: BlockPool, slots: Slots, slot: IntArray, limits: Limits) -> int:
    """For a batch of decode rows that holds all KV there is: steps, this one included, until one of them ends.

    0: no leap, because a holder is paused, or somebody without KV is ranked before one and might take its blocks.
    """
    c = slots.counters
    waiting = False
    for i in range(c[READY]):
        holds = pool.num_held[slots.order[i]] > 0
        if holds and waiting:
            return 0
        waiting = waiting or not holds
    # Whoever waits does so for a place, budget or blocks, none of which comes free before the leap ends.
    if _holders(pool, slots) != slot.shape[0]:
        return 0
    fewest = limits.max_context_tokens
    for s in slot:
        fewest = min(fewest, asked.output_tokens[slots.request_id[s]] - slots.generated[s])
    return fewest


@njit(cache=True)
def _holders(pool: BlockPool, slots: Slots) -> int:
    count = 0
    for i in range(slots.counters[READY]):
        count += pool.num_held[slots.order[i]] > 0
    return count


@njit(cache=True)
def _run(
    asked: Asked, limits: Limits, pool: BlockPool, slots: Slots, ledger: Ledger, sums: FloatArray, counts: IntArray,
    target: float, rates: StepRates, law: LawTable, vocab: int, tokens: ProcessState, seed: int, temperature: FloatArray,
    draws: TokenDraws, columns: FloatArray,
) -> tuple[int, bool]:  # fmt: skip
    """Take steps until the run ends or `columns` is full: (rows written, ended)."""
    c, size = slots.counters, limits.block_size
    batch_slot = np.empty(limits.max_running, np.int64)
    batch_tokens = np.empty(limits.max_running, np.int64)
    preempted = np.empty(slots.order.shape[0], np.int64)
    before = np.empty(slots.order.shape[0], np.int64)
    off = np.full(temperature.shape[0], np.nan)
    count = 0
    while True:
        _admit(asked, limits, slots, ledger, tokens)
        if c[READY] == 0:
            if c[NEXT_ARRIVAL] == asked.arrival_s.shape[0] or asked.arrival_s[c[NEXT_ARRIVAL]] >= limits.horizon_s:
                return count, True
            slots.now_s[0] = asked.arrival_s[c[NEXT_ARRIVAL]]
            continue
        if slots.now_s[0] >= limits.horizon_s:
            return count, True
        if count == columns.shape[0]:
            return count, False
        for i in range(c[READY]):
            before[slots.order[i]] = slots.computed[slots.order[i]]
        n, num_preempted = form_batch(
            slots.order[: c[READY]], pool, slots.known, slots.computed, slots.since_admission, size, limits.max_running,
            limits.token_budget, limits.max_chunk_tokens, limits.watermark_blocks, limits.quantum, batch_slot,
            batch_tokens, preempted,
        )  # fmt: skip
        for i in range(num_preempted):
            s = preempted[i]
            r = slots.request_id[s]
            ledger.num_preempted[r] += 1
            ledger.status[r] = WAITING
            slots.lost_tokens[s] = max(slots.lost_tokens[s], before[s])
        slot, num_tokens = batch_slot[:n], batch_tokens[:n]
        request_id, start, kind = slots.request_id[slot], slots.computed[slot], np.empty(n, np.int64)
        token_index, samples = slots.generated[slot], np.empty(n, np.bool_)
        all_decode = True
        for i in range(n):
            s, r = slot[i], request_id[i]
            kind[i] = asked.kind[r]
            samples[i] = start[i] + num_tokens[i] == slots.known[s]
            all_decode = all_decode and samples[i] and num_tokens[i] == 1 and start[i] > 0
            ledger.status[r] = RUNNING
            if np.isnan(ledger.first_scheduled_s[r]):
                ledger.first_scheduled_s[r] = slots.now_s[0]
            lost = slots.lost_tokens[s]
            ledger.recomputed_tokens[r] += min(start[i] + num_tokens[i], lost) - min(start[i], lost)
        waiting = c[READY] - _holders(pool, slots)
        ahead = 1
        if all_decode and n > 0:
            ahead = max(1, _steps_ahead(asked, pool, slots, slot, limits))
        next_s = asked.arrival_s[c[NEXT_ARRIVAL]] if c[NEXT_ARRIVAL] < asked.arrival_s.shape[0] else np.inf
        dropped = np.zeros(n)
        everything = np.full(n, -1.0)
        # The first step is this batch as formed; further ones repeat it with a longer context.
        for j in range(ahead):
            if j > 0:
                if slots.now_s[0] >= next_s or slots.now_s[0] >= limits.horizon_s or count == columns.shape[0]:
                    break
                wanted = 0
                for i in range(n):
                    wanted += start[i] % size == 0
                if wanted > pool.num_free[0]:
                    break
                for i in range(n):
                    if start[i] % size == 0:
                        allocate(pool, slot[i], 1)
            begin = slots.now_s[0]
            draw_tokens(
                law, vocab, tokens, seed, slot, request_id, token_index, kind, samples, dropped, temperature, off, off,
                off, off, 0.0, np.inf, draws,
            )  # fmt: skip
            elapsed, energy, flops, kv_read, kv_dense = step_totals(rates, start, num_tokens, samples, everything)
            slots.now_s[0] = begin + elapsed
            now = slots.now_s[0]
            record_step(
                columns[count], c[STEP], begin, now - begin, energy, flops, kv_read, kv_dense, waiting,
                c[BACKLOG_TAIL] - c[BACKLOG_HEAD], num_preempted if j == 0 else 0,
                limits.num_blocks - pool.num_free[0], pool.num_free[0], request_id, num_tokens, samples,
                draws.measured[ENTROPY_RAW], draws.measured[ENTROPY], draws.measured[SURPRISAL_RAW], dropped,
                draws.measured[TEMPERATURE], target, sums, counts,
            )  # fmt: skip
            count += 1
            c[STEP] += 1
            finished = False
            for i in range(n):
                s, r = slot[i], request_id[i]
                slots.computed[s] += num_tokens[i]
                start[i] += num_tokens[i]
                if samples[i]:
                    slots.generated[s] += 1
                    slots.known[s] += 1
                    slots.since_admission[s] += 1
                    token_index[i] += 1
                    ledger.generated_tokens[r] = slots.generated[s]
                    if np.isnan(ledger.first_token_s[r]):
                        ledger.first_token_s[r] = now
                    finished = finished or draws.ended[i] or slots.generated[s] >= asked.output_tokens[r]
            if finished:
                for i in range(n):
                    s, r = slot[i], request_id[i]
                    if samples[i] and (draws.ended[i] or slots.generated[s] >= asked.output_tokens[r]):
                        ledger.status[r] = COMPLETED
                        ledger.finished_s[r] = now
                        release(pool, s)
                        slots.request_id[s] = -1
                        slots.free[c[FREE]] = s
                        c[FREE] += 1
                _drop_finished(slots)
                break


@njit(cache=True)
def _drop_finished(slots: Slots) -> None:
    c, kept = slots.counters, 0
    for i in range(c[READY]):
        if slots.request_id[slots.order[i]] >= 0:
            slots.order[kept] = slots.order[i]
            kept += 1
    c[READY] = kept
