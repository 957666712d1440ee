"""The scheduler of the vLLM plug-in: our order over running and waiting requests, and so over preemption victims.

Before each of vLLM's own steps the controller ranks every ready request; `running` and `waiting` are sorted by it, and vLLM
does the rest: it serves running requests in that order, preempts from its end, and admits from the head of the waiting
ones. What vLLM's walk does not do: a running request is never paused for a waiting one, and no request is admitted in a
step that preempted. The preemption quantum (`engine.preemption_quantum_tokens`) keeps young admissions off the end.
"""

from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from workbench.live.engines.deployment import check_policy
from workbench.live.engines.vllm_order import VllmOrder
from workbench.live.engines.vllm_plugin import check_version


def entropy_scheduler(**options: Any) -> Scheduler:
    """What `--scheduler-cls` names: the scheduler for this configuration, asynchronous or not. Raises `InputError`."""
    check_version()
    config = options["vllm_config"].scheduler_config
    check_policy(config.policy)
    return (AsyncEntropyScheduler if config.async_scheduling else EntropyScheduler)(**options)


class _Steered:
    """Wraps the calls of a vLLM step; mixed into both of its schedulers."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.order = VllmOrder(self)

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
