"""What a run leaves behind: a row per engine step, sums per request, and a row per sampled token while the window lasts.

Columns are plain arrays that grow by doubling. Sums per request are kept for all tokens, so that metrics never depend on
the record level.
"""

from dataclasses import dataclass, field

import numpy as np
from numba import njit

from workbench.engine.executor import Batch, StepResult
from workbench.signals import BoolArray, FloatArray, IntArray

STEP_COLUMNS = (
    "step", "start_s", "elapsed_s", "energy_j", "flops", "kv_bytes_read", "kv_bytes_dense", "num_running", "num_waiting",
    "num_backlog", "num_tokens", "num_decode", "num_sampled", "num_preempted", "kv_blocks_used", "kv_blocks_free",
    "entropy_raw_mean_nats", "entropy_mean_nats", "temperature_mean",
)  # fmt: skip
INTEGER_STEP_COLUMNS = frozenset(name for name in STEP_COLUMNS if name.startswith(("num_", "kv_blocks"))) | {"step"}

TOKEN_COLUMNS = (
    "entropy_raw_nats", "varentropy_raw_nats2", "entropy_nats", "varentropy_nats2", "surprisal_nats",
    "surprisal_raw_nats", "temperature_applied", "dropped_mass",
)  # fmt: skip


# Sums per request [num_requests, SUMS] and counts of what went into them [num_requests, COUNTS]
LAST, FIRST, TAU, VARIATION, NLL_SUM, H_SUM, H_ERROR, DROP_SUM = range(8)
NLL_COUNT, H_COUNT, DROP_COUNT = range(3)


@njit(cache=True)
def record_step(
    row: FloatArray, step: int, start_s: float, elapsed_s: float, energy_j: float, flops: float, kv_bytes_read: float,
    kv_bytes_dense: float, num_waiting: int, num_backlog: int, num_preempted: int, blocks_used: int, blocks_free: int,
    request_id: IntArray, num_tokens: IntArray, samples: BoolArray, h_raw: FloatArray, h: FloatArray, nll: FloatArray,
    dropped: FloatArray, temperature: FloatArray, target: float, sums: FloatArray, counts: IntArray,
) -> None:  # fmt: skip
    """One executed batch: its row of `STEP_COLUMNS`, and what its tokens add to the sums of their requests."""
    tokens, decodes, sampled, heat = 0, 0, 0, 0.0
    raw_sum, tempered_sum, measured = 0.0, 0.0, 0
    for i in range(request_id.shape[0]):
        tokens += num_tokens[i]
        if not samples[i]:
            continue
        sampled += 1
        decodes += num_tokens[i] == 1
        heat += temperature[i]
        r = request_id[i]
        if not np.isnan(h_raw[i]):
            if np.isnan(sums[r, LAST]):
                sums[r, FIRST] = h_raw[i]
            else:
                change = h_raw[i] - sums[r, LAST]
                sums[r, VARIATION] += abs(change)
                sums[r, TAU] += max(0.0, -change)
            sums[r, LAST] = h_raw[i]
            raw_sum += h_raw[i]
            measured += 1
        if not np.isnan(h[i]):
            sums[r, H_SUM] += h[i]
            sums[r, H_ERROR] += abs(h[i] - target)
            counts[r, H_COUNT] += 1
            tempered_sum += h[i]
        if not np.isnan(nll[i]):
            sums[r, NLL_SUM] += nll[i]
            counts[r, NLL_COUNT] += 1
        if not np.isnan(dropped[i]):
            sums[r, DROP_SUM] += dropped[i]
            counts[r, DROP_COUNT] += 1
    row[0], row[1], row[2], row[3], row[4] = step, start_s, elapsed_s, energy_j, flops
    row[5], row[6], row[7], row[8], row[9] = (
        kv_bytes_read,
        kv_bytes_dense,
        request_id.shape[0],
        num_waiting,
        num_backlog,
    )
    row[10], row[11], row[12], row[13] = tokens, decodes, sampled, num_preempted
    row[14], row[15] = blocks_used, blocks_free
    row[16] = raw_sum / measured if measured else np.nan
    row[17] = tempered_sum / measured if measured else np.nan
    row[18] = heat / sampled if sampled else np.nan


@dataclass
class Telemetry:
    """`window_steps` engine steps get a row per sampled token; `None` means every step."""

    num_requests: int
    window_steps: int | None
    entropy_target_nats: float | None = None
    keeps_steps: bool = True  # False where compiled code takes the steps: sums per request only
    num_steps: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        n = self.num_requests
        self._rows = np.zeros((1024, len(STEP_COLUMNS)))  # whole numbers below 2^53 are exact in float64
        self.sums, self.counts = np.zeros((n, 8)), np.zeros((n, 3), np.int64)
        self.sums[:, LAST] = self.sums[:, FIRST] = np.nan
        self.target_nats = np.nan if self.entropy_target_nats is None else self.entropy_target_nats
        self.tokens: list[dict[str, np.ndarray]] = []

    def step(
        self, batch: Batch, result: StepResult, *, start_s: float, elapsed_s: float, num_waiting: int,
        num_backlog: int, num_preempted: int, blocks_used: int, blocks_free: int,
    ) -> None:  # fmt: skip
        """Record one executed batch."""
        row = self.num_steps
        self._make_room(1)
        record_step(
            self._rows[row], batch.step, start_s, elapsed_s, result.energy_j, result.flops, result.kv_bytes_read,
            result.kv_bytes_dense, num_waiting, num_backlog, num_preempted, blocks_used, blocks_free, batch.request_id,
            batch.num_tokens, batch.samples, result.entropy_raw_nats, result.entropy_nats, result.surprisal_raw_nats,
            result.dropped_mass, result.temperature_applied, self.target_nats, self.sums, self.counts,
        )  # fmt: skip
        self.num_steps = row + 1
        if (self.window_steps is None or row < self.window_steps) and batch.samples.any():
            rows = np.flatnonzero(batch.samples)
            token = {name: getattr(result, name)[rows] for name in TOKEN_COLUMNS}
            self.tokens.append(
                {
                    "step": np.full(rows.size, batch.step),
                    "slot": batch.slot[rows],
                    "request_id": batch.request_id[rows],
                    "token_index": batch.token_index[rows],
                    "token_id": result.token_id[rows],
                    "context_tokens": (batch.start + batch.num_tokens)[rows],
                    **token,
                    **result.extra_rows(rows),
                }
            )

    def append_steps(self, rows: FloatArray) -> None:
        """[steps, columns] of `STEP_COLUMNS`: steps that compiled code has taken."""
        if not self.keeps_steps:
            return
        self._make_room(rows.shape[0])
        self._rows[self.num_steps : self.num_steps + rows.shape[0]] = rows
        self.num_steps += rows.shape[0]

    def _make_room(self, more: int) -> None:
        capacity = self._rows.shape[0]
        if self.num_steps + more > capacity:
            larger = np.zeros((max(2 * capacity, self.num_steps + more), self._rows.shape[1]))
            larger[: self.num_steps] = self._rows[: self.num_steps]
            self._rows = larger

    def step_table(self) -> dict[str, np.ndarray]:
        rows = self._rows[: self.num_steps]
        return {
            name: rows[:, i].astype(np.int64) if name in INTEGER_STEP_COLUMNS else rows[:, i].copy()
            for i, name in enumerate(STEP_COLUMNS)
        }

    def request_columns(self) -> dict[str, np.ndarray]:
        """Per request [num_requests]: entropic time and quality. NaN where nothing was measured."""
        sums, counts = self.sums.T, self.counts.T
        seen = ~np.isnan(sums[FIRST])
        with np.errstate(invalid="ignore", divide="ignore"):
            columns = {
                "nll_raw_nats": np.where(counts[NLL_COUNT] > 0, sums[NLL_SUM], np.nan),
                "tau_nats": np.where(seen, sums[TAU], np.nan),
                "net_drop_nats": sums[FIRST] - sums[LAST],
                "total_variation_nats": np.where(seen, sums[VARIATION], np.nan),
                "entropy_mean_nats": sums[H_SUM] / counts[H_COUNT],
                "entropy_error_nats": sums[H_ERROR] / counts[H_COUNT],
                "dropped_mass_mean": sums[DROP_SUM] / counts[DROP_COUNT],
            }
        return columns
