"""`generate` under a scenario: temperature law and keep rule together, recorded like any other run.

    with steered(model, "scenario.toml", attention_mask=inputs["attention_mask"]) as run:
        output = model.generate(**inputs, **run.options, max_new_tokens=64)
    run.record("runs/transformers/seed0")          # replay, report and validate read it

Any causal model of transformers; prompts padded on the left. The scenario's controllers are those of every other engine;
without a temperature law tokens are drawn at `engine.temperature` by the same op.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kernels.dispatch import backend as choose_backend
from workbench.engine.config import EngineConfig
from workbench.engine.executor import Batch, StepResult
from workbench.engine.requests import RequestLedger, RequestSpec, RequestStatus
from workbench.engine.telemetry import TOKEN_COLUMNS, Telemetry
from workbench.factorial import switches_of
from workbench.live.engines.collect import shape_of
from workbench.live.engines.steering import Measured
from workbench.live.engines.transformers_processor import LogitsSteering
from workbench.live.engines.transformers_pruning import Pruner, pruning
from workbench.protocols import DecisionPoint
from workbench.record import ArmRecorder
from workbench.scenario import Scenario


class SteeredRun:
    """What a `with steered(...)` block gives: options for `generate`, and the record afterwards."""

    def __init__(self, model: Any, scenario: Any, attention_mask: torch.Tensor, seed: int | None, backend: str) -> None:
        self.model = model
        self.recorder = ArmRecorder("full", 0)
        self.processor = LogitsSteering.for_model(
            model, scenario, seed=seed, backend=backend, on_decision=self.recorder.decision, on_measured=self._step
        )
        self.deployment = self.processor.deployment
        config = self.deployment.scenario.engine_config(1)
        self.prompt_tokens = attention_mask.sum(dim=1).cpu().numpy().astype(np.int64)
        rows = self.num_slots = self.prompt_tokens.size
        self.requests = RequestSpec(
            arrival_s=np.zeros(rows), prompt_tokens=self.prompt_tokens, output_tokens=np.zeros(rows, np.int64),
            kind=np.zeros(rows, np.int64), priority=np.zeros(rows, np.int64), length_known=False,
        )  # fmt: skip
        self.ledger = RequestLedger(rows)
        self.telemetry = Telemetry(rows, None, config.entropy_target_nats)
        self.block_size = config.block_size
        rule = self.deployment.controllers.get(DecisionPoint.KEEP)
        self.pruner = None
        if rule is not None:
            self.pruner = Pruner(
                model, rule, attention_mask, choose_backend(backend), block_size=config.block_size,
                steering=lambda: self.processor.steering, alive=lambda: self.processor.alive,
                delay_steps=self.deployment.delay_steps, on_decision=self.recorder.decision,
            )  # fmt: skip
        self._began_s = self._before_s = time.perf_counter()
        self._shape = shape_of({
            "model": str(getattr(model.config, "_name_or_path", "") or type(model).__name__),
            "model_config": model.config.to_dict(), "dtype": str(model.dtype),
            "max_context_tokens": getattr(model.config, "max_position_embeddings", 1 << 20),
        })  # fmt: skip

    @property
    def options(self) -> dict[str, Any]:
        """For `generate`."""
        options: dict[str, Any] = {"logits_processor": [self.processor], "do_sample": False}
        return options if self.pruner is None else options | {"cache": self.pruner.cache}

    @property
    def bytes_frac(self) -> float:
        """KV tokens read over those of dense attention, all decoding steps together."""
        pruner = self.pruner
        return 1.0 if pruner is None else sum(pruner.read_tokens) / max(sum(pruner.dense_tokens), 1)

    def _step(self, measured: Measured) -> None:
        """One step of `generate` has drawn its tokens."""
        now_s = time.perf_counter()
        rows = measured.rows
        n, first = rows.slot.size, rows.token_index == 0
        start = np.where(first, 0, self.prompt_tokens[rows.slot] + rows.token_index - 1)
        tokens = np.where(first, self.prompt_tokens[rows.slot], 1)
        context = start + tokens
        batch = Batch(
            step=measured.step, slot=rows.slot, request_id=rows.request_id, start=start, num_tokens=tokens,
            samples=np.ones(n, np.bool_), token_index=rows.token_index, prompt_tokens=self.prompt_tokens[rows.slot],
            output_tokens=np.zeros(n, np.int64), kind=np.zeros(n, np.int64), num_blocks=-(-context // self.block_size),
            slot_block_table=np.zeros((0, 0), np.int32), block_size=self.block_size,
        )  # fmt: skip
        columns = {name: measured.values.get(name, np.full(n, np.nan)) for name in TOKEN_COLUMNS}
        dense = float(context.sum())
        read = dense
        if self.pruner is None or not self.pruner.read_tokens:
            columns["dropped_mass"] = np.zeros(n)
        else:
            read = dense * self.pruner.read_tokens[-1] / self.pruner.dense_tokens[-1]
        shape = self._shape
        pairs = float((tokens * (start + 0.5 * (tokens + 1))).sum())
        result = StepResult(
            elapsed_s=now_s - self._before_s, energy_j=float("nan"),
            flops=2.0 * shape.num_layers * shape.layer_weights * float(tokens.sum()) + shape.output_flop_per_sample * n
            + shape.attention_flop_per_pair * pairs,
            kv_bytes_read=read * shape.kv_bytes_per_token, kv_bytes_dense=dense * shape.kv_bytes_per_token,
            token_id=measured.token_id, ended=np.zeros(n, np.bool_), block_mass=None, **columns,
        )  # fmt: skip
        used = int(batch.num_blocks.sum())
        self.telemetry.step(
            batch, result, start_s=self._before_s - self._began_s, elapsed_s=now_s - self._before_s, num_waiting=0, num_backlog=0, num_preempted=0, blocks_used=used, blocks_free=0,
        )  # fmt: skip
        ledger, request, ends_s = self.ledger, rows.request_id, now_s - self._began_s
        ledger.first_scheduled_s[request] = np.where(
            first, self._before_s - self._began_s, ledger.first_scheduled_s[request]
        )
        ledger.first_token_s[request] = np.where(first, ends_s, ledger.first_token_s[request])
        ledger.generated_tokens[request] = rows.token_index + 1
        ledger.finished_s[request] = ends_s
        ledger.status[request] = RequestStatus.COMPLETED
        self._before_s = now_s

    def record(
        self, directory: Path | str, *, arm: Mapping[str, Any] | None = None, extra: Mapping[str, Any] | None = None
    ) -> Path:
        """Write the arm; returns its folder."""
        self.requests.output_tokens[:] = self.ledger.generated_tokens
        self.config = EngineConfig(
            num_blocks=max(1, int(self.telemetry.step_table()["kv_blocks_used"].max(initial=1))),
            block_size=self.block_size, max_running=self.num_slots, delay_steps=self.deployment.delay_steps,
            max_context_tokens=max(2, int((self.prompt_tokens + self.ledger.generated_tokens).max())),
        )  # fmt: skip
        import transformers

        notes = {
            "engine": "transformers", "engine_version": transformers.__version__, "hardware": "this machine",
            "model": self._shape.name, "backend": self.processor.ops.implementation,
            "sampler": self.processor.ops.sampler, "model_shape": self._shape.__dict__,
            "workload": f"{self.num_slots} prompts in one call of generate", "bytes_frac": self.bytes_frac,
        }  # fmt: skip
        return self.recorder.finish(
            Path(directory), self, self.deployment.scenario.with_changes(plant="live"), self.processor.seed,
            arm=switches_of(self.deployment.scenario) if arm is None else arm,
            extra={
                "controller_context": dict(self.deployment.context), "controller_flags": list(self.deployment.flags),
                "notes": notes, **(extra or {}),
            },
        )  # fmt: skip


@contextmanager
def steered(
    model: Any,
    scenario: Scenario | Path | str | Mapping[str, Any],
    attention_mask: torch.Tensor,
    *,
    seed: int | None = None,
    backend: str = "torch",
) -> Iterator[SteeredRun]:
    """Raises `InputError` where the scenario cannot run here."""
    run = SteeredRun(model, scenario, attention_mask, seed, backend)
    with ExitStack() as stack:
        stack.callback(run.processor.close)
        if run.pruner is not None:
            stack.enter_context(pruning(model, run.pruner))
        yield run
