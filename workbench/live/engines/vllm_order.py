"""Our side of one vLLM scheduler: observe its requests, ask the order controller, sort `running` and `waiting`.

Measurements come over the signal board, one step late with asynchronous scheduling, which `engine.delay_steps` must say.
While the signal is lost (`signal_watch.py`) the engine's own order, by arrival, is in force; such steps are counted.
"""

import logging
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from vllm.v1.request import Request, RequestStatus

from workbench.engine.step_time import StepTime
from workbench.live.engines.deployment import check_delay, deploy, scenario_from_environment
from workbench.live.engines.order_slots import OrderSlots
from workbench.live.engines.signal_watch import Change, SignalWatch
from workbench.live.engines.vllm_params import wishes_of
from workbench.live.engines.vllm_shared import open_board, open_spool, slots_of, vocabulary_of
from workbench.live.engines.vllm_step_record import StepRecord
from workbench.protocols import DecisionPoint, OrderAction, OrderObservation
from workbench.scenario import Scenario
from workbench.signals import BoolArray, FloatArray, IntArray

log = logging.getLogger("vllm.entropic")


@dataclass(frozen=True)
class StepUnderWay:
    """A batch handed to the model. `rows` is for the record, None where nothing is recorded."""

    scheduled_s: float
    kv_tokens: int
    rows: dict[str, Any] | None


class VllmOrder:
    """Called around vLLM's own steps. Raises `InputError` for a scenario that does not fit."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        config = scheduler.vllm_config
        path = scenario_from_environment()
        deployment = deploy(path or Scenario(), "vllm", vocabulary_of(config))
        self.delay_steps = deployment.delay_steps
        self.law = deployment.controllers.get(DecisionPoint.ORDER)
        check_delay(deployment.scenario, bool(config.scheduler_config.async_scheduling))
        self.quantum_tokens = deployment.scenario.engine_config(1).preemption_quantum_tokens
        self.slots = OrderSlots(slots_of(config))
        self.state = None if self.law is None else self.law.init(self.slots.num_slots)
        board = open_board(config, self.slots.num_slots, self.delay_steps)
        assert board is not None
        self.board = board
        board.sign("scheduler")
        self.watch = SignalWatch()
        spool = open_spool()
        self.record = None if spool is None else StepRecord(spool, scheduler, self.slots)
        if self.record is not None:
            self.record.about(deployment)
        self.step_time = StepTime()
        self.step_index = 0
        self._under_way: deque[StepUnderWay] = deque()
        self._ended_s = 0.0
        self._running_before: list[Request] = []
        if self.law is not None:
            self._warm_up()

    # Requests come and go

    def arrived(self, request: Request) -> None:
        """A number for every request, in the order of arrival; a slot as soon as one is free."""
        params = request.sampling_params
        kind = "any" if params is None else wishes_of(params).kind
        self.slots.arrive(request, kind)
        self.board.count("requests_arrived")
        if self.record is not None:
            self.record.arrived(request, kind)

    def _let_go(self) -> None:
        for request in self.slots.let_go(self.scheduler.requests):
            self.board.count("requests_ended")
            if self.record is not None:
                self.record.ended(request, self._ended_s)
            self.slots.forget(request)

    def _take_in(self) -> None:
        for request, slot in self.slots.assign():
            params = request.sampling_params
            if params is not None:  # the sampler learns its number and slot from here
                given = {**(params.extra_args or {}), "entropic_slot": slot}
                given["entropic_request"] = self.slots.number(request)
                params.extra_args = given

    # Before vLLM's step

    def decide(self) -> None:
        """Rank every ready request and sort by it."""
        self._let_go()
        self._take_in()
        if self.law is not None and self.watch.lost:
            self.board.count("steps_on_own_order")
        elif self.law is not None and (observation := self._observe()) is not None:
            self.state, action = self.law.step(self.state, observation)
            self._sort(action)
            self.board.count("order_decisions")
            if self.record is not None:
                self.record.ordered(observation, action)
        self._running_before = list(self.scheduler.running)
        if self.record is not None:
            self.record.before_step(self._running_before)

    def _observe(self) -> OrderObservation | None:
        scheduler, slots = self.scheduler, self.slots
        ready = [*scheduler.running, *(r for r in scheduler.waiting if slots.slot(r) is not None)]
        if not ready:
            return None
        slot = slots.fill(ready)
        n = slots.num_slots
        active = np.zeros(n, np.bool_)
        active[slot] = True
        drawn = slots.next_token  # index of the token to be drawn next, those under way counted
        wanted = drawn[slot] - 1 - self.delay_steps
        seen = self.board.read(slot, slots.request_id[slot], wanted)
        due = wanted >= 0
        new = seen.found & (wanted > slots.seen_token[slot])
        self.board.count("measurements_used", int(np.count_nonzero(new)))
        self.board.count("measurements_missing", int(np.count_nonzero(due & ~seen.found)))
        slots.seen_token[slot[new]] = wanted[new]
        joined = active & slots.new
        slots.new[slot] = False
        measured, entropy, varentropy, step = slots.spread(slot, new, seen)
        cost_s = np.full(n, np.nan)
        want = np.maximum(slots.known_tokens[slot] - slots.computed_tokens[slot], 1)
        chunk = int(scheduler.max_num_scheduled_tokens)
        cost_s[slot] = self.step_time.marginal_s(slots.computed_tokens[slot], np.minimum(want, chunk))
        return self._observation(active, joined, measured, step, entropy, varentropy, cost_s)

    def _observation(
        self, active: BoolArray, joined: BoolArray, measured: BoolArray, measured_step: IntArray, entropy: FloatArray,
        varentropy: FloatArray, cost_s: FloatArray,
    ) -> OrderObservation:  # fmt: skip
        slots = self.slots
        return OrderObservation(
            step=self.step_index,
            active=active,
            joined=joined,
            request_id=np.where(active, slots.request_id, -1),
            measured=measured,
            measured_step=measured_step,
            served=slots.served.copy(),
            running=slots.running.copy(),
            arrival_rank=slots.request_id.copy(),
            kind=slots.kind.copy(),
            priority=slots.priority.copy(),
            prompt_tokens=slots.prompt_tokens.copy(),
            computed_tokens=slots.computed_tokens.copy(),
            generated_tokens=slots.next_token.copy(),
            remaining_tokens_oracle=np.full(slots.num_slots, np.nan),
            entropy_raw_nats=entropy,
            varentropy_raw_nats2=varentropy,
            marginal_step_s=cost_s,
        )

    def _warm_up(self) -> None:
        """Ask the law once about two requests that do not exist: it compiles now, not while the first request waits."""
        assert self.law is not None
        some = np.arange(self.slots.num_slots) < 2
        zero, numbers = np.zeros(some.size, np.int64), np.where(some, 1.0, np.nan)
        self.law.step(
            self.law.init(some.size), self._observation(some, some, some, zero, numbers, numbers, np.abs(numbers))
        )

    def _sort(self, action: OrderAction) -> None:
        """Running and waiting in the controller's order; the young ones away from the end, where victims are taken."""
        slots, rank = self.slots, action.rank

        def place(request: Request) -> tuple[bool, int]:
            slot = slots.slot(request)
            if slot is None:
                return True, slots.num_slots + slots.number(request)
            return False, int(rank[slot])

        self.scheduler.running.sort(key=lambda r: (slots.since_admission(r) >= self.quantum_tokens, place(r)))
        self._reorder_waiting(place)

    def _reorder_waiting(self, place: Any) -> None:
        waiting = self.scheduler.waiting
        if len(waiting) > 1:
            ordered = sorted(waiting, key=place)
            waiting.clear()
            waiting.extend(ordered)

    # After it

    def scheduled(self, output: Any) -> None:
        """vLLM has formed a batch."""
        victims = [r for r in reversed(self._running_before) if r.status is RequestStatus.PREEMPTED]
        self.board.count("preemptions", len(victims))
        scheduled = output.num_scheduled_tokens
        self.slots.served_now(scheduled, victims)
        if not scheduled:
            return
        requests = self.scheduler.requests
        self._under_way.append(StepUnderWay(
            scheduled_s=time.monotonic(),
            kv_tokens=sum(requests[name].num_computed_tokens for name in scheduled),
            rows=None if self.record is None else self.record.formed(self.step_index, output, victims),
        ))  # fmt: skip
        self.step_index += 1

    def done(self, output: Any) -> None:
        """A step of the model has ended: its time, and whether the sampler has given a sign of life."""
        if not output.num_scheduled_tokens or not self._under_way:
            return
        step = self._under_way.popleft()
        began_s, self._ended_s = max(step.scheduled_s, self._ended_s), time.monotonic()
        tokens = int(output.total_num_scheduled_tokens)
        self.step_time.add(tokens, float(step.kv_tokens), self._ended_s - began_s)
        if self.record is not None and step.rows is not None:
            self.record.ran(step.rows, began_s, self._ended_s)
        self._let_go()
        if self.law is not None:
            self._heed(self.watch.after_step(self.board.sampler_step))

    def _heed(self, change: Change) -> None:
        if change is Change.LOST:
            self.board.count("signal_losses")
            log.warning("no signal from the sampler for %d steps: back to vLLM's order", self.watch.patience_steps)
            self.scheduler.running.sort(key=self.slots.number)
            self._reorder_waiting(self.slots.number)
        elif change is Change.RETURNED:
            self.board.count("signal_returns")
            log.warning("the sampler's signal is back: requests are ordered by the scenario again")

    def close(self) -> None:
        self._let_go()
        log.info("counters: %s", self.board.counters())
        self.board.close(remove=True)
