"""The scheduler of the vLLM plug-in: our order over running and waiting requests, and so over preemption victims.

Before each of vLLM's own steps the controller ranks every ready request; `running` and `waiting` are sorted by it, and vLLM
does the rest: it serves running requests in that order, preempts from its end, and admits from the head of the waiting
ones. What vLLM's walk does not do: a running request is never paused for a waiting one, and no request is admitted in a
step that preempted. The preemption quantum (`engine.preemption_quantum_tokens`) keeps young admissions off the end.

Measurements come over the signal board, one step late with asynchronous scheduling, which `engine.delay_steps` must say.
When the sampler's sign of life stays away for `PATIENCE_STEPS` steps the engine's own order (by arrival) is restored, and
counted, until the signal is back.
"""

import logging
import time
from collections import deque
from typing import Any

import numpy as np
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request, RequestStatus

from workbench.errors import InputError
from workbench.live.engines.deployment import deploy, scenario_from_environment
from workbench.live.engines.order_slots import OrderSlots
from workbench.live.engines.vllm_params import wishes_of
from workbench.live.engines.vllm_plugin import check_version
from workbench.live.engines.vllm_shared import open_board, open_spool, slots_of, vocabulary_of
from workbench.live.step_time import StepTime
from workbench.protocols import DecisionPoint, OrderAction, OrderObservation
from workbench.record import decision_row
from workbench.scenario import Scenario

log = logging.getLogger("vllm.entropic")
PATIENCE_STEPS = 8  # model steps without a sign of life from the sampler before its signal counts as lost


def entropy_scheduler(**options: Any) -> Scheduler:
    """What `--scheduler-cls` names: the scheduler for this configuration, asynchronous or not. Raises `InputError`."""
    check_version()
    config = options["vllm_config"].scheduler_config
    if config.policy != "fcfs":
        raise InputError(
            f"--scheduling-policy {config.policy} and a scheduling controller both order requests; leave the policy at "
            "fcfs (the controller priority-classes reads the same priorities)"
        )
    return (AsyncEntropyScheduler if config.async_scheduling else EntropyScheduler)(**options)


class _Steered:
    """Wraps the three calls of a vLLM step; mixed into both of its schedulers."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.order = _Order(self)

    def add_request(self, request: Request) -> None:
        known = request.request_id in self.requests  # type: ignore[attr-defined]
        super().add_request(request)  # type: ignore[misc]
        if not known:
            self.order.arrived(request)

    def schedule(self, *args: Any, **options: Any) -> Any:
        self.order.decide()
        output = super().schedule(*args, **options)  # type: ignore[misc]
        self.order.scheduled(output)
        return output

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        outputs = super().update_from_output(scheduler_output, model_runner_output)  # type: ignore[misc]
        self.order.done(scheduler_output)
        return outputs

    def shutdown(self) -> None:
        super().shutdown()  # type: ignore[misc]
        self.order.close()


class EntropyScheduler(_Steered, Scheduler):
    """For synchronous scheduling."""


class AsyncEntropyScheduler(_Steered, AsyncScheduler):
    """For asynchronous scheduling: a step is scheduled while the one before it runs."""


class _Order:
    """Our side of one vLLM scheduler."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        config = scheduler.vllm_config
        path = scenario_from_environment()
        self.deployment = deploy(path or Scenario(), "vllm", vocabulary_of(config))
        self.law = self.deployment.controllers.get(DecisionPoint.ORDER)
        self.delay_steps = self.deployment.delay_steps
        if self.law is not None and config.scheduler_config.async_scheduling and self.delay_steps < 1:
            raise InputError(
                "engine.delay_steps is 0, but with asynchronous scheduling an order is made before the last token is "
                "measured; set delay_steps = 1, or start vLLM with --no-async-scheduling"
            )
        self.quantum = self.deployment.scenario.engine_config(1).preemption_quantum_tokens
        self.slots = OrderSlots(slots_of(config))
        self.state = None if self.law is None else self.law.init(self.slots.num_slots)
        board = open_board(config, self.slots.num_slots, self.delay_steps)
        assert board is not None
        self.board = board
        board.sign("scheduler")
        self.spool = open_spool()
        self.step_time = StepTime()
        self.step_index = 0
        self.own_order = False  # the signal is lost
        self._sampler_step, self._silent_steps = 0, 0
        self._under_way: deque[dict[str, Any]] = deque()
        self._ended_s = 0.0
        self._began = time.time() - time.monotonic()
        self._running_before: list[Request] = []
        self._computed_before: dict[str, int] = {}
        if self.spool is not None:
            self._tell_record()

    # Requests come and go

    def arrived(self, request: Request) -> None:
        """A number for every request, in the order of arrival; a slot as soon as one is free."""
        params = request.sampling_params
        wishes = None if params is None else wishes_of(params)
        number = self.slots.arrive(request, "any" if wishes is None else wishes.kind)
        self.board.count("requests_arrived")
        if self.spool is not None:
            given = (params.extra_args or {}) if params is not None else {}
            self.spool.write("requests", {
                "request_id": [number], "name": [request.request_id], "kind": ["any" if wishes is None else wishes.kind],
                "priority": [request.priority], "prompt_tokens": [request.num_prompt_tokens],
                "asked_tokens": [request.max_tokens], "seen_s": [self._now()],
                "arrival_s": [float(given.get("entropic_arrival_s", request.arrival_time))],
            })  # fmt: skip

    def _settle_requests(self) -> None:
        alive = self.scheduler.requests
        for request in self.slots.let_go(alive):
            self.board.count("requests_ended")
            if self.spool is not None:
                self.spool.write("ends", {
                    "request_id": [self.slots.number(request)], "time_s": [self._ended_s],
                    "output_tokens": [request.num_output_tokens], "status": [request.status.name],
                })  # fmt: skip
            self.slots.forget(request)
        for request, slot in self.slots.assign():
            params = request.sampling_params
            if params is not None:  # the sampler learns its number and slot from here
                given = {**(params.extra_args or {}), "entropic_slot": slot}
                given["entropic_request"] = self.slots.number(request)
                params.extra_args = given

    # Before vLLM's step

    def decide(self) -> None:
        scheduler = self.scheduler
        self._settle_requests()
        if self.law is not None and not self.own_order:
            observation = self._observe()
            if observation is not None:
                self.state, action = self.law.step(self.state, observation)
                self._sort(action)
                self.board.count("order_decisions")
                if self.spool is not None:
                    self.spool.write("order", decision_row(observation, action, action))
        elif self.own_order:
            self.board.count("steps_on_own_order")
        self._running_before = list(scheduler.running)
        if self.spool is not None:
            self._computed_before = {r.request_id: r.num_computed_tokens for r in self._running_before}

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
        return OrderObservation(
            step=self.step_index,
            active=active,
            joined=joined,
            request_id=np.where(active, slots.request_id, -1),
            measured=measured,
            measured_step=step,
            served=slots.served.copy(),
            running=slots.running.copy(),
            arrival_rank=slots.request_id.copy(),
            kind=slots.kind.copy(),
            priority=slots.priority.copy(),
            prompt_tokens=slots.prompt_tokens.copy(),
            computed_tokens=slots.computed_tokens.copy(),
            generated_tokens=drawn.copy(),
            remaining_tokens_oracle=np.full(n, np.nan),
            entropy_raw_nats=entropy,
            varentropy_raw_nats2=varentropy,
            marginal_step_s=cost_s,
        )

    def _sort(self, action: OrderAction) -> None:
        """Running and waiting in the controller's order; the young ones away from the end, where victims are taken."""
        scheduler, slots = self.scheduler, self.slots
        rank = action.rank

        def place(request: Request) -> tuple[bool, int]:
            slot = slots.slot(request)
            if slot is None:
                return True, slots.num_slots + slots.number(request)
            return False, int(rank[slot])

        scheduler.running.sort(key=lambda r: (slots.since_admission(r) >= self.quantum, place(r)))
        self._reorder_waiting(place)

    def _reorder_waiting(self, place: Any) -> None:
        waiting = self.scheduler.waiting
        if len(waiting) > 1:
            ordered = sorted(waiting, key=place)
            waiting.clear()
            waiting.extend(ordered)

    def _restore_own_order(self) -> None:
        """vLLM's own: by arrival."""
        self.scheduler.running.sort(key=self.slots.number)
        self._reorder_waiting(self.slots.number)

    # After it

    def scheduled(self, output: Any) -> None:
        victims = [r for r in reversed(self._running_before) if r.status is RequestStatus.PREEMPTED]
        self.board.count("preemptions", len(victims))
        scheduled = output.num_scheduled_tokens
        self.slots.served_now(scheduled, victims)
        if not scheduled:
            return
        if self.spool is not None:
            self._under_way.append(self._batch_rows(output, victims))
        else:
            requests = self.scheduler.requests
            context = sum(requests[name].num_computed_tokens for name in scheduled)
            self._under_way.append({"start_s": time.monotonic(), "kv_tokens": context})
        self.step_index += 1

    def done(self, output: Any) -> None:
        """A step of the model has ended: its time, and whether the sampler has given a sign of life."""
        if not output.num_scheduled_tokens or not self._under_way:
            return
        batch = self._under_way.popleft()
        now_s = time.monotonic()
        began_s = max(batch["start_s"], self._ended_s - self._began if self._ended_s else 0.0)
        self._ended_s = now_s + self._began
        self.step_time.add(int(output.total_num_scheduled_tokens), float(batch["kv_tokens"]), now_s - began_s)
        if self.spool is not None:
            rows = batch["rows"]
            rows["start_s"] = np.full(len(rows["slot"]), began_s + self._began)
            rows["end_s"] = np.full(len(rows["slot"]), self._ended_s)
            self.spool.write("batches", rows)
        self._watch()

    def _watch(self) -> None:
        """The watchdog: no beat for a while is a lost signal; a beat brings it back."""
        beat = self.board.sampler_step
        self._silent_steps = 0 if beat != self._sampler_step else self._silent_steps + 1
        self._sampler_step = beat
        if self.law is None:
            return
        if not self.own_order and self._silent_steps >= PATIENCE_STEPS:
            self.own_order = True
            self.board.count("signal_losses")
            log.warning("no signal from the sampler for %d steps: back to vLLM's own order", PATIENCE_STEPS)
            self._restore_own_order()
        elif self.own_order and self._silent_steps == 0:
            self.own_order = False
            self.board.count("signal_returns")
            log.warning("the sampler's signal is back: requests are ordered by the scenario again")

    def close(self) -> None:
        self._settle_requests()
        log.info("counters: %s", self.board.counters())
        self.board.close(remove=True)

    # For the record

    def _now(self) -> float:
        return time.monotonic() + self._began

    def _batch_rows(self, output: Any, victims: list[Request]) -> dict[str, Any]:
        scheduler, slots = self.scheduler, self.slots
        requests = [scheduler.requests[name] for name in output.num_scheduled_tokens]
        tokens = np.array(list(output.num_scheduled_tokens.values()), np.int64)
        computed = np.array([r.num_computed_tokens for r in requests], np.int64)  # after this step
        known = np.array([r.num_tokens + r.num_output_placeholders for r in requests], np.int64)
        # An asynchronous scheduler has counted this step's own token as known already.
        partial = np.array([r.is_prefill_chunk for r in requests], np.bool_)
        token_index = np.array([r.num_output_tokens + r.num_output_placeholders for r in requests], np.int64)
        if isinstance(scheduler, AsyncScheduler):
            token_index -= ~partial
            known -= ~partial
        pool = scheduler.kv_cache_manager.block_pool
        used = pool.num_gpu_blocks - 1 - pool.get_num_free_blocks()
        n = len(requests)
        if victims:
            assert self.spool is not None
            self.spool.write("preemptions", {
                "step": [self.step_index] * len(victims), "request_id": [slots.number(r) for r in victims],
                "slot": [slots.slot(r) for r in victims],
                "computed_tokens": [self._computed_before[r.request_id] for r in victims],
            })  # fmt: skip
        rows = {
            "step": np.full(n, self.step_index), "slot": [slots.slot(r) for r in requests],
            "request_id": [slots.number(r) for r in requests], "start": computed - tokens, "num_tokens": tokens,
            "samples": ~partial, "token_index": token_index, "known_tokens": known,
            "num_blocks": [self._num_blocks(r) for r in requests], "blocks_used": np.full(n, used),
            "blocks_free": np.full(n, pool.get_num_free_blocks()), "num_waiting": np.full(n, len(scheduler.waiting)),
            "num_preempted": np.full(n, len(victims)),
        }  # fmt: skip
        return {"start_s": time.monotonic(), "kv_tokens": int(computed.sum()), "rows": rows}

    def _num_blocks(self, request: Request) -> int:
        return len(self.scheduler.kv_cache_manager.get_blocks(request.request_id).blocks[0])

    def _tell_record(self) -> None:
        assert self.spool is not None
        config = self.scheduler.vllm_config
        scheduling = config.scheduler_config
        self.spool.about("scheduler", {
            "scenario": self.deployment.scenario.plain(), "seed": self.deployment.seed,
            "controller_context": dict(self.deployment.context), "controller_flags": list(self.deployment.flags),
            "num_slots": self.slots.num_slots, "num_blocks": int(config.cache_config.num_gpu_blocks) - 1,
            "block_size": int(self.scheduler.block_size), "max_running": int(scheduling.max_num_seqs),
            "token_budget": int(scheduling.max_num_batched_tokens), "max_context_tokens": int(self.scheduler.max_model_len),
            "async_scheduling": bool(scheduling.async_scheduling), "model": str(config.model_config.model),
            "dtype": str(config.model_config.dtype), "vllm": _version(),
            "model_config": config.model_config.hf_config.to_dict(),
        })  # fmt: skip


def _version() -> str:
    import vllm

    return vllm.__version__
