"""An executor for two models in one batch: autoregressive rows go to `inner`, masked-diffusion rows to their predictors.

The live plant uses it: `inner` runs the decoder, `rows` the encoder, and a step takes what both took, measured. In the
simulator one executor costs both kinds (a pass is a prefill of every position), and this class is not needed.
Source: ours.
"""

import time
from dataclasses import fields, replace
from typing import Any

import numpy as np

from workbench.engine.executor import Batch, Executor, StepResult
from workbench.protocols import KeepAction, SamplingAction
from workbench.signals import FloatArray, IntArray
from workbench.unmasking.rows import MaskedRows

PER_ROW = (
    "slot", "request_id", "start", "num_tokens", "samples", "token_index", "prompt_tokens", "output_tokens", "kind",
    "num_blocks",
)  # fmt: skip


class MixedExecutor:
    """`Executor` of a `DiffusionEnginePlant`. A pass spread over several steps runs whole in the step that completes it."""

    def __init__(self, inner: Executor, rows: MaskedRows):
        self.inner, self.rows, self.vocab_size = inner, rows, inner.vocab_size
        self.diffusion_s = 0.0  # seconds spent in passes of masked-diffusion requests

    def admit(self, request_id: int, slot: int) -> None:
        if not self.rows.is_diffusion[request_id]:
            self.inner.admit(request_id, slot)

    def release(self, request_id: int, slot: int) -> None:
        if not self.rows.is_diffusion[request_id]:
            self.inner.release(request_id, slot)

    def lose_kv(self, slot: int) -> None:
        self.inner.lose_kv(slot)

    def marginal_step_s(self, start: IntArray, num_tokens: IntArray) -> FloatArray:
        return self.inner.marginal_step_s(start, num_tokens)

    def execute(self, batch: Batch, sampling: SamplingAction | None, keep: KeepAction | None) -> StepResult:
        diffuses = self.rows.is_diffusion[batch.request_id]
        completes = diffuses & (batch.start + batch.num_tokens == batch.prompt_tokens + batch.output_tokens)
        started_s = time.perf_counter()
        if completes.any():
            self.rows.forward(batch.slot[completes])
        passed_s = time.perf_counter() - started_s
        self.diffusion_s += passed_s
        rest = np.flatnonzero(~diffuses)
        if rest.size == 0:
            return _nothing_drawn(batch.slot.size, passed_s)
        part = replace(batch, **{name: getattr(batch, name)[rest] for name in PER_ROW})
        result = self.inner.execute(part, sampling, keep)
        return _spread(replace(result, elapsed_s=result.elapsed_s + passed_s), rest, batch.slot.size)


def _nothing_drawn(rows: int, elapsed_s: float) -> StepResult:
    nan = np.full(rows, np.nan)
    return StepResult(
        elapsed_s=elapsed_s, energy_j=float("nan"), flops=float("nan"), kv_bytes_read=0.0, kv_bytes_dense=0.0,
        token_id=np.full(rows, -1, dtype=np.int64), ended=np.zeros(rows, dtype=np.bool_), entropy_raw_nats=nan,
        varentropy_raw_nats2=nan, entropy_nats=nan, varentropy_nats2=nan, surprisal_nats=nan, surprisal_raw_nats=nan,
        temperature_applied=nan, block_mass=None, dropped_mass=np.zeros(rows),
    )  # fmt: skip


def _spread(result: StepResult, at: IntArray, rows: int) -> StepResult:
    """The result of the rows `at` as one of `rows` rows, blank elsewhere."""

    def wide(values: Any) -> Any:
        fill = np.nan if values.dtype.kind == "f" else (False if values.dtype.kind == "b" else -1)
        out = np.full((rows, *values.shape[1:]), fill, dtype=values.dtype)
        out[at] = values
        return out

    parts: dict[str, Any] = {}
    for field in fields(result):
        value = getattr(result, field.name)
        if isinstance(value, np.ndarray):
            parts[field.name] = wide(value)
    dropped = np.zeros(rows)
    dropped[at] = result.dropped_mass
    parts |= {"dropped_mass": dropped, "extra": {name: wide(values) for name, values in result.extra.items()}}
    return replace(result, **parts)
