"""A scripted executor: fixed times, entropies from a formula. For tests of the engine and the controllers."""

import numpy as np

from workbench.engine.executor import Batch, StepResult
from workbench.protocols import KeepAction, SamplingAction


class FormulaExecutor:
    """Step time = base_s + per_token_s * tokens. H_raw of token k of request r = 2 + sin(k + r); V = 1; mass uniform."""

    vocab_size = 1000

    def __init__(self, base_s: float = 1.0, per_token_s: float = 0.0, mass: bool = True) -> None:
        self.base_s, self.per_token_s, self.mass = base_s, per_token_s, mass
        self.admitted: list[tuple[int, int]] = []
        self.released: list[tuple[int, int]] = []
        self.batches: list[Batch] = []

    def admit(self, request_id: int, slot: int) -> None:
        self.admitted.append((request_id, slot))

    def release(self, request_id: int, slot: int) -> None:
        self.released.append((request_id, slot))

    def lose_kv(self, slot: int) -> None:
        pass

    def execute(self, batch: Batch, sampling: SamplingAction | None, keep: KeepAction | None) -> StepResult:
        self.batches.append(batch)
        n = batch.slot.size
        nothing = np.full(n, np.nan)
        temperature = np.ones(n) if sampling is None else sampling.temperature[batch.slot]
        h_raw = np.where(batch.samples, 2.0 + np.sin(batch.token_index + batch.request_id), np.nan)
        h = h_raw * np.minimum(temperature, 2.0)
        mass = None
        if self.mass:
            blocks = np.arange(batch.block_table.shape[1])
            uniform = (blocks < batch.num_blocks[:, None]) / np.maximum(batch.num_blocks[:, None], 1)
            mass = np.where(blocks < batch.num_blocks[:, None], uniform, np.nan)
            mass[~(batch.samples & (batch.num_tokens == 1))] = np.nan
        return StepResult(
            elapsed_s=batch.copy_s + self.base_s + self.per_token_s * float(batch.num_tokens.sum()),
            energy_j=float("nan"),
            flops=0.0,
            kv_bytes_read=0.0,
            kv_bytes_dense=0.0,
            token_id=np.where(batch.samples, 1, -1),
            ended=np.zeros(n, bool),
            entropy_raw_nats=h_raw,
            varentropy_raw_nats2=np.where(batch.samples, 1.0, np.nan),
            entropy_nats=h,
            varentropy_nats2=np.where(batch.samples, 1.0, np.nan),
            surprisal_nats=h,
            surprisal_raw_nats=h_raw,
            temperature_applied=np.where(batch.samples, temperature, np.nan),
            block_mass=mass,
            dropped_mass=np.where(batch.samples, 0.0, nothing),
        )

    def marginal_step_s(self, start: np.ndarray, num_tokens: np.ndarray) -> np.ndarray:
        return 1e-3 + self.per_token_s * num_tokens
