"""The plant of masked-diffusion decoding: predict, ask the policy, reveal, until nothing is masked.

    tokens --predictor--> marginals --statistics--> observation --policy--> action --reveal_prefix--> positions --draw--> tokens

It is a `Plant` like any other: `workbench.loop.close_loop` drives it, a temperature law may steer what is drawn. Each row
is a request of its own; rows end on their own and cost nothing afterwards.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from kernels.selection_numpy import reveal_prefix
from workbench.errors import InputError
from workbench.loop import close_loop
from workbench.protocols import (
    Action,
    Controller,
    DecisionPoint,
    Observation,
    RevealAction,
    RevealObservation,
    SamplingAction,
    TemperatureObservation,
)
from workbench.signals import BoolArray, FloatArray, IntArray
from workbench.unmasking.ledger import Batch, Ledger
from workbench.unmasking.orders import check_orders, random_ranks
from workbench.unmasking.predictor import Marginals, MaskedPredictor
from workbench.unmasking.statistics import divergence, position_statistics
from workbench.unmasking.token_draw import draw_by_law, draw_plain


class UnmaskPlant:
    """Decodes `tokens` [rows, length], -1 where masked.

    truth       reveal these tokens instead of drawing (the true path of the accounts)
    orders      [rows, length] ranks used in every iteration, in place of a fresh random permutation
    request_id  [rows] keys the random draws; rows that share one share orders
    select      `reveal_prefix` of another backend
    temperature the T of drawn tokens where no law steers it; 0 is the most likely token

    Raises:
        InputError: nothing to reveal in some row, shapes disagree, an order that is no permutation.
    """

    def __init__(
        self,
        predictor: MaskedPredictor,
        tokens: IntArray,
        *,
        seed: int = 0,
        truth: IntArray | None = None,
        orders: IntArray | None = None,
        request_id: IntArray | None = None,
        temperature: float = 1.0,
        steered_temperature: bool = False,
        measure_divergence: bool = False,
        on_batch: Callable[[Batch], None] | None = None,
        select: Callable[..., BoolArray] = reveal_prefix,
    ):
        self.predictor, self.seed, self.on_batch, self.select = predictor, seed, on_batch, select
        self.tokens = np.array(tokens, dtype=np.int64)
        if self.tokens.ndim != 2 or self.tokens.shape[1] < 1:
            raise InputError(f"tokens must have shape [rows, length] with length >= 1, got {self.tokens.shape}")
        self.num_slots, self.length = self.tokens.shape
        self.masked = self.tokens < 0
        done = np.flatnonzero(~self.masked.any(axis=1))
        if done.size:
            raise InputError(f"row {done[0]} has no masked position: everything is already revealed, nothing to decode")
        if self.tokens.max() >= predictor.num_symbols:
            raise InputError(f"token {self.tokens.max()} is outside the predictor's {predictor.num_symbols} symbols")
        self.truth = None if truth is None else np.asarray(truth, dtype=np.int64)
        if self.truth is not None and self.truth.shape != self.tokens.shape:
            raise InputError(f"truth must have the shape of tokens {self.tokens.shape}, got {self.truth.shape}")
        self.orders = None if orders is None else check_orders(orders, self.length)
        self.request_id = np.arange(self.num_slots) if request_id is None else np.asarray(request_id, dtype=np.int64)
        self.sampling = SamplingAction(temperature=np.full(self.num_slots, float(temperature)))
        self.steered_temperature, self.measure_divergence = steered_temperature, measure_divergence
        # T = 1 without a law is drawn directly from the marginals; the op gives the same tokens, with more statistics.
        self._plain = temperature == 1.0 and not steered_temperature
        self.iteration = -1
        self.ledger = Ledger.blank(self.num_slots, self.length)
        self._due: DecisionPoint | None = None
        self._rows = np.arange(self.num_slots)
        self._nothing = np.full(self.tokens.shape, np.nan)
        self._nothing.flags.writeable = False
        self._marginals: Marginals | None = None
        self._before: FloatArray | None = None  # [rows, length, n] marginals of the previous pass
        self._drawn = {name: np.full(self.num_slots, np.nan) for name in MEASURED}

    # Plant

    def advance(self) -> DecisionPoint | None:
        if self._due is DecisionPoint.TEMPERATURE:
            self._forward()
            self._due = DecisionPoint.REVEAL
        else:
            alive = self.masked.any(axis=1)
            if not alive.any():
                self._due = None
                return None
            self._rows = np.flatnonzero(alive)
            self.iteration += 1
            if self.steered_temperature:
                self._due = DecisionPoint.TEMPERATURE
            else:
                self._forward()
                self._due = DecisionPoint.REVEAL
        return self._due

    def observe(self, point: DecisionPoint) -> Observation:
        active = np.zeros(self.num_slots, dtype=np.bool_)
        active[self._rows] = True
        common: dict[str, Any] = {
            "step": self.iteration,
            "active": active,
            "joined": active & (self.iteration == 0),
            "request_id": np.where(active, self.request_id, -1),
            "measured_step": np.full(self.num_slots, max(self.iteration - (point is DecisionPoint.TEMPERATURE), 0)),
        }
        if point is DecisionPoint.TEMPERATURE:
            return TemperatureObservation(
                **common,
                measured=active & (self.iteration > 0),
                token_index=np.where(active, self.iteration, 0),
                **self._drawn,
            )
        return RevealObservation(
            **common,
            measured=active,
            iteration=np.where(active, self.iteration, 0),
            masked=self.masked.copy(),
            entropy_nats=self._spread(self._entropy),
            confidence=self._spread(self._confidence),
            runner_up=self._spread(self._runner_up),
            divergence_nats=self._spread(self._divergence),
            permutation_rank=self._ranks(),
        )

    def apply(self, point: DecisionPoint, action: Any) -> Action:
        if point is DecisionPoint.TEMPERATURE:
            clamped = np.clip(action.temperature, action.temperature_min, action.temperature_max)
            self.sampling = replace(action, temperature=clamped)
            return self.sampling
        self._reveal(action)
        return action

    # One iteration

    def _forward(self) -> None:
        tokens, masked = self._of_rows(self.tokens), self._of_rows(self.masked)
        self._marginals = marginals = self.predictor.predict(tokens)
        self.ledger.forwards += 1
        self._entropy, self._confidence, self._runner_up = position_statistics(marginals, masked)
        self._divergence = None
        if self.measure_divergence:
            probability = marginals.probability
            if self._before is None:
                self._before = np.full((self.num_slots, *probability.shape[1:]), np.nan)
            before = self._before[self._rows]
            seen = masked & ~np.isnan(before[..., 0])
            self._divergence = divergence(np.ascontiguousarray(probability), before, seen)
            self._before[self._rows] = np.where(masked[..., None], probability, np.nan)

    def _of_rows(self, array: Any) -> Any:
        return array if self._rows.size == self.num_slots else array[self._rows]

    def _spread(self, values: FloatArray | None) -> FloatArray:
        """Values of the active rows in an array over all slots, NaN elsewhere."""
        if values is None:
            return self._nothing
        if self._rows.size == self.num_slots:
            return values
        out = self._nothing.copy()
        out[self._rows] = values
        return out

    def _ranks(self) -> IntArray:
        if self.orders is not None:
            return self.orders
        ranks = random_ranks(self.seed, self._of_rows(self.request_id), self.iteration, self.length)
        if self._rows.size == self.num_slots:
            return ranks
        out = np.zeros(self.tokens.shape, dtype=np.int64)
        out[self._rows] = ranks
        return out

    def _reveal(self, action: RevealAction) -> None:
        rows = self._rows
        chosen = self.select(
            self._of_rows(action.rank),
            self._of_rows(action.cost),
            self._of_rows(self.masked),
            self._of_rows(action.budget),
            self._of_rows(action.include_crossing),
            self._of_rows(action.min_count),
            self._of_rows(action.max_count),
        )
        at, position = np.nonzero(chosen)
        token, surprisal = self._draw(at, position)
        if self.on_batch is not None:
            drawn = self._of_rows(self.tokens).copy()
            before = drawn.copy()
            drawn[at, position] = token
            self.on_batch(Batch(self.iteration, rows, before, chosen, self._entropy, drawn))
        again = None
        if action.remask is not None:
            again = action.remask & self._maskable & ~self.masked
        self.tokens[rows[at], position] = token
        self.masked[rows[at], position] = False
        self.ledger.enter(self.iteration, rows, at, position, self._entropy, surprisal)
        if again is not None:
            self.tokens[again] = -1
            self.masked |= again

    @property
    def _maskable(self) -> BoolArray:
        """Positions given beforehand are never masked again."""
        return self.ledger.revealed_at >= 0

    def _draw(self, at: IntArray, position: IntArray) -> tuple[IntArray, FloatArray]:
        """A token for each chosen position, and its surprisal under the distribution it was drawn from."""
        assert self._marginals is not None
        probability, law, slot = self._marginals.probability, self.sampling, self._rows[at]
        if self.truth is not None:
            token = self.truth[slot, position]
            with np.errstate(divide="ignore"):
                return token, -np.log(probability[at, position, token])
        # A position masked again must not draw the same number again.
        request, index = self.request_id[slot], position + self.length * self.iteration
        if self._plain:
            return draw_plain(probability, at, position, self.seed, request, index)
        stats = draw_by_law(probability[at, position], law, slot, self.seed, request, index)
        if self.steered_temperature:
            count = np.maximum(np.bincount(at, minlength=self._rows.size), 1)
            for name in MEASURED:
                mean = np.bincount(at, weights=getattr(stats, name), minlength=self._rows.size) / count
                self._drawn[name] = self._drawn[name].copy()
                self._drawn[name][self._rows] = mean
        return stats.token_id, stats.surprisal_nats


MEASURED = (
    "entropy_raw_nats",
    "varentropy_raw_nats2",
    "entropy_nats",
    "varentropy_nats2",
    "surprisal_nats",
    "temperature_applied",
)


class _NoRecord:
    def decision(self, observation: Observation, action: Action, applied: Action) -> None:
        pass


def decode(
    plant: UnmaskPlant,
    policy: Controller[RevealObservation, Any, RevealAction],
    temperature: Controller[TemperatureObservation, Any, SamplingAction] | None = None,
    recorder: Any = None,
) -> UnmaskPlant:
    """Run the closed loop until every row is revealed; returns the plant."""
    controllers: Mapping[DecisionPoint, Any] = {DecisionPoint.REVEAL: policy}
    if temperature is not None:
        controllers = {DecisionPoint.TEMPERATURE: temperature, **controllers}
    close_loop(plant, controllers, recorder or _NoRecord())
    return plant
