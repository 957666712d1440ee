"""The simulated executor: what a step would take and measure, without a model.

Time, energy and bytes come from a `StepCost`, entropies and tokens from an `EntropyProcess`, attention masses from a
`MassProcess`. A pruned row reads fewer KV tokens, so it is faster; the mass it does not read moves its next latent level
(`KindLaw.pruning_feedback`). No Python loop runs over sequences.
"""

from typing import Any

import numpy as np

from sims.attend import attend, attend_densely
from sims.entropy_process import END_SLOPE, EntropyProcess, LawTable
from sims.mass_process import MassLaw, MassProcess, MassState, forget_slot, mass_law, new_mass_state
from sims.step_cost import StepCost, step_totals
from sims.token_draws import ProcessState, draw_tokens, new_draws, new_state
from workbench.engine.executor import Batch, StepResult
from workbench.engine.step_time import StepTime
from workbench.errors import InputError
from workbench.protocols import KeepAction, KeepRule, SamplingAction
from workbench.signals import BoolArray, FloatArray, IntArray

NOTHING_EVICTED = np.zeros((0, 0), np.bool_)
SEED_RANGE = 2**63  # compiled code takes the seed as int64


class SimExecutor:
    """An `Executor`. `temperature` holds where no controller acts; `slowdown` > 1 is a GPU that runs slower (faults)."""

    def __init__(
        self,
        step_cost: StepCost,
        process: EntropyProcess,
        kind_names: tuple[str, ...],
        *,
        seed: int = 0,
        mass: MassProcess | None = None,
        temperature: float = 1.0,
        draw_ends: bool = False,
    ) -> None:
        """`mass`: None leaves block masses unmeasured; every block is then read.

        draw_ends: output lengths of the requests are caps, and tokens end them by the process's hazard.
        """
        if not 0 <= seed < SEED_RANGE:
            raise InputError(f"seed must be in [0, 2^63), got {seed}")
        if not 0.0 <= temperature < np.inf:
            raise InputError(f"temperature must be in [0, inf), got {temperature}; 0 is greedy")
        self.step_cost, self.process, self.mass = step_cost, process, mass
        self.vocab_size, self.seed = process.vocab, seed
        self.slowdown = 1.0
        self._default_temperature = temperature
        self._rates = step_cost.rates
        self.step_time = StepTime()  # what this engine knows of its cost, learned as a real one learns it
        self._law = process.table_for(kind_names)
        if not draw_ends:
            self._law.numbers[:, END_SLOPE] = np.nan
        self._grow(64, 16)

    def _grow(self, num_slots: int, width: int) -> None:
        """Room for more slots or blocks; what is there stays."""
        tokens, masses = new_state(num_slots), new_mass_state(num_slots, width if self.mass else 0)
        if hasattr(self, "_tokens"):
            _copy_into(tokens, self._tokens)
            _copy_into(masses, self._masses)
        self._tokens: ProcessState = tokens
        self._masses: MassState = masses
        self._mass_law = mass_law(self.mass or MassProcess(), masses.mass.shape[1])
        self._temperature = np.full(num_slots, self._default_temperature)
        self._off = np.full(num_slots, np.nan)

    # What the model believes about each text, so that another replica can go on with it

    def texts(self) -> ProcessState:
        """A copy of the entropy process's state."""
        return ProcessState(self._tokens.values.copy(), self._tokens.counts.copy())

    def go_on_with(self, slot: int, text: tuple[FloatArray, IntArray]) -> None:
        """The slot's text is one that was begun elsewhere: its column of `texts` there."""
        self._tokens.values[:, slot], self._tokens.counts[:, slot] = text

    # What compiled runs read (`sims.leap`, `sims.controlled_leap`)

    def make_room(self, num_slots: int, num_blocks: int) -> None:
        slots, width = self._tokens.values.shape[1], self._masses.mass.shape[1]
        if num_slots > slots or (self.mass is not None and num_blocks > width):
            self._grow(max(num_slots, slots), max(num_blocks, width))

    @property
    def law(self) -> LawTable:
        return self._law

    @property
    def token_state(self) -> ProcessState:
        return self._tokens

    @property
    def mass_state(self) -> MassState:
        return self._masses

    @property
    def mass_law(self) -> MassLaw:
        return self._mass_law

    @property
    def slot_temperature(self) -> FloatArray:
        return self._temperature

    # The Executor protocol

    def admit(self, request_id: int, slot: int) -> None:
        slots, width = self._tokens.values.shape[1], self._masses.mass.shape[1]
        if slot >= slots:
            self._grow(max(slot + 1, 2 * slots), width)
        self._tokens.begin(slot)
        forget_slot(self._masses, slot)

    def release(self, request_id: int, slot: int) -> None:
        pass

    def lose_kv(self, slot: int) -> None:
        forget_slot(self._masses, slot)

    def marginal_step_s(self, start: IntArray, num_tokens: IntArray) -> FloatArray:
        return self.step_time.marginal_s(start, num_tokens)

    def execute(self, batch: Batch, sampling: SamplingAction | None, keep: KeepAction | None) -> StepResult:
        rows = batch.slot.shape[0]
        kv_read, dropped = np.full(rows, -1.0), np.zeros(rows)
        masses = told = evicted = None
        if self.mass is not None:
            masses, told, evicted = self._attend(batch, keep, kv_read, dropped)
        draws = new_draws(rows)
        draw_tokens(
            self._law, self.vocab_size, self._tokens, self.seed, batch.slot, batch.request_id, batch.token_index,
            batch.kind, batch.samples, dropped, *self._sampling(sampling), draws,
        )  # fmt: skip
        h_raw, v_raw, h, v, surprisal, surprisal_raw, applied = draws.measured
        elapsed_s, energy_j, flops, kv_bytes_read, kv_bytes_dense = step_totals(
            self._rates, batch.start, batch.num_tokens, batch.samples, kv_read
        )
        slowdown = self.slowdown * self.step_cost.slowed(self.seed, batch.step)
        if self.mass is not None and self.step_cost.mass_s and np.any(batch.samples & (batch.num_tokens == 1)):
            elapsed_s += self.step_cost.mass_s
        if slowdown != 1.0:
            energy_j += (slowdown - 1.0) * elapsed_s * self.step_cost.power_idle_w
            elapsed_s *= slowdown
        kv_tokens = kv_bytes_read / max(self._rates.kv_bytes_per_token, 1.0)
        self.step_time.add(int(batch.num_tokens.sum()), kv_tokens, elapsed_s)
        if batch.copy_s:
            energy_j += batch.copy_s * self.step_cost.power_idle_w
            elapsed_s += batch.copy_s
        return StepResult(
            elapsed_s=elapsed_s,
            energy_j=energy_j,
            flops=flops,
            kv_bytes_read=kv_bytes_read,
            kv_bytes_dense=kv_bytes_dense,
            token_id=draws.token_id,
            ended=draws.ended,
            entropy_raw_nats=h_raw,
            varentropy_raw_nats2=v_raw,
            entropy_nats=h,
            varentropy_nats2=v,
            surprisal_nats=surprisal,
            surprisal_raw_nats=surprisal_raw,
            temperature_applied=applied,
            block_mass=masses,
            told=told,
            dropped_mass=np.where(batch.samples, dropped, np.nan),
            evicted=evicted,
        )

    def _sampling(self, action: SamplingAction | None) -> tuple[Any, ...]:
        off = self._off
        if action is None:
            return self._temperature, off, off, off, off, 0.0, np.inf
        return (
            action.temperature,
            off if action.target_entropy_nats is None else action.target_entropy_nats,
            off if action.min_p is None else action.min_p,
            off if action.top_h is None else action.top_h,
            off if action.mirostat_mu_nats is None else action.mirostat_mu_nats,
            max(action.temperature_min, 0.0),
            action.temperature_max,
        )

    def _attend(
        self, batch: Batch, keep: KeepAction | None, kv_read: FloatArray, dropped: FloatArray
    ) -> tuple[FloatArray | None, BoolArray | None, BoolArray | None]:
        """(block masses, rows of them that say something new, evicted blocks)."""
        rows, blocks = batch.slot.shape[0], int(batch.num_blocks.max())
        if blocks > self._masses.mass.shape[1]:
            self._grow(self._tokens.values.shape[1], max(blocks, 2 * self._masses.mass.shape[1]))
        masses, told = np.empty((rows, blocks)), np.zeros(rows, np.bool_)
        if keep is None:
            news = attend_densely(
                self._masses, self._mass_law, self.seed, batch.slot, batch.request_id, batch.start, batch.num_tokens,
                batch.samples, batch.num_blocks, masses, told,
            )  # fmt: skip
            return (masses, told, None) if news else (None, None, None)
        if keep.score.shape[1] < blocks:
            raise InputError(f"KeepAction.score must cover {blocks} blocks, got {keep.score.shape[1]}")
        evicted = np.zeros((rows, blocks), np.bool_) if keep.evict.any() else NOTHING_EVICTED
        news, highest = attend(
            self._masses, self._mass_law, self.seed, batch.slot, batch.request_id, batch.start, batch.num_tokens,
            batch.samples, batch.num_blocks, batch.block_size, keep.rule, keep.mass_budget, keep.block_budget_frac,
            keep.sink_blocks, keep.recent_blocks, keep.score, keep.evict, masses, told, kv_read, dropped, evicted,
        )  # fmt: skip
        if highest > KeepRule.WINDOW:
            raise InputError(
                f"keep rule {KeepRule(highest).name} reads keys, which the simulator does not have; "
                "replay a recorded tape instead"
            )
        return masses if news else None, told if news else None, evicted if evicted.size else None


def _copy_into(new: Any, old: Any) -> None:
    for fresh, stale in zip(new, old, strict=True):
        fresh[tuple(slice(0, size) for size in stale.shape)] = stale
