"""Draws a batch's tokens from its logits, with their statistics, through the one op that does both (`logit_stats`).

Draws are counter-based, keyed by (seed, request, token index): they do not depend on arm, slot, batch or order. A request
with a seed of its own, and tokens given beforehand (teacher forcing), are handled here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from kernels.laws import LogitStats
from workbench.engine.executor import Batch
from workbench.protocols import SamplingAction
from workbench.signals import FloatArray, IntArray

LAWS = ("target_entropy_nats", "min_p", "top_h", "mirostat_mu_nats")


class Sampler:
    """`temperature` holds where no controller acts; `forced`: output tokens by request, judged instead of drawn."""

    def __init__(
        self,
        ops: Any,
        seed: int,
        temperature: float,
        request_seeds: Mapping[int, int] | None = None,
        forced: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        self.ops, self.seed, self.temperature = ops, seed, temperature
        self.request_seeds, self.forced = dict(request_seeds or {}), forced
        self.seed_alone = False  # a request's own seed keys its draws, its number does not: asked again, it draws alike
        self.draw_as: IntArray | None = None  # [num_requests] whose draws each request gets: equal draws side by side

    def draw(self, batch: Batch, rows: IntArray, logits: torch.Tensor, action: SamplingAction | None) -> LogitStats:
        """logits: [rows, vocab] of the batch's rows `rows`; `action` is indexed by slot."""
        slot, request, index = batch.slot[rows], batch.request_id[rows], batch.token_index[rows]
        drawn_as = request if self.draw_as is None else self.draw_as[request]
        temperature = np.full(rows.size, self.temperature) if action is None else action.temperature[slot]
        laws = {}
        if action is not None:
            laws = {name: values[slot] for name in LAWS if (values := getattr(action, name)) is not None}
        limits = (0.0, np.inf) if action is None else (action.temperature_min, action.temperature_max)
        if not self.request_seeds:
            drawn = self._call(logits, temperature, drawn_as, index, laws, limits, self.seed)
        else:
            seeds = np.array([self.request_seeds.get(int(r), self.seed) for r in request])
            if self.seed_alone:
                drawn_as = np.where([int(r) in self.request_seeds for r in request], 0, drawn_as)
            groups = [np.flatnonzero(seeds == seed) for seed in np.unique(seeds)]
            parts = [
                self._call(
                    logits[torch.from_numpy(some).to(logits.device)], temperature[some], drawn_as[some], index[some],
                    {name: values[some] for name, values in laws.items()}, limits, int(seeds[some[0]]),
                )
                for some in groups
            ]  # fmt: skip
            back = torch.from_numpy(np.argsort(np.concatenate(groups))).to(logits.device)
            drawn = LogitStats(*(torch.cat(column)[back] for column in zip(*parts, strict=True)))
        return drawn if self.forced is None else self._force(request, index, logits, drawn)

    def at_temperature(self, logits: torch.Tensor, temperature: float) -> LogitStats:
        """Statistics of the same logits at another temperature; what it samples means nothing."""
        zero = torch.zeros(logits.shape[0], dtype=torch.int64, device=logits.device)
        hot = torch.full((logits.shape[0],), temperature, device=logits.device)
        return self.ops.logit_stats(logits, hot, seed=0, request_id=zero, token_index=zero)

    def _call(
        self, logits: torch.Tensor, temperature: FloatArray, request: IntArray, index: IntArray,
        laws: Mapping[str, FloatArray], limits: tuple[float, float], seed: int,
    ) -> LogitStats:  # fmt: skip
        def tensor(values: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(values).to(logits.device)

        return self.ops.logit_stats(
            logits,
            tensor(temperature),
            seed=seed,
            request_id=tensor(request),
            token_index=tensor(index),
            temperature_min=limits[0],
            temperature_max=limits[1],
            **{name: tensor(values) for name, values in laws.items()},
        )

    def _force(self, request: IntArray, index: IntArray, logits: torch.Tensor, drawn: LogitStats) -> LogitStats:
        assert self.forced is not None
        given = [self.forced[int(r)][int(i)] for r, i in zip(request, index, strict=True)]
        token = torch.tensor(given, device=logits.device)
        chosen = logits.gather(1, token[:, None])[:, 0]
        t = drawn.temperature_applied
        hot = torch.where(t > 0.0, t, 1.0)
        tempered = (logits / hot[:, None]).logsumexp(dim=1) - chosen / hot
        return drawn._replace(
            token_id=torch.where(drawn.token_id < 0, -1, token),
            surprisal_raw_nats=drawn.log_sum_exp - chosen,
            surprisal_nats=torch.where(t > 0.0, tempered, 0.0),
        )
