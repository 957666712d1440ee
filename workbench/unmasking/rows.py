"""The masked-diffusion requests of an engine: an `UnmaskPlant` of one row each, shown to the engine by slot.

Reveals, draws and random orders are those of `UnmaskPlant`, keyed by request: a request decodes alike in the engine and
alone, whatever its slot, the batch or the scheduler.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any

import numpy as np

from kernels.philox import uniform
from sims.oracles.names import OracleRequest, build_oracle
from workbench.catalog import CATALOG
from workbench.engine.requests import RequestSpec
from workbench.protocols import DecisionPoint, RevealAction, RevealObservation, blank_like
from workbench.scenario import Diffusion
from workbench.signals import BoolArray, IntArray
from workbench.unmasking.ledger import Ledger
from workbench.unmasking.plant import UnmaskPlant
from workbench.unmasking.predictor import MaskedPredictor, OraclePredictor

KIND = "diffusion"  # of such requests in a run's record
KIND_STREAM = 14  # of the run's counter-based generator
WIDE = ("masked", "entropy_nats", "confidence", "runner_up", "divergence_nats", "permutation_rank")


class MaskedRows:
    """`DiffusionRows` of `workbench.engine.diffusion`.

    is_diffusion  [num_requests]
    length        [num_requests] positions to reveal
    predictor_of  request id -> the predictor of its sequence (an oracle of that length, an encoder)
    """

    def __init__(
        self,
        is_diffusion: BoolArray,
        length: IntArray,
        predictor_of: Callable[[int], MaskedPredictor],
        *,
        seed: int = 0,
        measure_divergence: bool = False,
        temperature: float = 1.0,
    ):
        self.is_diffusion, self.length, self._temperature = is_diffusion, length, temperature
        self.width = int(length[is_diffusion].max(initial=1))
        self._predictor_of, self._seed, self._measure_divergence = predictor_of, seed, measure_divergence
        self._plants: dict[int, UnmaskPlant] = {}
        self._predicted: set[int] = set()  # slots whose pass is done and not yet revealed from
        self.tokens: dict[int, IntArray] = {}  # request id -> what it was decoded to
        self.ledgers: dict[int, Ledger] = {}  # request id -> what that has spent

    def admit(self, request_id: int, slot: int) -> None:
        self._plants[slot] = UnmaskPlant(
            self._predictor_of(request_id),
            np.full((1, int(self.length[request_id])), -1),
            seed=self._seed,
            request_id=np.array([request_id]),
            measure_divergence=self._measure_divergence,
            temperature=self._temperature,
        )

    def release(self, slot: int) -> None:
        plant = self._plants.pop(slot)
        self.tokens[int(plant.request_id[0])] = plant.tokens[0]
        self.ledgers[int(plant.request_id[0])] = plant.ledger

    def forward(self, slots: IntArray) -> None:
        for slot in map(int, slots):
            if slot not in self._predicted:
                self._plants[slot].advance()
                self._predicted.add(slot)

    def measurements(self, slots: IntArray, num_slots: int) -> dict[str, Any]:
        out = blank_like(RevealObservation, num_slots, **dict.fromkeys(WIDE, self.width))
        for slot in slots:
            plant = self._plants[int(slot)]
            seen = plant.observe(RevealObservation.point)
            assert isinstance(seen, RevealObservation)
            out["iteration"][slot] = seen.iteration[0]
            for name in WIDE:
                out[name][slot, : plant.length] = getattr(seen, name)[0]
        return {name: out[name] for name in ("iteration", *WIDE)}

    def reveal(self, slots: IntArray, action: RevealAction) -> IntArray:
        counts = np.zeros(slots.size, dtype=np.int64)
        for index, slot in enumerate(slots):
            plant = self._plants[int(slot)]
            self._predicted.discard(int(slot))
            before = int(plant.masked.sum())
            plant.apply(RevealAction.point, _row(action, int(slot), plant.length))
            counts[index] = before - int(plant.masked.sum())
        return counts

    def num_masked(self, slots: IntArray) -> IntArray:
        return np.array([int(self._plants[int(slot)].masked.sum()) for slot in slots], dtype=np.int64)

    def columns(self, passes: IntArray) -> dict[str, Any]:
        """What the record says of each request: its passes, and what they spent (NaN for the other kind)."""

        def spent(name: str) -> Any:
            out = np.full(self.is_diffusion.size, np.nan)
            for request, ledger in self.ledgers.items():
                out[request] = getattr(ledger, name)[0]
            return out

        names = ("entropy_spent_nats", "excess_spent_nats")
        return {"passes": np.where(self.is_diffusion, passes, 0), **{name: spent(name) for name in names}}


def measures_divergence(table: Mapping[str, Any] | None) -> bool:
    """Whether the policy a `[controllers.reveal]` table describes reads how marginals changed since the last pass."""
    policy = None if table is None else CATALOG[DecisionPoint.REVEAL].get(str(table.get("kind")))
    return bool(getattr(policy, "needs_divergence", False))


def masked_requests(
    requests: RequestSpec, diffusion: Diffusion, seed: int, *, measure_divergence: bool = False
) -> tuple[RequestSpec, MaskedRows, str]:
    """A share of the requests made masked diffusion, drawn by (seed, request), with exact oracles for their sequences.

    Returns (requests, rows, one line on what they are). Raises `InputError` for an oracle that cannot be.
    """
    ids = np.arange(len(requests))
    chosen = uniform(seed, KIND_STREAM, ids, np.zeros_like(ids)) < diffusion.share_frac
    length = requests.output_tokens
    if diffusion.length_tokens is not None:
        length = np.where(chosen, diffusion.length_tokens, length)

    @cache
    def of_length(n: int) -> MaskedPredictor:
        wish = OracleRequest(
            length=n, entropy_nats=diffusion.entropy_nats, num_symbols=diffusion.num_symbols, seed=seed
        )
        return OraclePredictor(build_oracle(diffusion.oracle, wish))

    for n in np.unique(length[chosen]):
        of_length(int(n))
    rows = MaskedRows(
        chosen, length, lambda r: of_length(int(length[r])), seed=seed, measure_divergence=measure_divergence,
        temperature=diffusion.temperature,
    )  # fmt: skip
    made = replace(
        requests,
        output_tokens=length,
        kind=np.where(chosen, len(requests.kind_names), requests.kind),
        kind_names=(*requests.kind_names, KIND),
    )
    text = f"{int(chosen.sum())} of {len(requests)} requests are masked diffusion, oracle {diffusion.oracle}"
    return made, rows, text


def _row(action: RevealAction, slot: int, length: int) -> RevealAction:
    """What `action` says about one slot, as an action over one row of `length` positions."""
    parts: dict[str, Any] = {}
    for field in fields(action):
        value = getattr(action, field.name)
        if value is not None:
            parts[field.name] = value[slot : slot + 1, :length] if value.ndim == 2 else value[slot : slot + 1]
    return replace(action, **parts)
