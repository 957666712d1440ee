"""The logits processor vLLM loads, for both of its model runners; the work is in `vllm_sampling.py`.

The first runner builds it as `(vllm_config, device, is_pin_memory)` and calls `update_state` and `apply(logits)`; the second
as `(vllm_config, request_states)`, and calls `add_request` and `apply(logits, context)`. This module loads nothing heavy:
vLLM imports it in its front end too, and its CPU worker does not start in a process that has loaded Numba.
"""

import weakref
from typing import Any

import torch
from vllm.v1.sample.logits_processor import BatchUpdate
from vllm.v1.sample.logits_processor import LogitsProcessor as FirstProcessor
from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as SecondProcessor

from workbench.live.engines.deployment import scenario_from_environment, scenario_of_request
from workbench.live.engines.vllm_params import check_steerable, truncates, wishes_of
from workbench.live.engines.vllm_plugin import active, check_version
from workbench.protocols import DecisionPoint
from workbench.scenario import load_scenario


class EntropyProcessor(FirstProcessor, SecondProcessor):
    """Does nothing without a scenario in the environment. Raises `InputError` for one that does not fit the model."""

    _serving: "weakref.ref[Any] | None" = None  # the configuration that has its processor in this process

    def __init__(self, vllm_config: Any, second: Any, is_pin_memory: bool | None = None) -> None:
        # Named by an entry point and on the command line as well: once is enough.
        twice = EntropyProcessor._serving is not None and EntropyProcessor._serving() is vllm_config
        self.side: Any = None
        if not active() or twice:
            return
        check_version()
        EntropyProcessor._serving = weakref.ref(vllm_config)
        from workbench.live.engines.vllm_sampling import SamplingSide

        first_runner = isinstance(second, torch.device)
        self.side = SamplingSide(
            vllm_config, second if first_runner else second.device, None if first_runner else second
        )

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """At admission: a request that cannot be honoured is refused with one line."""
        if not active():
            return
        wishes = wishes_of(sampling_params)
        path = scenario_of_request(wishes.scenario) if wishes.scenario is not None else scenario_from_environment()
        tables = {} if path is None else load_scenario(path).controllers
        law = tables.get(DecisionPoint.TEMPERATURE)
        if law is not None:
            check_steerable(wishes, truncates(law))

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if self.side is not None and batch_update is not None:
            self.side.update_state(batch_update)

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        return self.side is not None and self.side.add_request(req_idx, sampling_params)

    def apply_staged_writes(self) -> None:
        pass

    def apply(self, logits: torch.Tensor, ctx: Any = None) -> torch.Tensor:
        return logits if self.side is None else self.side.apply(logits, ctx)
