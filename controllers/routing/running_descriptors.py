"""`Descriptors` updated token by token: what a serving engine keeps while a probe runs.

Per slot it holds the entropies so far with their running average ranks, and Welford's mean and sum of squares. A new value
shifts the ranks above it by 1 and those equal to it by 1/2, so a token costs O(N), not O(N log N), and the result is
that of `describe` on the whole trace (to rounding in avnr, exactly in rank).
Source: ours.
"""

from dataclasses import dataclass, replace

import numpy as np

from controllers.routing.descriptors import MIN_TREND_TOKENS, Descriptors
from workbench.signals import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, kw_only=True)
class RunningDescriptors:
    """State of `num_slots` probes of at most `length` tokens. Arrays have shape [num_slots] unless said otherwise."""

    entropy_nats: FloatArray  # [num_slots, length] measured entropies, packed; NaN beyond
    rank: FloatArray  # [num_slots, length] average rank of each among those so far
    num_measured: IntArray
    sum_nats: FloatArray
    mean_nats: FloatArray
    square_deviation_nats2: FloatArray  # sum of (H - mean)^2
    square_step_nats2: FloatArray  # sum of (H_{i+1} - H_i)^2 over measured neighbours
    num_steps: IntArray
    previous_nats: FloatArray  # the last token's entropy, NaN if it was not measured

    @classmethod
    def empty(cls, num_slots: int, length: int) -> "RunningDescriptors":
        zero, none = np.zeros(num_slots), np.zeros(num_slots, dtype=np.int64)
        return cls(
            entropy_nats=np.full((num_slots, length), np.nan),
            rank=np.full((num_slots, length), np.nan),
            num_measured=none,
            sum_nats=zero,
            mean_nats=zero,
            square_deviation_nats2=zero,
            square_step_nats2=zero,
            num_steps=none,
            previous_nats=np.full(num_slots, np.nan),
        )

    def restart(self, rows: BoolArray) -> "RunningDescriptors":
        """The same with the given slots empty again."""
        fresh = RunningDescriptors.empty(*self.entropy_nats.shape)
        pick = {
            name: np.where(rows[:, None] if getattr(self, name).ndim == 2 else rows, getattr(fresh, name), value)
            for name, value in vars(self).items()
        }
        return replace(self, **pick)

    def push(self, entropy_nats: FloatArray, active: BoolArray) -> "RunningDescriptors":
        """One token's entropy per active slot; a non-finite one is a token whose measurement is missing."""
        x = np.asarray(entropy_nats, dtype=np.float64)
        full = self.num_measured >= self.entropy_nats.shape[1]
        use = active & np.isfinite(x) & ~full
        v = np.where(use, x, 0.0)
        below = (self.entropy_nats < v[:, None]).sum(axis=1)
        equal_mask = self.entropy_nats == v[:, None]
        equal = equal_mask.sum(axis=1)
        shift = np.where(self.entropy_nats > v[:, None], 1.0, np.where(equal_mask, 0.5, 0.0))
        rank = self.rank + np.where(use[:, None], shift, 0.0)
        row, column = np.flatnonzero(use), self.num_measured[use]
        entropy = self.entropy_nats.copy()
        entropy[row, column] = v[row]
        rank[row, column] = below[row] + 0.5 * equal[row] + 1.0
        count = self.num_measured + use
        step = v - self.mean_nats
        mean = self.mean_nats + np.where(use, step / np.maximum(count, 1), 0.0)
        pair = use & np.isfinite(self.previous_nats)
        jump = np.where(pair, v - np.where(pair, self.previous_nats, 0.0), 0.0)
        return replace(
            self,
            entropy_nats=entropy,
            rank=rank,
            num_measured=count,
            sum_nats=self.sum_nats + v,
            mean_nats=mean,
            square_deviation_nats2=self.square_deviation_nats2 + np.where(use, step * (v - mean), 0.0),
            square_step_nats2=self.square_step_nats2 + jump**2,
            num_steps=self.num_steps + pair,
            previous_nats=np.where(active & ~full, np.where(use, x, np.nan), self.previous_nats),
        )

    def read(self) -> Descriptors:
        """The three numbers now, as `describe` defines them."""
        mask = np.isfinite(self.entropy_nats)
        n = np.maximum(self.num_measured, 1)
        centre = 0.5 * (n + 1)[:, None]
        rank_h = np.where(mask, self.rank - centre, 0.0)
        rank_i = np.where(mask, np.arange(1, self.entropy_nats.shape[1] + 1) - centre, 0.0)
        spread = np.sqrt((rank_h**2).sum(axis=1) * (rank_i**2).sum(axis=1))
        defined = (self.num_measured >= MIN_TREND_TOKENS) & (rank_h != 0.0).any(axis=1)
        trend = (rank_h * rank_i).sum(axis=1) / np.where(defined, spread, 1.0)
        rough = defined & (self.num_steps > 0) & (self.square_deviation_nats2 > 0.0)
        avnr = (self.square_step_nats2 / np.maximum(self.num_steps, 1)) / np.where(
            rough, self.square_deviation_nats2 / n, 1.0
        )
        avnr = np.where(rough, avnr, np.nan)
        return Descriptors(
            num_measured=self.num_measured,
            sum_nats=self.sum_nats,
            trend=np.where(defined, np.clip(trend, -1.0, 1.0), np.nan),
            avnr=avnr,
            avnr_sample=avnr * (n - 1) / n,
        )
