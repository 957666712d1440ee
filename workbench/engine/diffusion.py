"""Masked-diffusion requests in the shared queue, beside autoregressive ones, under the same scheduler and KV pool.

Such a request has all its positions from the start, prompt and `output_tokens` masked ones. To the batcher it is a
prefill that starts over: each iteration computes every position anew (nothing is kept between iterations but the blocks
it occupies), and when the last of them is computed a policy decides at the REVEAL point how many tokens that forward
pass has bought. Tokens are generated in the order they are revealed; the request ends when none is masked.

    iteration of request r:   prompt + output positions through the model, possibly over several steps (chunks)
                              -> REVEAL -> generated += positions revealed; not done: computed = 0

What the model believes about masked positions comes from `DiffusionRows`: an oracle in the simulator, an encoder in the
live plant. Source: ours; the batcher and the life cycle are those of `EnginePlant`.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from workbench.engine.clock import Clock
from workbench.engine.config import EngineConfig
from workbench.engine.executor import Executor, StepResult
from workbench.engine.plant import EnginePlant
from workbench.engine.requests import RequestSpec, RequestStatus
from workbench.errors import InputError
from workbench.protocols import Action, DecisionPoint, Observation, RevealAction, RevealObservation
from workbench.signals import BoolArray, IntArray


class DiffusionRows(Protocol):
    """The masked-diffusion requests of a run: their tokens, what is believed about them, what is revealed."""

    is_diffusion: BoolArray  # [num_requests]

    def admit(self, request_id: int, slot: int) -> None: ...

    def release(self, slot: int) -> None: ...

    def forward(self, slots: IntArray) -> None:
        """One pass over the tokens of each slot."""
        ...

    def measurements(self, slots: IntArray, num_slots: int) -> dict[str, Any]:
        """iteration, masked, entropy_nats, .. of a `RevealObservation`, blank outside `slots`."""
        ...

    def reveal(self, slots: IntArray, action: RevealAction) -> IntArray:
        """Apply the action; returns how many positions each slot revealed."""
        ...

    def num_masked(self, slots: IntArray) -> IntArray: ...


class DiffusionEnginePlant(EnginePlant):
    """An `EnginePlant` that also serves the requests `rows` says are masked diffusion.

    Where REVEAL is not controlled, one position is revealed a pass, from the left: exact, and the slowest. A request that is
    preempted keeps its revealed tokens and loses an unfinished pass.
    Raises InputError if `rows` and `requests` disagree on how many requests there are.
    """

    def __init__(
        self,
        requests: RequestSpec,
        executor: Executor,
        clock: Clock,
        config: EngineConfig,
        rows: DiffusionRows,
        controlled: frozenset[DecisionPoint] = frozenset(),
        window_steps: int | None = None,
    ) -> None:
        super().__init__(requests, executor, clock, config, controlled, window_steps)
        if rows.is_diffusion.shape != (len(requests),):
            raise InputError(
                f"diffusion rows speak of {rows.is_diffusion.shape[0]} requests, the run has {len(requests)}"
            )
        if config.prefix_caching or config.preemption == "swap":
            raise InputError(
                "masked-diffusion requests keep no KV between passes; leave out engine.prefix_caching and preemption = swap"
            )
        self.rows = rows
        self.diffuses = np.zeros(self.num_slots, np.bool_)
        self.iterations = np.zeros(len(requests), np.int64)  # forward passes each request has taken
        self._passed = np.zeros(0, np.int64)  # slots whose pass the batch at hand completes

    def observe(self, point: DecisionPoint) -> Observation:
        if point is not DecisionPoint.REVEAL:
            return super().observe(point)
        active = np.zeros(self.num_slots, np.bool_)
        active[self._passed] = True
        head = self._head(point, active)
        head["measured"] = active.copy()
        head["measured_step"] = np.where(active, self.step_index, 0)
        return RevealObservation(step=self.step_index, **head, **self.rows.measurements(self._passed, self.num_slots))

    def apply(self, point: DecisionPoint, action: Any) -> Action:
        if point is not DecisionPoint.REVEAL:
            return super().apply(point, action)
        self._revealed = self.rows.reveal(self._passed, action)
        return action

    def _admit_arrivals(self) -> None:
        before = self.request_id.copy()
        super()._admit_arrivals()
        for slot in np.flatnonzero((self.request_id != before) & (self.request_id >= 0)):
            r = int(self.request_id[slot])
            self.diffuses[slot] = self.rows.is_diffusion[r]
            if self.diffuses[slot]:
                self.known[slot] += self.requests.output_tokens[r]
                self.rows.admit(r, int(slot))

    def _form_batch(self, start_s: float) -> int:
        num_preempted = super()._form_batch(start_s)
        batch = self._batch
        diffuses = self.diffuses[batch.slot]
        self._passed = batch.slot[diffuses & batch.samples]
        self.samples[self._passed] = self.decodes[self._passed] = False
        self.num_samples, self.num_decodes = int(self.samples.sum()), int(self.decodes.sum())
        # No token is drawn by the executor for these: what a pass buys is decided afterwards.
        self._batch = replace(batch, samples=batch.samples & ~diffuses)
        return num_preempted

    def _after_forward(self, result: StepResult) -> Iterator[DecisionPoint]:
        self._revealed = np.zeros(0, np.int64)
        if self._passed.size == 0:
            return
        self.rows.forward(self._passed)
        if DecisionPoint.REVEAL in self.controlled:
            yield DecisionPoint.REVEAL
        else:
            width = int(self.rows.measurements(self._passed, self.num_slots)["masked"].shape[1])
            self._revealed = self.rows.reveal(self._passed, one_from_the_left(self.num_slots, width))

    def _leave(self, slot: int, status: RequestStatus) -> None:
        super()._leave(slot, status)
        if self.diffuses[slot]:
            self.rows.release(slot)
            self.diffuses[slot] = False

    def _finish_step(self, result: StepResult, start_s: float, num_preempted: int) -> None:
        super()._finish_step(result, start_s, num_preempted)
        now_s, ledger = self.clock.now_s, self.ledger
        slots = self._passed
        owner = self.request_id[slots]
        self.generated[slots] += self._revealed
        self.since_admission[slots] += self._revealed
        self.computed[slots] = 0
        self.iterations[owner] += 1
        ledger.generated_tokens[owner] = self.generated[slots]
        first = owner[np.isnan(ledger.first_token_s[owner])]
        ledger.first_token_s[first] = now_s
        for slot in slots[self.rows.num_masked(slots) == 0]:
            self._complete(int(slot), now_s)
        self._passed = np.zeros(0, np.int64)


def one_from_the_left(num_slots: int, length: int) -> RevealAction:
    """The default where no policy is present."""
    return RevealAction(
        rank=np.broadcast_to(np.arange(length), (num_slots, length)),
        cost=np.zeros((num_slots, length)),
        budget=np.full(num_slots, np.inf),
        include_crossing=np.zeros(num_slots, np.bool_),
        min_count=np.ones(num_slots, np.int64),
        max_count=np.ones(num_slots, np.int64),
    )
