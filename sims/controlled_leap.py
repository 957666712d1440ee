"""A controlled run in compiled code: engine steps with the controllers' own compiled steps between them.

With a controller on, something is decided in every step, so no step can be left out; what can be left out is Python. The
loop below is `EnginePlant._run` with the same compiled pieces in the same order (`look`, `survey`, the controller's
`decide`, `next_batch`, `attend`, `draw_tokens`, `step_totals`, `record_step`, `settle`), on the plant's own arrays. It begins at any step boundary, so a run that records its first steps is stepped through those and leaps from there, and it
leaves plant, ledger, telemetry and controller states as stepping does, bit for bit (property tests hold them together).

Controllers take part as the objects they are: each hands over its numbers, its state and its compiled step
(`controllers.compiled`) and gets the state back.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from controllers.compiled import KeepView, OrderView, TemperatureView, decide
from controllers.scheduling.ranking import LAST, ranks_of
from sims import streams
from sims.attend import attend
from sims.clock import SimClock
from sims.entropy_process import LawTable
from sims.executor import SimExecutor
from sims.leap import COMPLETED, NUM_COLUMNS, Asked, Ledger, Limits, take_arrivals
from sims.mass_process import MassLaw, MassState, forget_slot
from sims.scalar_philox import philox_words, unit
from sims.step_cost import StepRates, step_totals
from sims.token_draws import (
    ENTROPY,
    ENTROPY_RAW,
    FRESH,
    SURPRISAL,
    SURPRISAL_RAW,
    TEMPERATURE,
    VARENTROPY,
    VARENTROPY_RAW,
    ProcessState,
    TokenDraws,
    draw_tokens,
)
from workbench.engine import slots as row
from workbench.engine.kv_blocks import BlockPool, evict, release
from workbench.engine.plant import EnginePlant
from workbench.engine.sight import MASS_WIDTH_STEP
from workbench.engine.step_time import learn, marginal_s
from workbench.engine.telemetry import record_step
from workbench.protocols import Controllers, DecisionPoint, KeepRule
from workbench.signals import BoolArray, FloatArray, IntArray

CHUNK_STEPS = 4096  # steps a compiled call may take before its rows go to the telemetry
POINTS = (DecisionPoint.ORDER, DecisionPoint.TEMPERATURE, DecisionPoint.KEEP)
STEP, NEXT_ARRIVAL, NUM_FREE, BACKLOG_HEAD, BACKLOG_TAIL, MASS_WIDTH, KEEP_WIDTH = range(7)
# Why a compiled call returns: the run is over, the rows are full, a request will hold more blocks than there is room for.
ENDED, PAUSED, WIDER = range(3)
HIGHEST_RULE = int(KeepRule.WINDOW)


class Queues(NamedTuple):
    free: IntArray  # [slots] stack of free slots
    backlog: IntArray  # [num_requests] arrived, no slot yet: first in, first out
    counters: IntArray  # see the names above
    now_s: FloatArray  # [1]


class Head(NamedTuple):
    """What the observations of one decision point begin with, and what makes it."""

    flags: BoolArray
    measured_step: IntArray
    seen: IntArray
    fresh: BoolArray


class Measurements(NamedTuple):
    """On their way to the controllers."""

    rings: FloatArray
    ring_step: IntArray
    shown: FloatArray
    fresh: BoolArray
    block_mass: FloatArray
    delay: int


class Machine(NamedTuple):
    """What the executor computes with."""

    rates: StepRates
    noise: FloatArray  # [0]: none
    mass_s: float
    law: LawTable
    vocab: int
    seed: int
    temperature: FloatArray  # [slots] where nobody decides
    step_time: FloatArray  # [3, 4] what the engine has learned of its cost


def can_leap_controlled(plant: EnginePlant) -> bool:
    """True where `leap_controlled` gives what stepping would, as far as the plant is concerned."""
    executor, config = plant.executor, plant.config
    return (
        type(plant) is EnginePlant
        and bool(plant.controlled)
        and plant.controlled <= set(POINTS)
        and plant.index is None
        and plant.patience is None
        and config.max_queue is None
        and config.preemption == "recompute"
        and plant.telemetry.window_steps is not None
        and isinstance(executor, SimExecutor)
        and executor.slowdown == 1.0
        and (executor.mass is not None) == (DecisionPoint.KEEP in plant.controlled)
        and isinstance(plant.clock, SimClock)
        and plant.clock.is_alone
    )


def leap_controlled(plant: EnginePlant, controllers: Controllers, states: dict[DecisionPoint, Any]) -> bool:
    """Run the plant from this step boundary to its end; False, and nothing done, where a controller has no compiled step."""
    executor, config, requests, telemetry = plant.executor, plant.config, plant.requests, plant.telemetry
    assert isinstance(executor, SimExecutor)
    room = _room(plant)
    rules = _rules(controllers, states, room)
    if rules is None:
        return False
    asked = Asked(*(getattr(requests, name) for name in Asked._fields))
    limits = Limits(
        config.block_size, config.num_blocks, config.max_context_tokens, config.max_running, config.token_budget,
        config.max_chunk_tokens, config.watermark_blocks, config.preemption_quantum_tokens, config.horizon_s,
    )  # fmt: skip
    ledger = Ledger(*(getattr(plant.ledger, name) for name in Ledger._fields))
    queues = plant_queues(plant)
    eyes = plant.sight
    heads = [Head(*eyes.heads[point], eyes.seen[point], eyes.fresh_of[point]) for point in POINTS]
    sight = Measurements(eyes.rings, eyes.ring_step, eyes.shown, eyes.fresh, eyes.block_mass, config.delay_steps)
    columns = np.empty((CHUNK_STEPS, NUM_COLUMNS))
    while True:
        executor.make_room(plant.num_slots, room)
        cost = executor.step_cost
        machine = Machine(
            cost.rates, np.zeros(0) if cost.noise is None else cost.noise, cost.mass_s, executor.law,
            executor.vocab_size, executor.seed, executor.slot_temperature, executor.step_time.equations,
        )  # fmt: skip
        masses, mass_law = (executor.mass_state, executor.mass_law) if executor.mass is not None else (None, None)
        count, why = _run(
            asked, limits, plant.pool, ledger, plant.numbers, plant.flags, queues, *heads, sight, machine,
            executor.token_state, masses, mass_law, *(rules.get(point) for point in POINTS), columns,
            telemetry.target_nats, telemetry.sums, telemetry.counts,
        )  # fmt: skip
        telemetry.append_steps(columns[:count])
        leave_queues(plant, queues)
        width = int(queues.counters[KEEP_WIDTH])
        asked_of = {p: rule for p, rule in rules.items() if p is not DecisionPoint.KEEP or width >= 0}
        states |= {point: rule.state(width) for point, rule in asked_of.items()}
        if why == WIDER:
            room = min(2 * room, plant.sight.block_mass.shape[1])
            again = _rules(controllers, states, room)
            assert again is not None
            rules = again
        plant.on_step()
        if why == ENDED:
            return True


def _rules(controllers: Controllers, states: Mapping[DecisionPoint, Any], room: int) -> dict[DecisionPoint, Any] | None:
    """Each controller's compiled step, or None where one has none."""
    rules: dict[DecisionPoint, Any] = {}
    for point, controller in controllers.items():
        offer = getattr(controller, "compiled", None)
        rule = None if offer is None else offer(states[point], room)
        if rule is None:
            return None
        rules[point] = rule
    return rules


def _room(plant: EnginePlant) -> int:
    """KV blocks a slot to begin with."""
    width = plant.sight.block_mass.shape[1]
    return min(width, max(4 * MASS_WIDTH_STEP, plant.sight.shown_width)) if width else 0


def plant_queues(plant: EnginePlant) -> Queues:
    free, backlog = plant.free_slots, plant.backlog
    queues = Queues(
        np.zeros(plant.num_slots, np.int64), np.zeros(len(plant.requests), np.int64), np.zeros(7, np.int64),
        np.array([float(plant.clock.now_s)]),
    )  # fmt: skip
    queues.free[: len(free)] = free
    queues.backlog[: len(backlog)] = backlog
    # KEEP_WIDTH: blocks a slot that the last keep decision was shown, -1 before the first.
    queues.counters[:] = plant.step_index, plant.next_arrival, len(free), 0, len(backlog), plant.sight.shown_width, -1
    return queues


def leave_queues(plant: EnginePlant, queues: Queues) -> None:
    c = queues.counters
    plant.step_index, plant.next_arrival, plant.sight.shown_width = (
        int(c[STEP]),
        int(c[NEXT_ARRIVAL]),
        int(c[MASS_WIDTH]),
    )
    plant.backlog = queues.backlog[c[BACKLOG_HEAD] : c[BACKLOG_TAIL]].tolist()
    plant.free_slots = queues.free[: c[NUM_FREE]].tolist()
    plant.clock.wait_until(float(queues.now_s[0]))


@njit(cache=True)
def _admit(
    asked: Asked, limits: Limits, ledger: Ledger, numbers: IntArray, flags: BoolArray, queues: Queues, sight: Measurements,
    tokens: ProcessState, masses: MassState | None,
) -> None:  # fmt: skip
    """Arrivals up to now, then slots for the backlog, first come first served."""
    c, free, backlog = queues.counters, queues.free, queues.backlog
    c[NEXT_ARRIVAL], c[BACKLOG_TAIL] = take_arrivals(
        asked, limits, ledger.status, queues.now_s[0], c[NEXT_ARRIVAL], backlog, c[BACKLOG_TAIL]
    )
    while c[BACKLOG_HEAD] < c[BACKLOG_TAIL] and c[NUM_FREE] > 0:
        r = backlog[c[BACKLOG_HEAD]]
        c[BACKLOG_HEAD] += 1
        c[NUM_FREE] -= 1
        s = free[c[NUM_FREE]]
        numbers[row.REQUEST, s], numbers[row.KNOWN, s] = r, asked.prompt_tokens[r]
        numbers[row.COMPUTED, s] = numbers[row.GENERATED, s] = numbers[row.SINCE_ADMISSION, s] = 0
        numbers[row.LOST, s] = 0
        numbers[row.PROMPT, s], numbers[row.OUTPUT, s] = asked.prompt_tokens[r], asked.output_tokens[r]
        numbers[row.KIND, s], numbers[row.PRIORITY, s], numbers[row.RANK, s] = asked.kind[r], asked.priority[r], r
        flags[row.OCCUPIED, s], flags[row.SERVED, s] = True, False
        sight.rings[:, :, s] = np.nan
        sight.fresh[:, s] = False
        sight.block_mass[s, :] = np.nan
        tokens.counts[FRESH, s] = 1
        if masses is not None:
            forget_slot(masses, s)


@njit(cache=True)
def _see(active: BoolArray, numbers: IntArray, head: Head, sight: Measurements) -> None:
    """As `EnginePlant._look`."""
    row.look(
        active, numbers[row.REQUEST], head.seen, head.fresh, numbers[row.GENERATED], sight.ring_step, sight.delay,
        head.flags, head.measured_step,
    )  # fmt: skip
    if sight.delay:
        row.hand_over(sight.rings, numbers[row.GENERATED], sight.delay, sight.shown)


@njit(cache=True)
def _in_steps(num_blocks: int) -> int:
    """As wide as `EnginePlant` shows block masses."""
    return (num_blocks + MASS_WIDTH_STEP - 1) // MASS_WIDTH_STEP * MASS_WIDTH_STEP


@njit(cache=True)
def _leave(
    s: int, now: float, pool: BlockPool, ledger: Ledger, numbers: IntArray, flags: BoolArray, queues: Queues
) -> None:
    """The request in slot `s` has all its tokens."""
    r = numbers[row.REQUEST, s]
    ledger.status[r] = COMPLETED
    ledger.finished_s[r] = now
    release(pool, s)
    numbers[row.REQUEST, s] = -1
    flags[row.OCCUPIED, s] = flags[row.SAMPLES, s] = flags[row.DECODES, s] = flags[row.SERVED, s] = False
    queues.free[queues.counters[NUM_FREE]] = s
    queues.counters[NUM_FREE] += 1


@njit(cache=True)
def _run(
    asked: Asked, limits: Limits, pool: BlockPool, ledger: Ledger, numbers: IntArray, flags: BoolArray, queues: Queues,
    head_order: Head, head_temperature: Head, head_keep: Head, sight: Measurements, machine: Machine, tokens: ProcessState,
    masses: MassState | None, mass_law: MassLaw | None, order_rule, temperature_rule, keep_rule, columns: FloatArray,
    target: float, sums: FloatArray, counts: IntArray,
) -> tuple[int, int]:  # fmt: skip
    """Take steps until the run ends, `columns` is full or more room is needed: (rows written, why)."""
    c, size, num_slots = queues.counters, limits.block_size, numbers.shape[1]
    occupied, samples_flag, decodes_flag = flags[row.OCCUPIED], flags[row.SAMPLES], flags[row.DECODES]
    shown, rates = sight.shown, machine.rates
    off = np.full(machine.temperature.shape[0], np.nan)
    rank, order, preempted = np.empty(num_slots, np.int64), np.empty(num_slots, np.int64), np.zeros(num_slots, np.int64)
    want, remaining = np.zeros(num_slots, np.int64), np.empty(num_slots)
    heat, which = np.empty(num_slots), np.empty(num_slots, np.int64)
    everything = np.full(limits.max_running, -1.0)
    count = 0
    while True:
        _admit(asked, limits, ledger, numbers, flags, queues, sight, tokens, masses)
        if c[NUM_FREE] == num_slots:
            if c[NEXT_ARRIVAL] == asked.arrival_s.shape[0] or asked.arrival_s[c[NEXT_ARRIVAL]] >= limits.horizon_s:
                return count, ENDED
            queues.now_s[0] = asked.arrival_s[c[NEXT_ARRIVAL]]
            continue
        start_s = queues.now_s[0]
        if start_s >= limits.horizon_s:
            return count, ENDED
        if count == columns.shape[0]:
            return count, PAUSED
        if masses is not None:
            longest = 0
            for s in range(num_slots):
                if occupied[s]:
                    longest = max(longest, numbers[row.KNOWN, s])
            blocks = (longest + size - 1) // size
            if min(_in_steps(blocks), sight.block_mass.shape[1]) > masses.mass.shape[1]:
                return count, WIDER

        if order_rule is not None:
            _see(occupied, numbers, head_order, sight)
            row.survey(numbers, flags, pool.num_held, limits.max_chunk_tokens, want, remaining)
            view = OrderView(
                head_order.flags[row.ACTIVE], head_order.flags[row.JOINED], head_order.flags[row.MEASURED],
                flags[row.SERVED], numbers[row.RANK], numbers[row.KIND], shown[0],
                marginal_s(machine.step_time, numbers[row.COMPUTED], want),
            )  # fmt: skip
            decide(order_rule, view, rank)
        else:
            ranks_of(np.where(occupied, numbers[row.RANK], LAST), rank)
        ready = row.slots_by_rank(rank, occupied, order)
        if ready < 0:
            raise ValueError("a controller's compiled order is no permutation of the ready rows")
        batch, samples, num_preempted, num_decodes, num_waiting, widest = row.next_batch(
            order[:ready], pool, numbers, flags, size, limits.max_running, limits.token_budget,
            limits.max_chunk_tokens, limits.watermark_blocks, limits.quantum, start_s, ledger.status,
            ledger.first_scheduled_s, ledger.num_preempted, ledger.recomputed_tokens, preempted, 0, None,
        )  # fmt: skip
        slot, request_id, start, num_tokens = (
            batch[row.B_SLOT], batch[row.B_REQUEST], batch[row.B_START], batch[row.B_TOKENS],
        )  # fmt: skip
        n = slot.shape[0]
        num_samples = 0
        for i in range(n):
            num_samples += samples[i]
        if masses is not None:
            for i in range(num_preempted):
                sight.block_mass[preempted[i], :] = np.nan
            c[MASS_WIDTH] = max(c[MASS_WIDTH], min(_in_steps(widest), sight.block_mass.shape[1]))

        temperature, low, high = machine.temperature, 0.0, np.inf
        if temperature_rule is not None:  # noqa: SIM102 (a test of None alone is compiled away)
            if num_samples:
                _see(samples_flag, numbers, head_temperature, sight)
                look = TemperatureView(
                    c[STEP], head_temperature.flags[row.ACTIVE], head_temperature.flags[row.JOINED],
                    head_temperature.flags[row.MEASURED], head_temperature.measured_step, shown[2], shown[3], shown[5],
                )  # fmt: skip
                decide(temperature_rule, look, heat)
                low, high = max(0.0, temperature_rule.temperature_min), temperature_rule.temperature_max
                for s in range(num_slots):
                    heat[s] = min(max(heat[s], low), high) if heat[s] == heat[s] else np.nan
                temperature = heat
        kv_read, dropped = everything[:n], np.zeros(n)
        if masses is not None:
            if num_decodes:
                _see(decodes_flag, numbers, head_keep, sight)
                sights = KeepView(
                    head_keep.flags[row.ACTIVE], head_keep.flags[row.JOINED], head_keep.flags[row.MEASURED],
                    pool.num_logical, sight.block_mass, c[MASS_WIDTH],
                )  # fmt: skip
                decide(keep_rule, sights, which)
                c[KEEP_WIDTH] = c[MASS_WIDTH]
            evicts = num_decodes > 0 and keep_rule.evict.any()
            kv_read = np.full(n, -1.0)
            evicted = np.zeros((n, widest) if evicts else (0, 0), np.bool_)
            _, highest = attend(
                masses, mass_law, machine.seed, slot, request_id, start, num_tokens, samples, batch[row.B_BLOCKS], size,
                which, keep_rule.mass_budget, keep_rule.block_budget_frac, keep_rule.sink_blocks,
                keep_rule.recent_blocks, keep_rule.score, keep_rule.evict, sight.block_mass, np.zeros(n, np.bool_),
                kv_read, dropped, evicted, True,
            )  # fmt: skip
            if highest > HIGHEST_RULE:
                raise ValueError("a keep rule of the compiled loop reads keys, which the simulator does not have")
        draws = TokenDraws(np.empty((7, n)), np.empty((2, n), np.int64), np.empty(n, np.bool_))
        draw_tokens(
            machine.law, machine.vocab, tokens, machine.seed, slot, request_id, batch[row.B_INDEX], batch[row.B_KIND],
            samples, dropped, temperature, off, off, off, off, low, high, draws,
        )  # fmt: skip
        elapsed, energy, flops, read_bytes, dense_bytes = step_totals(rates, start, num_tokens, samples, kv_read)
        if masses is not None:  # noqa: SIM102
            if machine.mass_s != 0.0 and num_decodes:
                elapsed += machine.mass_s
        if machine.noise.shape[0]:
            w0, _, _, _ = philox_words(machine.seed, streams.STEP_NOISE, c[STEP], 0, 0)
            slowdown = machine.noise[int(unit(w0) * machine.noise.shape[0])]
            if slowdown != 1.0:
                energy += (slowdown - 1.0) * elapsed * rates.power_idle_w
                elapsed *= slowdown
        learn(machine.step_time, num_tokens.sum(), read_bytes / max(rates.kv_bytes_per_token, 1.0), elapsed)
        queues.now_s[0] = start_s + elapsed
        now = queues.now_s[0]

        record_step(
            columns[count], c[STEP], start_s, now - start_s, energy, flops, read_bytes, dense_bytes, num_waiting,
            c[BACKLOG_TAIL] - c[BACKLOG_HEAD], num_preempted, limits.num_blocks - pool.num_free[0], pool.num_free[0],
            request_id, num_tokens, samples, draws.measured[ENTROPY_RAW], draws.measured[ENTROPY],
            draws.measured[SURPRISAL_RAW], dropped, draws.measured[TEMPERATURE], target, sums, counts,
        )  # fmt: skip
        count += 1
        done = row.settle(
            slot, num_tokens, samples, batch[row.B_OUTPUT], draws.ended, draws.measured[ENTROPY_RAW],
            draws.measured[VARENTROPY_RAW], draws.measured[ENTROPY], draws.measured[VARENTROPY],
            draws.measured[SURPRISAL], draws.measured[TEMPERATURE], c[STEP], now, numbers, flags, sight.rings,
            sight.ring_step, sight.fresh, ledger.generated_tokens, ledger.first_token_s,
        )  # fmt: skip
        if masses is not None:
            for i in range(evicted.shape[0]):
                if evicted[i].any():
                    evict(pool, slot[i], evicted[i])
        for i in range(done.shape[0]):
            _leave(slot[done[i]], now, pool, ledger, numbers, flags, queues)
        c[STEP] += 1
