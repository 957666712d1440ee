"""Reasoning requests in the queue: a probe in the Standard mode, a decision, and the answer the router chose.

    arrive -> Standard prompt -> probe (its first `probe_tokens` tokens) -> ROUTE -> Standard: goes on, KV reused
                                                                                  -> Direct, CoT: KV freed, the prompt
                                                                                     of that strategy, its own answer

A request's tokens include its probe. A probe ends early where the Standard answer does; with `delay_steps` = d the decision
comes d tokens later, and those tokens are paid for. A router that looks at nothing (`probe_tokens` = 0) is asked when the
request takes a slot, before the batch is formed, and no probe is run.

What a request would cost under each strategy is its *regime*: true lengths in the simulator, caps in the live plant. Where
a regime holds a recorded probe, the router is shown that instead of what the executor measured, so that its decisions go
with the recorded outcomes. Source: EDRM (arXiv 2605.22873) for probe and strategies; the queue is ours.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from workbench.engine import slots as row
from workbench.engine.clock import Clock
from workbench.engine.config import EngineConfig
from workbench.engine.executor import Executor, StepResult
from workbench.engine.kv_blocks import release
from workbench.engine.plant import EnginePlant
from workbench.engine.requests import RequestLedger, RequestSpec, RequestStatus
from workbench.errors import InputError
from workbench.protocols import Action, DecisionPoint, Observation, RouteObservation, RouteReason, Strategy
from workbench.signals import BoolArray, FloatArray, IntArray

NO_LIMIT = np.iinfo(np.int64).max


@dataclass(frozen=True, kw_only=True)
class Regimes:
    """What every request costs under each strategy, and how it would end. The second axis [.., 3] is `Strategy`."""

    probe_tokens: int  # 0: the router decides on arrival
    prompt_tokens: IntArray  # [num_requests, 3]
    output_tokens: IntArray  # [num_requests, 3] answers alone, without the probe
    correct: BoolArray | None = None  # [num_requests, 3] recorded outcome
    probe_entropy_nats: FloatArray | None = None  # [num_requests, probe_tokens] recorded, NaN beyond the answer
    probe_surprisal_raw_nats: FloatArray | None = None

    def __post_init__(self) -> None:
        if self.probe_tokens < 0:
            raise InputError(f"probe_tokens must be at least 0, got {self.probe_tokens}")
        for name in ("prompt_tokens", "output_tokens"):
            values = getattr(self, name)
            if values.ndim != 2 or values.shape[1] != len(Strategy) or (values.size and values.min() < 1):
                raise InputError(f"Regimes.{name} must have shape [num_requests, {len(Strategy)}], values at least 1")

    def longest(self, requests: RequestSpec) -> RequestSpec:
        """`requests` at their longest under any strategy: what memory must hold."""
        most = (self.prompt_tokens + self.output_tokens).max(axis=1)
        return replace(requests, output_tokens=most - requests.prompt_tokens)

    def standard_columns(self, ledger: RequestLedger) -> dict[str, Any]:
        """The record's columns of a run without a router, where every answer is Standard."""
        if self.correct is None:
            return {}
        return {"correct": self.correct[:, Strategy.STANDARD] & (ledger.status == RequestStatus.COMPLETED)}


class RoutedEnginePlant(EnginePlant):
    """An `EnginePlant` whose requests are routed once each.

    on_route  told (request, strategy) of each request that leaves the Standard mode, before it is admitted again: the live
              plant puts the other prompt in place
    Raises InputError where ROUTE is not controlled, or `regimes` and `requests` disagree.
    """

    def __init__(
        self,
        requests: RequestSpec,
        executor: Executor,
        clock: Clock,
        config: EngineConfig,
        regimes: Regimes,
        controlled: frozenset[DecisionPoint] = frozenset({DecisionPoint.ROUTE}),
        window_steps: int | None = None,
        on_route: Callable[[int, Strategy], None] = lambda request, strategy: None,
    ) -> None:
        if DecisionPoint.ROUTE not in controlled:
            raise InputError(
                "a routed plant needs a router; without one use EnginePlant, where every answer is Standard"
            )
        standard = (regimes.prompt_tokens[:, Strategy.STANDARD], regimes.output_tokens[:, Strategy.STANDARD])
        if not all(map(np.array_equal, standard, (requests.prompt_tokens, requests.output_tokens))):
            raise InputError("the requests of a routed run must be those of the Standard strategy")
        if config.prefix_caching:
            raise InputError("a routed request changes its prompt; leave out engine.prefix_caching")
        super().__init__(requests, executor, clock, config, controlled, window_steps)
        self.regimes, self.on_route = regimes, on_route
        width = max(regimes.probe_tokens, 1)
        self.undecided = np.zeros(self.num_slots, np.bool_)
        self.strategy = np.full(len(requests), -1, np.int64)  # -1: never decided
        self.reason = np.full(len(requests), -1, np.int64)
        self.probe_length = np.zeros(len(requests), np.int64)  # tokens drawn before the decision
        self.decided_s = np.full(len(requests), np.nan)
        self._entropy = np.full((self.num_slots, width), np.nan)
        self._surprisal = np.full((self.num_slots, width), np.nan)
        self._probe_shown = np.zeros(self.num_slots, np.int64)  # probe tokens the router is shown
        self._due = np.zeros(0, np.int64)  # slots to be decided now
        self._leaving = np.zeros(0, np.int64)  # of those, slots that leave the Standard mode

    # The plant side of the loop

    def observe(self, point: DecisionPoint) -> Observation:
        if point is not DecisionPoint.ROUTE:
            return super().observe(point)
        active = np.zeros(self.num_slots, np.bool_)
        active[self._due] = True
        shown = np.where(active, self._probe_shown, 0)
        inside = np.arange(self._entropy.shape[1]) < shown[:, None]
        head = self._head(point, active)
        head["measured"] = active & (shown > 0)
        head["measured_step"] = np.where(head["measured"], self.step_index, 0)
        entropy, surprisal = self._probes()
        return RouteObservation(
            step=self.step_index,
            **head,
            num_probe_tokens=shown,
            probe_entropy_nats=np.where(inside, entropy, np.nan),
            probe_surprisal_raw_nats=None if surprisal is None else np.where(inside, surprisal, np.nan),
        )

    def _probes(self) -> tuple[FloatArray, FloatArray | None]:
        """Entropies and surprisals by slot: recorded where the regimes hold them, else as measured."""
        regimes = self.regimes
        if regimes.probe_entropy_nats is None or regimes.probe_tokens == 0:
            return self._entropy, self._surprisal
        owner = np.maximum(self.request_id, 0)
        surprisal = regimes.probe_surprisal_raw_nats
        return regimes.probe_entropy_nats[owner], None if surprisal is None else surprisal[owner]

    def apply(self, point: DecisionPoint, action: Any) -> Action:
        if point is not DecisionPoint.ROUTE:
            return super().apply(point, action)
        due, owner = self._due, self.request_id[self._due]
        self.strategy[owner], self.reason[owner] = action.strategy[due], action.reason[due]
        self.undecided[due] = False
        self._leaving = due[action.strategy[due] != Strategy.STANDARD]
        return action

    def route_columns(self) -> dict[str, Any]:
        """What the record says of each request's way."""
        rows = np.arange(len(self.requests))
        taken = np.maximum(self.strategy, 0)
        columns: dict[str, Any] = {
            "strategy": ["undecided" if s < 0 else Strategy(s).name.lower() for s in self.strategy],
            "route_reason": ["undecided" if r < 0 else RouteReason(r).name.lower() for r in self.reason],
            "probe_tokens": self.probe_length,
            "answer_prompt_tokens": self.regimes.prompt_tokens[rows, taken],
            "decided_s": self.decided_s,
        }
        if self.regimes.correct is not None:
            # An answer that was never finished is a wrong one.
            done = self.ledger.status == RequestStatus.COMPLETED
            columns["correct"] = self.regimes.correct[rows, taken] & done
        return columns

    # Within a step

    def _most_tokens(self, request: int) -> int:
        return int((self.regimes.prompt_tokens[request] + self.regimes.output_tokens[request]).max())

    def _admit_arrivals(self) -> None:
        before = self.request_id.copy()
        super()._admit_arrivals()
        new = np.flatnonzero((self.request_id != before) & (self.request_id >= 0))
        self.undecided[new] = True
        self._entropy[new] = self._surprisal[new] = np.nan
        self._probe_shown[new] = 0

    def _leave(self, slot: int, status: RequestStatus) -> None:
        super()._leave(slot, status)
        self.undecided[slot] = False

    def _before_batch(self) -> Iterator[DecisionPoint]:
        if self.regimes.probe_tokens > 0 or not self.undecided.any():
            return
        self._due = np.flatnonzero(self.undecided)
        self.decided_s[self.request_id[self._due]] = self.clock.now_s
        yield DecisionPoint.ROUTE
        self._leave_standard(np.zeros(self.num_slots, np.int64))

    def _after_forward(self, result: StepResult) -> Iterator[DecisionPoint]:
        batch, delay = self._batch, self.config.delay_steps
        rows = np.flatnonzero(batch.samples & self.undecided[batch.slot])
        slot, index = batch.slot[rows], self.generated[batch.slot[rows]]
        inside = index < self.regimes.probe_tokens
        self._entropy[slot[inside], index[inside]] = result.entropy_raw_nats[rows[inside]]
        self._surprisal[slot[inside], index[inside]] = result.surprisal_raw_nats[rows[inside]]
        ends = result.ended[rows] | (index + 1 >= batch.output_tokens[rows])
        seen = np.where(ends, index + 1, index + 1 - delay)
        self._probe_shown[slot] = np.clip(seen, 0, self.regimes.probe_tokens)
        due = ends | (seen >= self.regimes.probe_tokens)
        self._due, self._leaving = slot[due], np.zeros(0, np.int64)
        if self._due.size == 0:
            return
        owner = self.request_id[self._due]
        self.probe_length[owner], self.decided_s[owner] = index[due] + 1, self.clock.now_s
        yield DecisionPoint.ROUTE
        # Whatever leaves does not end here, even where its Standard answer did.
        leaves = np.isin(batch.slot, self._leaving)
        self._batch = replace(batch, output_tokens=np.where(leaves, NO_LIMIT, batch.output_tokens))

    def _finish_step(self, result: StepResult, start_s: float, num_preempted: int) -> None:
        leaves = np.isin(self._batch.slot, self._leaving)
        super()._finish_step(replace(result, ended=result.ended & ~leaves), start_s, num_preempted)
        self._leave_standard(self.generated)
        self._due = np.zeros(0, np.int64)

    def _leave_standard(self, drawn: IntArray) -> None:
        """Slots that leave the Standard mode start anew with their own prompt; `drawn` tokens a slot are behind them."""
        for slot in map(int, self._leaving):
            r = int(self.request_id[slot])
            strategy = Strategy(int(self.strategy[r]))
            prompt = int(self.regimes.prompt_tokens[r, strategy])
            release(self.pool, slot, self.index)
            self.known[slot] = self.numbers[row.PROMPT, slot] = prompt
            self.numbers[row.OUTPUT, slot] = int(drawn[slot]) + int(self.regimes.output_tokens[r, strategy])
            self.computed[slot] = self.since_admission[slot] = self.lost_tokens[slot] = 0
            self.served[slot] = False
            self.sight.block_mass[slot] = np.nan
            self.sight.rings[:, :, slot] = np.nan
            self.ledger.status[r] = RequestStatus.WAITING
            self.on_route(r, strategy)
            self.executor.admit(r, slot)
        self._leaving = np.zeros(0, np.int64)
