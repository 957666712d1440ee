"""The live executor: carries out the engine's batches on a real model, and measures.

Per sampled token: raw and tempered entropy and varentropy, surprisal under both, and the token, drawn with a
counter-based generator keyed by (seed, request, token index), so that draws do not depend on arm, slot or batch. Per
decoding row: the attention mass of each KV block. Per step: the time the work took, in which what was measured only
for the record (entropies at extra temperatures, the mass that pruning dropped) is not counted.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from workbench.engine.executor import Batch, StepResult
from workbench.engine.step_time import StepTime
from workbench.live.batch_input import forward_input
from workbench.live.decoder import Decoder, QueryViewer
from workbench.live.decoder_layout import ForwardInput, ForwardOutput
from workbench.live.head_rules import HeadRules, acts_per_head
from workbench.live.keep_list import KeepList, choose_blocks
from workbench.live.key_index import KeyIndex
from workbench.live.kv_cache import KVCache
from workbench.live.sampler import Sampler
from workbench.protocols import KeepAction, SamplingAction
from workbench.signals import FloatArray, IntArray

# Entropies at these temperatures on the same logits fix the shape of the entropy process.
CALIBRATION_TEMPERATURES = (0.5, 0.7, 1.0, 1.4)
STATISTICS = (
    "entropy_raw_nats",
    "varentropy_raw_nats2",
    "entropy_nats",
    "varentropy_nats2",
    "surprisal_nats",
    "surprisal_raw_nats",
    "temperature_applied",
)
OnToken = Callable[[int, int, int], None]  # (request_id, token_index, token_id)
OnLogits = Callable[[IntArray, IntArray, torch.Tensor], None]  # (request_id [r], token_index [r], logits [r, vocab])


@dataclass(frozen=True)
class Pass:
    """A forward pass and what it was given: decode rows, their blocks, what they read."""

    started_s: float
    decode: IntArray
    table: np.ndarray
    kept: KeepList | None
    rules: HeadRules | None
    output: ForwardOutput


class LiveExecutor:
    """An `Executor`. Prompts are token ids by request id; outputs collect in `outputs`."""

    def __init__(
        self,
        decoder: Decoder,
        cache: KVCache,
        prompts: Sequence[Sequence[int]],
        *,
        seed: int = 0,
        temperature: float = 1.0,
        stop_ids: Sequence[int] = (),
        request_seeds: Mapping[int, int] | None = None,
        calibration_temperatures: Sequence[float] = (),
        mass_by_head: bool = False,
        measure_mass: bool = True,
        measure_dropped: bool = True,
        sketched_keys: bool = False,
        forced: Mapping[int, Sequence[int]] | None = None,
        on_token: OnToken | None = None,
        on_logits: OnLogits | None = None,
    ) -> None:
        """`temperature` holds where no controller acts. `request_seeds`: a request's own seed instead of the run's.

        `sketched_keys`: a rule will go by key sketches, so the queries of prompts are watched (sketches are then there from the
        first decoded token; without, a sequence's first tokens are read whole). Prefill goes op by op where it is watched.
        `forced`: output tokens given beforehand (teacher forcing): statistics are those of the forced token.
        """
        self.decoder, self.cache, self.prompts = decoder, cache, prompts
        self.vocab_size = decoder.config.vocab_size
        self.sampler = Sampler(decoder.ops, seed, temperature, request_seeds, forced)
        self.stop_ids = np.array(sorted(set(stop_ids)), np.int64)
        self.calibration_temperatures = tuple(calibration_temperatures)
        self.mass_by_head, self.measure_mass, self.measure_dropped = mass_by_head, measure_mass, measure_dropped
        self.on_token, self.on_logits = on_token, on_logits
        self.vocab_size = decoder.config.vocab_size
        self.outputs: list[list[int]] = [[] for _ in prompts]
        self.pruned = np.zeros(len(prompts), np.bool_)  # requests of which some step did not read every block
        self.finish_reasons: list[str | None] = [None] * len(prompts)
        self._tokens = np.zeros((0, 0), np.int64)  # [slot, position] known tokens
        self._evicted_score = np.zeros(0)
        self._step_time = StepTime()
        # Made when a rule first asks for it, or at once where sketches will be asked for.
        self._key_index = self._new_index() if sketched_keys else None
        self._sketched = sketched_keys
        self._worker: ThreadPoolExecutor | None = None  # made when a pass is first begun early
        self._begun: Future[Pass] | None = None

    # The Executor protocol

    def admit(self, request_id: int, slot: int) -> None:
        prompt = self.prompts[request_id]
        self._grow(slot + 1, len(prompt) + 1)
        self._tokens[slot, : len(prompt)] = prompt
        self._evicted_score[slot] = 0.0
        self.finish_reasons[request_id] = None  # a routed request comes a second time
        self._forget_keys(slot)

    def release(self, request_id: int, slot: int) -> None:
        if self.finish_reasons[request_id] is None:
            self.finish_reasons[request_id] = "length"
        self._forget_keys(slot)

    def lose_kv(self, slot: int) -> None:
        self._evicted_score[slot] = 0.0
        self._forget_keys(slot)

    def marginal_step_s(self, start: IntArray, num_tokens: IntArray) -> FloatArray:
        return self._step_time.marginal_s(start, num_tokens)

    def begin(self, batch: Batch, keep: KeepAction | None) -> None:
        """Start the pass of the batch that `execute` will be given next; temperatures can be decided meanwhile."""
        if self._worker is None:  # all of a run's passes in one thread: OpenMP keeps a team for each that asks
            self._worker = ThreadPoolExecutor(1, "pass", torch.set_num_threads, (torch.get_num_threads(),))
        self._begun = self._worker.submit(self._forward, batch, keep)

    def execute(self, batch: Batch, sampling: SamplingAction | None, keep: KeepAction | None) -> StepResult:
        if self._begun is None:
            return self._finish(batch, sampling, self._forward(batch, keep))
        assert self._worker is not None
        begun, self._begun = self._begun, None
        return self._worker.submit(self._finish, batch, sampling, begun.result()).result()

    def _forward(self, batch: Batch, keep: KeepAction | None) -> Pass:
        started_s = time.perf_counter()
        decode = np.flatnonzero(batch.num_tokens == 1)
        table = batch.slot_block_table[batch.slot, : int(batch.num_blocks.max())]
        kept = self._keep_list(batch, keep, decode, table)
        forward = forward_input(batch, self._tokens, decode, table, self.decoder.device)
        rules = self._head_rules(batch, keep, decode, table, kept, forward)
        output = self.decoder.forward(
            forward,
            self.cache,
            rules if rules is not None else None if kept is None else self._in_every_head(kept),
            want_mass=self.measure_mass,
            want_mass_by_head=self.mass_by_head,
            measure_dropped=self.measure_dropped,
            on_queries=self._watch(batch, forward),
        )
        return Pass(started_s, decode, table, kept, rules, output)

    def _finish(self, batch: Batch, sampling: SamplingAction | None, done: Pass) -> StepResult:
        decode, table, kept, rules, output = done.decode, done.table, done.kept, done.rules, done.output
        n, rows = batch.slot.shape[0], np.flatnonzero(batch.samples)
        columns = {name: np.full(n, np.nan) for name in STATISTICS}
        token_id = np.full(n, -1, np.int64)
        if rows.size:
            statistics = self.sampler.draw(batch, rows, output.logits, sampling)
            for name in STATISTICS:
                columns[name][rows] = getattr(statistics, name).numpy(force=True)
            token_id[rows] = statistics.token_id.numpy(force=True)
        elapsed_s = time.perf_counter() - done.started_s - output.measuring_s
        extra = self._for_the_record(batch, rows, output)
        if self._sketched:
            extra["dropped_mass_bound"] = np.full(n, np.nan)
        read, dense = self._kv_tokens(batch, decode, output)
        if kept is not None and rules is not None:
            kept = KeepList(keep=rules.read_anywhere, evict=kept.evict, evicted_score=kept.evicted_score)
            read += float((rules.index_frac * (batch.start + 1)[decode]).sum())
            if self._sketched:
                extra["dropped_mass_bound"][decode] = rules.dropped_mass_bound
        self._step_time.add(int(batch.num_tokens.sum()), read, elapsed_s)
        block_mass, dropped = self._mass(batch, decode, table, output, kept)
        bytes_per_token = self.cache.bytes_per_token
        return StepResult(
            elapsed_s=elapsed_s,
            energy_j=float("nan"),
            flops=self._flops(batch, rows.size),
            kv_bytes_read=read * bytes_per_token,
            kv_bytes_dense=dense * bytes_per_token,
            token_id=token_id,
            ended=self._take_tokens(batch, rows, token_id),
            **columns,
            block_mass=block_mass,
            dropped_mass=dropped,
            evicted=self._evictions(batch, decode, kept),
            extra=extra,
        )

    # Before the forward pass

    def _grow(self, num_slots: int, num_tokens: int) -> None:
        slots, width = self._tokens.shape
        if num_slots > slots or num_tokens > width:
            more_slots = num_slots if num_slots > slots else slots
            wider = np.zeros((more_slots, width if num_tokens <= width else 2 * num_tokens), np.int64)
            wider[:slots, :width] = self._tokens
            score = np.zeros(more_slots)
            score[:slots] = self._evicted_score
            self._tokens, self._evicted_score = wider, score

    def _keep_list(
        self, batch: Batch, action: KeepAction | None, decode: IntArray, table: np.ndarray
    ) -> KeepList | None:
        """None where every decode row reads every block."""
        self._evicted_score[batch.slot[batch.start == 0]] = 0.0  # a new owner, or KV lost to preemption
        if decode.size == 0:
            return None
        slot, num_blocks = batch.slot[decode], batch.num_blocks[decode]
        inside = np.arange(table.shape[1]) < num_blocks[:, None]
        held = inside & (table[decode] >= 0)
        if action is None or not action.rule[slot].any():
            if np.array_equal(held, inside):
                return None
            return KeepList(keep=held, evict=np.zeros_like(held), evicted_score=np.zeros(decode.size))
        return choose_blocks(action, slot, num_blocks, held, self._evicted_score[slot], self.decoder.ops)

    def _head_rules(
        self, batch: Batch, action: KeepAction | None, decode: IntArray, table: np.ndarray, kept: KeepList | None,
        forward: ForwardInput,
    ) -> HeadRules | None:  # fmt: skip
        """The chooser for rules that act inside the pass; None where a keep-list says it all."""
        if self._key_index is not None:
            self._key_index.wrote(forward.slot_index)
        if action is None or kept is None or not acts_per_head(action, batch.slot[decode]):
            return None
        if self._key_index is None:
            self._key_index = self._new_index()
        num_blocks = batch.num_blocks[decode]
        held = (np.arange(table.shape[1]) < num_blocks[:, None]) & (table[decode] >= 0)
        return HeadRules(
            self._key_index, action, batch.slot[decode], num_blocks, kept, held, forward.block_table,
            forward.context_tokens, self.decoder.scale, self.decoder.config.num_layers, self.decoder.config.windows,
        )  # fmt: skip

    def _new_index(self) -> KeyIndex:
        return KeyIndex(self.cache, self.decoder.ops, self.decoder.scale)

    def _forget_keys(self, slot: int) -> None:
        if self._key_index is not None:
            self._key_index.forget(slot)

    def _watch(self, batch: Batch, forward: ForwardInput) -> QueryViewer | None:
        """Shows the index those queries of prefill chunks that sketches are fitted to; None where there are none."""
        index = self._key_index
        if index is None:
            return None
        shown: list[tuple[int, list[int], torch.Tensor]] = []
        for row, chunk in zip(np.flatnonzero(batch.num_tokens != 1).tolist(), forward.chunks, strict=True):
            request, start = int(batch.request_id[row]), chunk.start
            known = len(self.prompts[request]) + len(self.outputs[request])
            places = index.wanted(int(batch.slot[row]), known, start, start + chunk.last - chunk.first)
            if places:
                shown.append((int(batch.slot[row]), places, torch.tensor(places) - start + chunk.first))
        if not shown:
            return None

        def view(layer: int, q: torch.Tensor) -> None:
            for slot, places, at in shown:
                index.saw(slot, layer, places, q[at.to(q.device)])

        return view

    def _in_every_head(self, kept: KeepList) -> torch.Tensor:
        mask = torch.from_numpy(kept.keep).to(self.decoder.device)
        return mask[:, None, :].expand(-1, self.decoder.config.num_kv_heads, -1).contiguous()

    # After it

    def _for_the_record(self, batch: Batch, rows: IntArray, output: ForwardOutput) -> dict[str, np.ndarray]:
        """Measurements no controller reads, outside the step's time."""
        extra: dict[str, np.ndarray] = {}
        if self.on_logits is not None and rows.size:
            self.on_logits(batch.request_id[rows], batch.token_index[rows], output.logits)
        if self.calibration_temperatures and rows.size:
            shape = (batch.slot.shape[0], len(self.calibration_temperatures))
            entropy, varentropy = np.full(shape, np.nan), np.full(shape, np.nan)
            for column, t in enumerate(self.calibration_temperatures):
                at = self.sampler.at_temperature(output.logits, t)
                entropy[rows, column] = at.entropy_nats.numpy(force=True)
                varentropy[rows, column] = at.varentropy_nats2.numpy(force=True)
            extra |= {"entropy_at_temperature": entropy, "varentropy_at_temperature": varentropy}
        if output.mass_by_head is not None:
            by_head = output.mass_by_head.numpy(force=True).swapaxes(0, 1)
            full = np.full((batch.slot.shape[0], *by_head.shape[1:]), np.nan)
            full[np.flatnonzero(batch.num_tokens == 1)] = by_head
            extra["block_mass_by_head"] = full
        return extra

    def _mass(
        self, batch: Batch, decode: IntArray, table: np.ndarray, output: ForwardOutput, kept: KeepList | None
    ) -> tuple[FloatArray | None, FloatArray]:
        """Block masses of decode rows, and the mass that was not read (NaN where blocks were evicted earlier)."""
        n = batch.slot.shape[0]
        dropped = np.where(batch.samples, 0.0, np.nan)
        if kept is not None:
            measured = output.dropped_mass
            dropped[decode] = np.nan if measured is None else measured.numpy(force=True)
            inside = np.arange(table.shape[1]) < batch.num_blocks[decode][:, None]
            dropped[decode[(inside & (table[decode] < 0)).any(axis=1)]] = np.nan
            less = kept.keep.sum(axis=1) < batch.num_blocks[decode]
            self.pruned[batch.request_id[decode[less]]] = True
        if output.mass is None or not self.measure_mass:
            return None, dropped
        mass = output.mass.numpy(force=True).astype(np.float64)
        inside = np.arange(mass.shape[1]) < batch.num_blocks[decode][:, None]
        full = np.full((n, mass.shape[1]), np.nan)
        full[decode] = np.where(inside if kept is None else kept.keep, mass, np.nan)
        return full, dropped

    def _evictions(self, batch: Batch, decode: IntArray, kept: KeepList | None) -> np.ndarray | None:
        if kept is None or not kept.evict.any():
            return None
        self._evicted_score[batch.slot[decode]] += kept.evicted_score
        evicted = np.zeros((batch.slot.shape[0], kept.evict.shape[1]), np.bool_)
        evicted[decode] = kept.evict
        return evicted

    def _take_tokens(self, batch: Batch, rows: IntArray, token_id: IntArray) -> np.ndarray:
        """Append what was drawn; True where the request ends by it (a row without a distribution ends as well)."""
        ended = np.zeros(batch.slot.shape[0], np.bool_)
        if rows.size == 0:
            return ended
        drawn, slot = token_id[rows], batch.slot[rows]
        place = batch.start[rows] + batch.num_tokens[rows]
        self._grow(0, int(place.max()) + 1)
        self._tokens[slot, place] = np.maximum(drawn, 0)
        stopped = np.isin(drawn, self.stop_ids)
        ended[rows] = stopped | (drawn < 0)
        for row, token, stop in zip(rows.tolist(), drawn.tolist(), stopped.tolist(), strict=True):
            request = int(batch.request_id[row])
            self.outputs[request].append(token)
            if stop or token < 0:
                self.finish_reasons[request] = "stop" if stop else "no distribution"
            if self.on_token is not None:
                self.on_token(request, int(batch.token_index[row]), token)
        return ended

    # Accounts

    def _kv_tokens(self, batch: Batch, decode: IntArray, output: ForwardOutput) -> tuple[float, float]:
        """KV tokens read and those of a dense pass, mean over layers (a window reads no more than its width)."""
        context = (batch.start + batch.num_tokens).astype(np.float64)
        windows = self.decoder.config.windows
        seen = np.mean(
            [context if w is None else np.minimum(context, w + batch.num_tokens - 1) for w in windows], axis=0
        )
        dense = float(seen.sum())
        if output.read_tokens is None:
            return dense, dense
        read = np.minimum(output.read_tokens.numpy(force=True), seen[decode])
        return dense - float(seen[decode].sum()) + float(read.sum()), dense

    def _flops(self, batch: Batch, num_sampled: int) -> float:
        """Two per weight and token (the output layer only where a token is drawn), four per head, key and element."""
        config = self.decoder.config
        output_layer = config.vocab_size * config.hidden_size
        layers = 2.0 * (config.num_parameters() - output_layer) * float(batch.num_tokens.sum())
        pairs = float((batch.num_tokens * (batch.start + 0.5 * (batch.num_tokens + 1))).sum())
        attention = 4.0 * config.num_layers * config.num_heads * config.head_dim * pairs
        return layers + 2.0 * output_layer * num_sampled + attention
