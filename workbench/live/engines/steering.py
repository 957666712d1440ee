"""A temperature law over the rows of another engine: decide, draw with the op in `kernels`, remember for the next token.

    rows of logits (slot, request, token index)  ->  observation -> law -> SamplingAction -> logit_stats -> token, H, V

What an `EnginePlant` does for its own batches, for a batch that somebody else formed. A row may be drawn more than once
for one token (an engine computes logits at the end of a partial prefill chunk and throws the draw away): a measurement
belongs to a token index, a later draw of the same token replaces it, and the law sees it once.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from kernels.laws import LogitStats
from workbench.engine.sight import MEASUREMENTS, read_only
from workbench.live.sampler import Sampler
from workbench.protocols import Controller, Observation, SamplingAction, TemperatureObservation
from workbench.signals import FloatArray, IntArray

STATISTICS = (*MEASUREMENTS[:-1], "surprisal_raw_nats", "temperature_applied")
OnDecision = Callable[[Observation, SamplingAction, SamplingAction], None]


@dataclass(frozen=True)
class Rows:
    """Rows about to draw a token; arrays [n]. `token_index` is 0 for a request's first token."""

    slot: IntArray
    request_id: IntArray
    token_index: IntArray

    def where(self, some: IntArray) -> "Rows":
        return Rows(self.slot[some], self.request_id[some], self.token_index[some])


@dataclass(frozen=True)
class Measured:
    """Statistics of one step as NumPy arrays [n], when they have reached the host."""

    step: int
    rows: Rows
    values: dict[str, FloatArray]
    token_id: IntArray


class Steering:
    """`law` None: measured at `temperature`, nothing decided. Slots are the caller's; a new request resets its own.

    On a GPU the statistics are copied to the host beside the next steps' work; with a delay nothing waits for them.
    """

    def __init__(
        self,
        law: Controller[TemperatureObservation, Any, SamplingAction] | None,
        num_slots: int,
        delay_steps: int,
        ops: Any,
        *,
        seed: int = 0,
        temperature: float = 1.0,
        sampler: str | None = None,
        on_decision: OnDecision | None = None,
        on_measured: Callable[[Measured], None] | None = None,
    ) -> None:
        self.law, self.num_slots, self.delay_steps = law, num_slots, delay_steps
        self.sampler = Sampler(_with_sampler(ops, sampler), seed, temperature)
        self.on_decision, self.on_measured = on_decision, on_measured
        self.state = None if law is None else law.init(num_slots)
        self.step_index = 0
        depth = delay_steps + 2
        self._ring = {name: np.full((depth, num_slots), np.nan) for name in MEASUREMENTS}
        self._ring_token = np.full((depth, num_slots), -1, np.int64)
        self._ring_step = np.zeros((depth, num_slots), np.int64)
        self._owner = np.full(num_slots, -1, np.int64)
        self._seen_token = np.full(num_slots, -1, np.int64)  # the last measurement the law was shown
        self._every = np.arange(num_slots)
        self._under_way: deque[tuple[int, Rows, torch.Tensor, torch.Tensor, Any]] = deque()

    def step(self, logits: torch.Tensor, rows: Rows, own_temperature: FloatArray | None = None) -> LogitStats:
        """Decide and draw for one step. logits: [n, vocab], raw. Returns tensors [n] on the device of the logits.

        own_temperature: [n], the requests' own, where there is no law.
        """
        joined = self._take_in(rows)
        self._settle(self.delay_steps)
        action = self._own(rows, own_temperature) if self.law is None else self._decide(rows, joined)
        batch = SimpleNamespace(slot=rows.slot, request_id=rows.request_id, token_index=rows.token_index)
        drawn = self.sampler.draw(batch, np.arange(rows.slot.size), logits, action)  # type: ignore[arg-type]
        self._remember(rows, drawn)
        self.step_index += 1
        return drawn

    def settle(self) -> None:
        """Wait for every measurement under way."""
        self._settle(0)

    def forget(self, slot: int) -> None:
        """The request in the slot has ended."""
        self._owner[slot] = -1

    def measured(self, name: str, token_index: IntArray) -> tuple[FloatArray, IntArray, np.ndarray]:
        """(value, step, known) by slot of the measurement of that token."""
        place = token_index % self._ring_token.shape[0]
        known = (token_index >= 0) & (self._ring_token[place, self._every] == token_index)
        return self._ring[name][place, self._every], self._ring_step[place, self._every], known

    # One step

    def _take_in(self, rows: Rows) -> np.ndarray:
        joined = np.zeros(self.num_slots, np.bool_)
        new = self._owner[rows.slot] != rows.request_id
        fresh = rows.slot[new]
        joined[fresh] = True
        self._owner[fresh] = rows.request_id[new]
        self._seen_token[fresh] = -1
        self._ring_token[:, fresh] = -1
        return joined

    def _own(self, rows: Rows, own_temperature: FloatArray | None) -> SamplingAction | None:
        if own_temperature is None:
            return None
        temperature = np.full(self.num_slots, np.nan)
        temperature[rows.slot] = own_temperature
        return SamplingAction(temperature=temperature)

    def _decide(self, rows: Rows, joined: np.ndarray) -> SamplingAction:
        assert self.law is not None
        active = np.zeros(self.num_slots, np.bool_)
        active[rows.slot] = True
        token_index = np.zeros(self.num_slots, np.int64)
        token_index[rows.slot] = rows.token_index
        wanted = token_index - 1 - self.delay_steps
        place = wanted % self._ring_token.shape[0]
        known = active & (wanted >= 0) & (self._ring_token[place, self._every] == wanted)
        measured = known & (wanted > self._seen_token)
        self._seen_token[measured] = wanted[measured]
        observation = TemperatureObservation(
            step=self.step_index,
            active=active,
            joined=joined,
            request_id=np.where(active, self._owner, -1),
            measured=measured,
            measured_step=np.where(measured, self._ring_step[place, self._every], 0),
            token_index=read_only(token_index),
            **{n: np.where(known, ring[place, self._every], np.nan) for n, ring in self._ring.items()},
        )
        self.state, action = self.law.step(self.state, observation)
        low, high = max(0.0, action.temperature_min), action.temperature_max
        applied = replace(action, temperature=np.clip(action.temperature, low, high))
        if self.on_decision is not None:
            self.on_decision(observation, action, applied)
        return applied

    def _remember(self, rows: Rows, drawn: LogitStats) -> None:
        packed = torch.stack([getattr(drawn, name).to(torch.float32) for name in STATISTICS])
        token = drawn.token_id
        landed = None
        if packed.is_cuda:
            packed, token = _to_host(packed), _to_host(token)
            landed = torch.cuda.Event()
            landed.record()
        self._under_way.append((self.step_index, rows, packed, token, landed))
        # On the CPU the numbers are here already, whatever the delay: whoever watches need not wait for them.
        self._settle(0 if landed is None else len(self._under_way))

    def _settle(self, leave: int) -> None:
        """Take in what has reached the host, waiting for all but the newest `leave` steps."""
        while self._under_way:
            step, rows, packed, token, landed = self._under_way[0]
            if landed is not None and not landed.query():
                if len(self._under_way) <= leave:
                    return
                landed.synchronize()
            self._under_way.popleft()
            values = dict(zip(STATISTICS, packed.numpy().astype(np.float64), strict=True))
            place = rows.token_index % self._ring_token.shape[0]
            still = self._owner[rows.slot] == rows.request_id
            at = place[still], rows.slot[still]
            for name, ring in self._ring.items():
                ring[at] = values[name][still]
            self._ring_token[at], self._ring_step[at] = rows.token_index[still], step
            if self.on_measured is not None:
                self.on_measured(Measured(step, rows, values, token.numpy()))


def _to_host(tensor: torch.Tensor) -> torch.Tensor:
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return host.copy_(tensor, non_blocking=True)


def _with_sampler(ops: Any, sampler: str | None) -> Any:
    """The ops with another default sampler of `logit_stats`."""
    if sampler is None or sampler == ops.sampler:
        return ops

    def logit_stats(*args: Any, **options: Any) -> LogitStats:
        return ops.logit_stats(*args, **{"sampler": sampler, **options})

    return SimpleNamespace(logit_stats=logit_stats, sampler=sampler)
