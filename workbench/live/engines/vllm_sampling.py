"""The sampling side of the vLLM plug-in: measures H and varentropy of every row, runs the temperature law, draws.

vLLM calls `update_state` when its batch changes and `apply` with the raw logits of all rows, before its own temperature.
A steered row's token is drawn here, by the op in `kernels`, with the law's temperature and truncation, and forced by
one very large logit: so draws, surprisals and actions are those of our own engines. Where the request asks for top-k,
top-p or min-p, the law only sets the temperature, and vLLM truncates and draws. Rows left to the engine are measured only.

Token indices are counted from lengths, never read from token ids, which asynchronous scheduling
fills with placeholders (-1). Deviates: a stand-alone processor keeps states of waiting requests only while slots last.
"""

import logging
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality

from kernels.dispatch import backend
from workbench.errors import InputError
from workbench.live.engines.deployment import Deployment, deploy, scenario_from_environment, scenario_of_request
from workbench.live.engines.signal_board import SignalBoard
from workbench.live.engines.slots import Slots
from workbench.live.engines.spool import Spool
from workbench.live.engines.steering import Measured, Rows, Steering
from workbench.live.engines.vllm_params import Wishes, wishes_of
from workbench.live.engines.vllm_shared import open_board, open_spool, slots_of, vocabulary_of
from workbench.protocols import Action, DecisionPoint, Observation
from workbench.record import decision_row
from workbench.scenario import Scenario

log = logging.getLogger("vllm.entropic")
FORCED_LOGIT = 1e30  # still finite after division by the smallest temperature vLLM takes
SERVER = ""  # the server's own scenario, among those that requests name


@dataclass
class Row:
    """One row of the engine's batch."""

    wishes: Wishes
    slot: int
    request_id: int
    law: str  # key of the steering that serves it
    outputs: Any  # the request's output tokens: its length is the index of the next token (first model runner)


class SamplingSide:
    """What the processor does in the process that samples. Raises `InputError`."""

    def __init__(self, vllm_config: Any, device: torch.device, states: Any) -> None:
        """states: the second model runner's request states; None with the first."""
        self.vocab_size = vocabulary_of(vllm_config)
        self.ops = backend("cpu" if device.type == "cpu" else "triton")
        self.num_slots = slots_of(vllm_config)
        self.slots = Slots(self.num_slots)
        self.rows: list[Row | None] = []  # by row of the batch (first runner) or by the engine's slot (second)
        self._states = states
        self._changed = np.zeros(self.num_slots, np.bool_)  # logits changed before we see them, by slot
        self._drawn_here = np.zeros(self.num_slots, np.bool_)  # False: the engine draws, we do not know what
        self.step_index = 0
        path = scenario_from_environment()
        self.deployment = deploy(path or Scenario(), "vllm", self.vocab_size)
        for flag in self.deployment.flags:
            log.warning("%s", flag)
        self.board: SignalBoard | None = open_board(vllm_config, self.num_slots, self.deployment.delay_steps)
        self.spool: Spool | None = open_spool()
        if self.board is not None:
            self.board.sign("sampler")
        self.laws = {SERVER: self._steering(self.deployment, recorded=True)}
        self._warm_up(device)
        self._layout: tuple[list[Row], np.ndarray, np.ndarray, list[tuple[str, np.ndarray]]] | None = None
        if self.spool is not None:
            self.spool.about("sampler", {
                "controller_context": dict(self.deployment.context), "num_slots": self.num_slots,
                "backend": self.ops.implementation, "sampler": self.ops.sampler, "vocab_size": self.vocab_size,
                "torch": torch.__version__,
            })  # fmt: skip

    def _warm_up(self, device: torch.device) -> None:
        """A few tokens of one request that does not exist: op and law compile now, not while the first request waits."""
        law = self.deployment.controllers.get(DecisionPoint.TEMPERATURE)
        steering = Steering(law, self.num_slots, self.deployment.delay_steps, self.ops)
        nobody = np.zeros(1, np.int64)
        for token in range(self.deployment.delay_steps + 3):
            steering.step(torch.zeros(1, self.vocab_size, device=device), Rows(nobody, nobody, nobody + token))
        steering.settle()

    # What vLLM asks

    def update_state(self, batch_update: BatchUpdate) -> None:
        """First model runner: rows leave, enter and move."""
        self._layout = None
        rows = self.rows
        size = max(batch_update.batch_size, len(rows), *(add[0] + 1 for add in batch_update.added), 0)
        rows.extend([None] * (size - len(rows)))
        for index in batch_update.removed:
            self._leave(index)
        for index, params, _, outputs in batch_update.added:
            self._leave(index)
            rows[index] = self._row(params, outputs)
        for left, right, how in batch_update.moved:
            if how is MoveDirectionality.SWAP:
                rows[left], rows[right] = rows[right], rows[left]
            else:
                self._leave(right)
                rows[left], rows[right] = None, rows[left]
        del rows[batch_update.batch_size :]

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """Second model runner: a request takes the engine's slot `req_idx`."""
        self.rows.extend([None] * (req_idx + 1 - len(self.rows)))
        self._leave(req_idx)
        self.rows[req_idx] = self._row(sampling_params, None)
        return True

    def apply(self, logits: torch.Tensor, context: Any = None) -> torch.Tensor:
        """Measure, decide, draw. logits: [rows, vocab], float32, changed in place."""
        if logits.shape[0] == 0:
            return logits
        if context is None:
            if self._layout is None:
                self._layout = self._lay_out([row for row in self.rows[: logits.shape[0]] if row is not None])
            rows = self._layout[0]
            token_index = np.array([len(row.outputs) for row in rows], np.int64)
        else:
            self._layout = self._lay_out([self._known(i) for i in context.idx_mapping_np.tolist()])
            prompt = np.asarray(self._states.prompt_len.np)[context.idx_mapping_np]
            token_index = np.maximum(np.asarray(context.seq_lens_upper_bound_np) - prompt, 0).astype(np.int64)
        rows, slot, request_id, groups = self._layout
        self.step_index += 1
        if len(rows) != logits.shape[0]:
            raise RuntimeError(f"{logits.shape[0]} rows of logits for {len(rows)} requests; speculative decoding?")
        every = Rows(slot, request_id, token_index)
        for key, some in groups:
            self._draw(logits, every, rows, key, some)
        if self.board is not None:
            self.board.count("sampled_rows", len(rows))
            self.board.beat(self.step_index)
        return logits

    # Rows

    def _row(self, params: Any, outputs: Any) -> Row:
        wishes = wishes_of(params)
        slot, request_id, lost = self.slots.take(wishes.slot, wishes.request_id, params)
        if self.board is not None:
            self.board.count("states_lost", int(lost))
        key = SERVER if wishes.scenario is None else wishes.scenario
        if key not in self.laws:
            named = deploy(scenario_of_request(key), "vllm", self.vocab_size)
            if DecisionPoint.ORDER in named.controllers:
                raise InputError(f"entropic_scenario {key!r} orders requests; only the server's own scenario may")
            self.laws[key] = self._steering(named, recorded=False)
        if not wishes.steered and self.laws[key].law is not None:
            key = f"{key}, left to the engine"
            if key not in self.laws:
                self.laws[key] = self._steering(replace(self.deployment, controllers={}), recorded=False)
        if wishes.seed is not None:
            self.laws[key].sampler.request_seeds[request_id] = wishes.seed
        self._changed[slot] = wishes.changes_logits is not None
        self._drawn_here[slot] = self.laws[key].law is not None and not wishes.engine_truncates
        return Row(wishes, slot, request_id, key, outputs)

    def _known(self, index: int) -> Row:
        row = self.rows[index]
        assert row is not None
        return row

    def _leave(self, index: int) -> None:
        row = self.rows[index]
        if row is not None:
            self.slots.leave(row.slot)
            self.laws[row.law].sampler.request_seeds.pop(row.request_id, None)  # given again should it come back
            self.rows[index] = None

    def _lay_out(self, rows: list[Row]) -> tuple[list[Row], np.ndarray, np.ndarray, list[tuple[str, np.ndarray]]]:
        slot = np.array([row.slot for row in rows], np.int64)
        request_id = np.array([row.request_id for row in rows], np.int64)
        keys = np.array([row.law for row in rows])
        groups = [(str(key), np.flatnonzero(keys == key)) for key in dict.fromkeys(keys.tolist())]
        return rows, slot, request_id, groups

    # One step of one law

    def _draw(self, logits: torch.Tensor, every: Rows, rows: list[Row], key: str, some: np.ndarray) -> None:
        steering = self.laws[key]
        whole = some.size == logits.shape[0]
        index = torch.from_numpy(some).to(logits.device)
        mine = every if whole else every.where(some)
        own = None if steering.law is not None else np.array([rows[i].wishes.own_temperature for i in some])
        steering.step_index = self.step_index - 1
        drawn = steering.step(logits if whole else logits[index], mine, own)
        if steering.law is None:
            self._count("passed_rows", some.size)
            return
        cuts = np.array([rows[i].wishes.engine_truncates for i in some])
        ours = torch.from_numpy(~cuts).to(logits.device)
        good = ours & (drawn.token_id >= 0)
        # A row without a distribution keeps what it has: writing the same value back changes nothing.
        token = drawn.token_id.clamp_min(0)
        kept = logits[index, token]
        logits[index, token] = torch.where(good, FORCED_LOGIT, kept)
        if cuts.any():
            where = np.flatnonzero(cuts)
            place = torch.from_numpy(where).to(logits.device)
            asked = torch.tensor([rows[some[i]].wishes.own_temperature for i in where], device=logits.device)
            # vLLM divides by the request's own temperature afterwards.
            logits[index[place]] *= (asked / drawn.temperature_applied[place].clamp_min(1e-6))[:, None]
            self._count("engine_drawn_rows", where.size)
        self._count("drawn_rows", some.size - int(cuts.sum()))

    def _count(self, name: str, more: int) -> None:
        if self.board is not None:
            self.board.count(name, int(more))

    def _steering(self, deployment: Deployment, recorded: bool) -> Steering:
        law = deployment.controllers.get(DecisionPoint.TEMPERATURE)
        spool = self.spool if recorded else None
        made = Steering(
            law, self.num_slots, deployment.delay_steps, self.ops, seed=deployment.seed,
            temperature=deployment.scenario.engine_config(1).temperature,
            on_decision=None if spool is None else self._record_decision, on_measured=self._publish,
        )  # fmt: skip
        made.sampler.seed_alone = True
        return made

    def _record_decision(self, observation: Observation, action: Action, applied: Action) -> None:
        assert self.spool is not None
        self.spool.write("temperature", decision_row(observation, action, applied))

    def _publish(self, measured: Measured) -> None:
        """To the scheduler and to the record. What is not the model's own distribution is never called raw."""
        rows, values = measured.rows, measured.values
        self._count("bad_rows", int(np.isnan(values["entropy_raw_nats"]).sum()))
        changed, here = self._changed[rows.slot], self._drawn_here[rows.slot]
        if changed.any():
            self._count("processed_rows", int(changed.sum()))
            values = {name: np.where(changed, np.nan, v) if "_raw_" in name else v for name, v in values.items()}
        token_id = measured.token_id
        if not here.all():
            values = {name: np.where(here, v, np.nan) if "surprisal" in name else v for name, v in values.items()}
            token_id = np.where(here, token_id, -1)
        step = np.full(rows.slot.size, measured.step)
        if self.board is not None:
            self.board.publish(
                rows.slot, rows.request_id, rows.token_index, step, values["entropy_raw_nats"],
                values["varentropy_raw_nats2"],
            )  # fmt: skip
        if self.spool is not None:
            self.spool.write("tokens", {
                "step": step, "slot": rows.slot, "request_id": rows.request_id, "token_index": rows.token_index,
                "token_id": token_id, **values,
            })  # fmt: skip
