"""Decoding masked antibody sequences with a real model: recovery, pseudo-perplexity, forward passes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workbench.errors import InputError
from workbench.signals import BoolArray, FloatArray, IntArray
from workbench.unmasking.accounts import Policy
from workbench.unmasking.antibodies import CHAINS
from workbench.unmasking.charts import order_heat_map, reveal_animation
from workbench.unmasking.estimate import Estimate, estimate
from workbench.unmasking.ledger import Batch
from workbench.unmasking.plant import UnmaskPlant, decode
from workbench.unmasking.policies import NamedPolicy
from workbench.unmasking.remembered import Remembered
from workbench.unmasking.run_record import RunRecord
from workbench.unmasking.study import Study

Tell = Callable[[float], None]
SCORED_POSITIONS = 16  # of a sequence, where the pseudo-perplexity is taken on a sample of positions


@dataclass(frozen=True)
class ProteinSetting:
    model: str
    policy: NamedPolicy
    masked: float
    temperature: float
    repeats: int  # maskings of each sequence
    seed: int


@dataclass(frozen=True)
class Decoded:
    """Every masking of every sequence of one chain under one policy."""

    names: tuple[str, ...]
    iterations: FloatArray  # [rows]
    recovery: FloatArray  # [rows] share of masked positions decoded to the true residue
    pseudo_nll_nats: FloatArray  # [rows] of the decoded sequence under the same model
    entropy_first_nats: FloatArray  # [rows] mean marginal entropy of the masked positions at the first pass
    revealed_at: tuple[IntArray, ...]
    tokens: tuple[IntArray, ...]


def masks(length: int, share: float, seed: int, which: int) -> BoolArray:
    """A random set of round(share x length) positions (at least one), the same for every policy and model."""
    rng = np.random.default_rng([seed, which, length])
    chosen = np.zeros(length, dtype=np.bool_)
    chosen[rng.permutation(length)[: max(1, round(share * length))]] = True
    return chosen


class ProteinBench:
    """One loaded model with its sequences. Raises InputError for an unknown model or chain.

    remember: keep passes and scores, for decoding the same sequences under many policies.
    """

    def __init__(self, model: str, backend: str = "torch", *, remember: bool = False):
        from workbench.live.masked_model import MaskedModel
        from workbench.unmasking.model_predictor import ModelPredictor

        name, _, chain = model.partition(":")
        self.name = model
        self.model = MaskedModel.load(name, backend)
        own = {"sapiens-heavy": "heavy", "sapiens-light": "light"}.get(name)
        if chain and (chain not in CHAINS or own not in (None, chain)):
            raise InputError(f"model {model!r}: chain must be {own or 'heavy or light'}, got {chain!r}")
        self.chain = chain or own or "heavy"
        self.predictor = ModelPredictor(self.model, backend)
        self.sequences = {n: self.model.encode(s) for n, s in CHAINS[self.chain].items()}
        self.remembered = Remembered(self.predictor) if remember else None
        self._scored: dict[bytes, float] = {}

    def decode(
        self,
        policy: Policy,
        share: float,
        *,
        temperature: float = 0.0,
        sequences: Sequence[str] | None = None,
        maskings: int = 1,
        seed: int = 0,
        scored: int = SCORED_POSITIONS,
        on_batch: Callable[[Batch], None] | None = None,
        record: tuple[NamedPolicy, Path] | None = None,
        tell: Tell = lambda share: None,
    ) -> Decoded:
        """Mask `share` of each sequence and decode it. `scored` 0 leaves the pseudo-perplexity out (NaN).

        sequences: names of those to decode, None for all. Fully masked, sequences of equal length are one and the same to the
        model; they share their random orders too, so that they are decoded alike and differ in their recovery only.

        record: (the policy by name, directory) writes an arm a sequence that `workbench replay` reads.
        """
        if not 0.0 < share <= 1.0:
            raise InputError(f"--masked must be in (0, 1], got {share:g}")
        if not 0.0 <= temperature < np.inf:
            raise InputError(f"--temperature must be in [0, inf), got {temperature:g}; 0 is the likeliest token")
        names: list[str] = []
        parts: dict[str, list[FloatArray]] = {"iterations": [], "recovery": [], "nll": [], "entropy": []}
        revealed, decoded = [], []
        chosen = list(self.sequences) if sequences is None else list(sequences)
        for done, name in enumerate(chosen):
            truth = self.sequences[name]
            index = list(self.sequences).index(name)
            stream = self._first_of_length(truth.size) if share == 1.0 else index
            masked = np.stack([masks(truth.size, share, seed + 1000 * m, index) for m in range(maskings)])
            first = np.zeros(maskings)

            recorder = None if record is None else RunRecord(record[0], seed, f"{self.name} {name}")

            def look(batch: Batch, first: FloatArray = first, recorder: RunRecord | None = recorder) -> None:
                if batch.iteration == 0:
                    first[batch.rows] = np.nanmean(batch.entropy_nats, axis=1)
                for listener in (on_batch, recorder and recorder.on_batch):
                    if listener is not None:
                        listener(batch)

            plant = UnmaskPlant(
                self.remembered or self.predictor,
                np.where(masked, -1, truth),
                seed=seed,
                request_id=np.arange(maskings) + 1000 * stream,
                temperature=temperature,
                measure_divergence=getattr(policy, "needs_divergence", False),
                on_batch=look,
                select=self.predictor.select,
            )
            given = plant.tokens.copy()
            ledger = decode(plant, policy, recorder=recorder).ledger
            hits = (plant.tokens == truth) & masked
            names += [name] * maskings
            parts["iterations"].append(ledger.iterations.astype(float))
            parts["recovery"].append(hits.sum(axis=1) / masked.sum(axis=1))
            parts["nll"].append(self._pseudo_nll(plant.tokens, scored) if scored else np.full(maskings, np.nan))
            parts["entropy"].append(first)
            if recorder is not None and record is not None:
                columns = {
                    "given_text": [self.model.decode(row) for row in given],
                    "output_text": [self.model.decode(row) for row in plant.tokens],
                    "recovery": parts["recovery"][-1],
                    "pseudo_nll_nats": parts["nll"][-1],
                }
                about = {"name": self.name, "chain": self.chain, "backend": self.predictor.ops.implementation}
                recorder.finish(record[1] / name, plant, about, columns)
            revealed += list(ledger.revealed_at)
            decoded += list(plant.tokens)
            tell((done + 1) / len(chosen))
        joined = {key: np.concatenate(values) for key, values in parts.items()}
        return Decoded(
            tuple(names), joined["iterations"], joined["recovery"], joined["nll"], joined["entropy"], tuple(revealed),
            tuple(decoded),
        )  # fmt: skip

    def _first_of_length(self, length: int) -> int:
        return next(index for index, truth in enumerate(self.sequences.values()) if truth.size == length)

    def _pseudo_nll(self, tokens: IntArray, scored: int) -> FloatArray:
        """[rows] on `scored` positions spread over the sequence; what is remembered is not computed again."""
        from workbench.unmasking.model_predictor import pseudo_nll

        positions = np.linspace(0, tokens.shape[1] - 1, min(scored, tokens.shape[1])).round().astype(np.int64)
        keys = [row.tobytes() for row in tokens]
        new = [index for index, key in enumerate(keys) if key not in self._scored]
        known = dict(self._scored)
        if new:
            found = pseudo_nll(self.model, tokens[new], positions)
            known |= {keys[index]: float(value) for index, value in zip(new, found, strict=True)}
        if self.remembered is not None:
            self._scored = known
        return np.array([known[key] for key in keys])


def per_sequence(names: tuple[str, ...], values: FloatArray) -> Estimate:
    """Mean with the interval over sequences: maskings of one sequence are not independent of each other."""
    order = sorted(set(names))
    means = np.array([values[np.array(names) == name].mean() for name in order])
    return estimate(means)


def perplexity(names: tuple[str, ...], nll_nats: FloatArray) -> float:
    return float(np.exp(per_sequence(names, nll_nats).mean))


def protein_study(
    setting: ProteinSetting, command: str, tell: Tell, record_dir: Path | None = None
) -> tuple[Study, dict[str, tuple[str, bytes]]]:
    """One model, one policy, one share of masked positions: a row a sequence, the order, an animation.

    record_dir: where the record of every decision goes, for `workbench replay`.
    """
    bench = ProteinBench(setting.model)
    frames: list[tuple[FloatArray, IntArray]] = []

    def keep(batch: Batch) -> None:
        if batch.iteration == 0 and frames:
            frames.append((np.full_like(batch.entropy_nats[0], np.nan), np.zeros(0, dtype=np.int64)))  # next sequence
        if batch.rows[0] == 0:
            frames.append((batch.entropy_nats[0].copy(), batch.revealed[0].astype(np.int64)))

    tell(0.05)
    found = bench.decode(
        setting.policy.policy,
        setting.masked,
        temperature=setting.temperature,
        maskings=setting.repeats,
        seed=setting.seed,
        on_batch=keep,
        record=None if record_dir is None else (setting.policy, record_dir),
        tell=tell,
    )
    study = Study(
        name=f"{setting.model}-{setting.policy.label}",
        title=f"{setting.policy.label} on {setting.model}, {setting.masked:.0%} masked",
        intro=(
            f"{bench.chain.capitalize()} variable domains of {len(bench.sequences)} antibodies, {setting.repeats} maskings each, "
            f"T = {setting.temperature:g}. Pseudo-perplexity on {SCORED_POSITIONS} positions of the decoded sequence, each "
            "masked alone. Passes are forward passes a sequence."
        ),
        command=command,
        columns=("sequence", "masked", "passes", "recovery", "pseudo-perplexity", "first entropy, nats"),
    )
    names = np.array(found.names)
    for name, truth in bench.sequences.items():
        mine = names == name
        study.rows.append(
            (
                name, max(1, round(setting.masked * truth.size)), estimate(found.iterations[mine]),
                estimate(found.recovery[mine]), float(np.exp(found.pseudo_nll_nats[mine].mean())),
                float(found.entropy_first_nats[mine].mean()),
            )
        )  # fmt: skip
    recovery = per_sequence(found.names, found.recovery)
    passes = per_sequence(found.names, found.iterations)
    complete = all(np.all(tokens >= 0) for tokens in found.tokens)
    study.state("every sequence is fully revealed, at its own length, in at most one pass a masked position", complete)
    study.figures = {
        "recovery": recovery.mean,
        "recovery_half_width": recovery.half_width,
        "iterations": passes.mean,
        "pseudo_perplexity": perplexity(found.names, found.pseudo_nll_nats),
        "entropy_nats": float(found.entropy_first_nats.mean()),
        "kl_nats": None,
        "bound_kl_nats": None,
        "bound_iterations": None,
    }
    study.notes.append(
        "A real model has no known joint: divergence and bounds are null; recovery and likelihood stand in."
    )
    first = next((k for k, (_, now) in enumerate(frames) if now.size == 0), len(frames))
    longest = max(array.size for array in found.revealed_at)
    order = np.full((min(len(found.revealed_at), 24), longest), -1, dtype=np.int64)
    for row in range(order.shape[0]):
        order[row, : found.revealed_at[row].size] = found.revealed_at[row]
    pictures = {
        "order.png": ("Order of revealing", order_heat_map(order, f"{setting.policy.label} on {setting.model}")),
        "run.gif": (
            "One run: blue masked (darker: more uncertain), orange revealed now",
            reveal_animation(frames[:first]),
        ),
    }
    return study, pictures
