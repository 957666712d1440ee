"""What a run leaves behind: a row per engine step, sums per request, and a row per sampled token while the window lasts.

Columns are plain arrays that grow by doubling. Sums per request are kept for all tokens, so that metrics never depend on
the record level.
"""

from dataclasses import dataclass, field

import numpy as np
from numba import njit

from workbench.engine.executor import Batch, StepResult
from workbench.signals import FloatArray, IntArray

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


@njit(cache=True)
def accumulate(
    request_id: IntArray, samples: np.ndarray, h_raw: FloatArray, h: FloatArray, nll: FloatArray, dropped: FloatArray,
    target: float, last: FloatArray, first: FloatArray, tau: FloatArray, variation: FloatArray, nll_sum: FloatArray,
    nll_count: IntArray, h_sum: FloatArray, h_error: FloatArray, h_count: IntArray, drop_sum: FloatArray,
    drop_count: IntArray,
) -> tuple[float, float, int]:  # fmt: skip
    raw_sum, tempered_sum, count = 0.0, 0.0, 0
    for row in range(request_id.shape[0]):
        if not samples[row]:
            continue
        r = request_id[row]
        if not np.isnan(h_raw[row]):
            if np.isnan(last[r]):
                first[r] = h_raw[row]
            else:
                change = h_raw[row] - last[r]
                variation[r] += abs(change)
                tau[r] += max(0.0, -change)
            last[r] = h_raw[row]
            raw_sum += h_raw[row]
            count += 1
        if not np.isnan(h[row]):
            h_sum[r] += h[row]
            h_error[r] += abs(h[row] - target)
            h_count[r] += 1
            tempered_sum += h[row]
        if not np.isnan(nll[row]):
            nll_sum[r] += nll[row]
            nll_count[r] += 1
        if not np.isnan(dropped[row]):
            drop_sum[r] += dropped[row]
            drop_count[r] += 1
    return raw_sum, tempered_sum, count


@dataclass
class Telemetry:
    """`window_steps` engine steps get a row per sampled token; `None` means every step."""

    num_requests: int
    window_steps: int | None
    entropy_target_nats: float | None = None
    num_steps: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        n = self.num_requests
        self._rows = np.zeros((1024, len(STEP_COLUMNS)))  # whole numbers below 2^53 are exact in float64
        floats = ("last", "first", "tau", "variation", "nll_sum", "h_sum", "h_error", "drop_sum")
        self._sums: dict[str, np.ndarray] = {
            name: np.full(n, np.nan) if name in ("last", "first") else np.zeros(n) for name in floats
        }
        self._counts = {name: np.zeros(n, np.int64) for name in ("nll_count", "h_count", "drop_count")}
        self.tokens: list[dict[str, np.ndarray]] = []

    def step(
        self, batch: Batch, result: StepResult, *, start_s: float, elapsed_s: float, num_running: int, num_waiting: int,
        num_backlog: int, num_preempted: int, blocks_used: int, blocks_free: int,
    ) -> None:  # fmt: skip
        """Record one executed batch."""
        target = np.nan if self.entropy_target_nats is None else self.entropy_target_nats
        raw_sum, tempered_sum, measured = accumulate(
            batch.request_id, batch.samples, result.entropy_raw_nats, result.entropy_nats, result.surprisal_raw_nats,
            result.dropped_mass, target, *self.request_sums(),
        )  # fmt: skip
        sampled = int(np.count_nonzero(batch.samples))
        applied = result.temperature_applied[batch.samples]
        row = self.num_steps
        self._make_room(1)
        self._rows[row] = (
            batch.step, start_s, elapsed_s, result.energy_j, result.flops, result.kv_bytes_read, result.kv_bytes_dense,
            num_running, num_waiting, num_backlog, int(batch.num_tokens.sum()), int(np.count_nonzero(batch.samples & (batch.num_tokens == 1))),
            sampled, num_preempted, blocks_used, blocks_free, raw_sum / measured if measured else np.nan,
            tempered_sum / measured if measured else np.nan, applied.sum() / sampled if sampled else np.nan,
        )  # fmt: skip
        self.num_steps = row + 1
        if sampled and (self.window_steps is None or row < self.window_steps):
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
        self._make_room(rows.shape[0])
        self._rows[self.num_steps : self.num_steps + rows.shape[0]] = rows
        self.num_steps += rows.shape[0]

    def _make_room(self, more: int) -> None:
        capacity = self._rows.shape[0]
        if self.num_steps + more > capacity:
            larger = np.zeros((max(2 * capacity, self.num_steps + more), self._rows.shape[1]))
            larger[: self.num_steps] = self._rows[: self.num_steps]
            self._rows = larger

    def request_sums(self) -> tuple[np.ndarray, ...]:
        """The per-request sums, in the order `accumulate` takes them."""
        s, c = self._sums, self._counts
        return (
            s["last"], s["first"], s["tau"], s["variation"], s["nll_sum"], c["nll_count"], s["h_sum"], s["h_error"],
            c["h_count"], s["drop_sum"], c["drop_count"],
        )  # fmt: skip

    def step_table(self) -> dict[str, np.ndarray]:
        rows = self._rows[: self.num_steps]
        return {
            name: rows[:, i].astype(np.int64) if name in INTEGER_STEP_COLUMNS else rows[:, i].copy()
            for i, name in enumerate(STEP_COLUMNS)
        }

    def request_columns(self) -> dict[str, np.ndarray]:
        """Per request [num_requests]: entropic time and quality. NaN where nothing was measured."""
        sums, counts = self._sums, self._counts
        seen = ~np.isnan(sums["first"])
        with np.errstate(invalid="ignore", divide="ignore"):
            columns = {
                "nll_raw_nats": np.where(counts["nll_count"] > 0, sums["nll_sum"], np.nan),
                "tau_nats": np.where(seen, sums["tau"], np.nan),
                "net_drop_nats": sums["first"] - sums["last"],
                "total_variation_nats": np.where(seen, sums["variation"], np.nan),
                "entropy_mean_nats": sums["h_sum"] / counts["h_count"],
                "entropy_error_nats": sums["h_error"] / counts["h_count"],
                "dropped_mass_mean": sums["drop_sum"] / counts["drop_count"],
            }
        return columns
