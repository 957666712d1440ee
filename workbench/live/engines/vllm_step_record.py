"""What the scheduler's process writes of a vLLM run: requests as they come and go, batches, victims, the engine's settings.

The streams that `collect.py` joins with those of the process that samples.
"""

import time
from typing import Any

import numpy as np
import vllm
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.request import Request

from workbench.live.engines.deployment import Deployment
from workbench.live.engines.order_slots import OrderSlots
from workbench.live.engines.spool import Spool
from workbench.protocols import Action, Observation
from workbench.record import decision_row

WALL_MINUS_MONOTONIC_S = time.time() - time.monotonic()


def wall_s(monotonic_s: float) -> float:
    """The wall clock's time, the same in every process of the engine, of a monotonic one."""
    return monotonic_s + WALL_MINUS_MONOTONIC_S


class StepRecord:
    """Rows of one vLLM scheduler into a spool. Times in the spool are seconds since the epoch."""

    def __init__(self, spool: Spool, scheduler: Any, slots: OrderSlots) -> None:
        self.spool, self.scheduler, self.slots = spool, scheduler, slots
        self._computed_before: dict[str, int] = {}

    def about(self, deployment: Deployment) -> None:
        """The engine's settings, once."""
        config = self.scheduler.vllm_config
        scheduling = config.scheduler_config
        self.spool.about("scheduler", {
            "scenario": deployment.scenario.plain(), "seed": deployment.seed,
            "controller_context": dict(deployment.context), "controller_flags": list(deployment.flags),
            "num_slots": self.slots.num_slots, "num_blocks": int(config.cache_config.num_gpu_blocks) - 1,
            "block_size": int(self.scheduler.block_size), "max_running": int(scheduling.max_num_seqs),
            "token_budget": int(scheduling.max_num_batched_tokens), "max_context_tokens": int(self.scheduler.max_model_len),
            "async_scheduling": bool(scheduling.async_scheduling), "model": str(config.model_config.model),
            "dtype": str(config.model_config.dtype), "vllm": vllm.__version__,
            "model_config": config.model_config.hf_config.to_dict(),
        })  # fmt: skip

    def arrived(self, request: Request, kind: str) -> None:
        params = request.sampling_params
        given = (params.extra_args or {}) if params is not None else {}
        self.spool.write("requests", {
            "request_id": [self.slots.number(request)], "name": [request.request_id], "kind": [kind],
            "priority": [request.priority], "prompt_tokens": [request.num_prompt_tokens],
            "asked_tokens": [request.max_tokens], "seen_s": [wall_s(time.monotonic())],
            "arrival_s": [float(given.get("entropic_arrival_s", request.arrival_time))],
        })  # fmt: skip

    def ended(self, request: Request, ended_s: float) -> None:
        self.spool.write("ends", {
            "request_id": [self.slots.number(request)], "time_s": [wall_s(ended_s)],
            "output_tokens": [request.num_output_tokens], "status": [request.status.name],
        })  # fmt: skip

    def ordered(self, observation: Observation, action: Action) -> None:
        self.spool.write("order", decision_row(observation, action, action))

    def before_step(self, running: list[Request]) -> None:
        """vLLM sets a victim's count of computed tokens to 0: it is noted before the step."""
        self._computed_before = {r.request_id: r.num_computed_tokens for r in running}

    def formed(self, step: int, output: Any, victims: list[Request]) -> dict[str, Any]:
        """The rows of a batch that is about to run; `ran` writes them."""
        scheduler, slots = self.scheduler, self.slots
        requests = [scheduler.requests[name] for name in output.num_scheduled_tokens]
        tokens = np.array(list(output.num_scheduled_tokens.values()), np.int64)
        computed = np.array([r.num_computed_tokens for r in requests], np.int64)  # after this step
        known = np.array([r.num_tokens + r.num_output_placeholders for r in requests], np.int64)
        partial = np.array([r.is_prefill_chunk for r in requests], np.bool_)
        token_index = np.array([r.num_output_tokens + r.num_output_placeholders for r in requests], np.int64)
        if isinstance(scheduler, AsyncScheduler):  # it has counted this step's own token as known already
            token_index -= ~partial
            known -= ~partial
        pool = scheduler.kv_cache_manager.block_pool
        used = pool.num_gpu_blocks - 1 - pool.get_num_free_blocks()
        n = len(requests)
        if victims:
            self.spool.write("preemptions", {
                "step": [step] * len(victims), "request_id": [slots.number(r) for r in victims],
                "slot": [slots.slot(r) for r in victims],
                "computed_tokens": [self._computed_before[r.request_id] for r in victims],
            })  # fmt: skip
        return {
            "step": np.full(n, step), "slot": [slots.slot(r) for r in requests],
            "request_id": [slots.number(r) for r in requests], "start": computed - tokens, "num_tokens": tokens,
            "samples": ~partial, "token_index": token_index, "known_tokens": known,
            "num_blocks": [self._num_blocks(r) for r in requests], "blocks_used": np.full(n, used),
            "blocks_free": np.full(n, pool.get_num_free_blocks()), "num_waiting": np.full(n, len(scheduler.waiting)),
            "num_preempted": np.full(n, len(victims)),
        }  # fmt: skip

    def ran(self, rows: dict[str, Any], began_s: float, ended_s: float) -> None:
        n = len(rows["slot"])
        self.spool.write("batches", {
            **rows, "start_s": np.full(n, wall_s(began_s)), "end_s": np.full(n, wall_s(ended_s))
        })  # fmt: skip

    def _num_blocks(self, request: Request) -> int:
        return len(self.scheduler.kv_cache_manager.get_blocks(request.request_id).blocks[0])
