"""All texts under all policies, a text at a time, each kept in a Parquet file of its own: a study stops and resumes there."""

import hashlib
import io
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl

from workbench.errors import InputError
from workbench.live.sequence_sketch import fit_positions
from workbench.live.session import LiveModel
from workbench.pruning.arms import CERTIFIED_BUDGETS, OUTPUT_BUDGETS, POLICIES, arms
from workbench.pruning.curve import certificate_curve
from workbench.pruning.decode import WARMUP_TOKENS, decode
from workbench.pruning.key_rules import KeyRules
from workbench.pruning.predictors import predictor_errors
from workbench.pruning.prefix import BLOCK_SIZE, dense_queries, prefill
from workbench.pruning.texts import KINDS, Text, make_text
from workbench.record import write_atomically
from workbench.strict_json import strict_json

FORMAT = 2  # raise when what is measured changes
TABLES = ("steps", "certificates", "curve", "predictors", "positions")


@dataclass(frozen=True)
class Settings:
    """What decides the numbers; a text's files are keyed by it."""

    contexts: tuple[int, ...] = (4096, 8192)
    kinds: tuple[str, ...] = KINDS
    texts_per_kind: int = 2
    targets: tuple[float, ...] = (0.5, 0.25)
    tail_tokens: int = 32
    seed: int = 0
    model: str = "smollm2"
    only: tuple[str, ...] = ()
    curves: bool = True  # the certificate's curve and the predictors' errors as well

    def check(self, model_context: int) -> None:
        """Raises `InputError` naming the range."""
        for context in self.contexts:
            if not 512 <= context <= model_context:
                raise InputError(f"--context must be in [512, {model_context}] tokens for this model, got {context}")
            if not 1 <= self.tail_tokens <= context // 4:
                raise InputError(
                    f"--tail must be in [1, context / 4] = [1, {context // 4}] tokens, got {self.tail_tokens}"
                )
        if not self.contexts or not self.kinds or self.texts_per_kind < 1:
            raise InputError("a study needs a context, a text kind and at least one text a kind")

    def key(self, kind: str, context: int, seed: int) -> str:
        about = {**asdict(self), "contexts": context, "kinds": kind, "texts_per_kind": seed, "format": FORMAT}
        return hashlib.sha256(strict_json(about).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Place:
    """One text of the study, and where its results lie."""

    kind: str
    context: int
    seed: int
    folder: Path

    @property
    def done(self) -> bool:
        return (self.folder / "done.json").is_file()


def places(settings: Settings, directory: Path) -> list[Place]:
    """Short contexts first, kinds taking turns."""
    found = []
    for context in sorted(settings.contexts):
        for number in range(settings.texts_per_kind):
            for kind in settings.kinds:
                seed = settings.seed + number
                name = f"{kind}-{context}-{seed}-{settings.key(kind, context, seed)}"
                found.append(Place(kind, context, seed, directory / "texts" / name))
    return found


def run_study(
    settings: Settings,
    directory: Path,
    tasks_dir: Path | None,
    progress: Callable[[float], None],
    load: Callable[[str], LiveModel],
    stop_after_s: float | None = None,
) -> dict[str, pl.DataFrame]:
    """Compute what is missing; returns the tables of all texts that are done. Raises `InputError`."""
    todo = places(settings, directory)
    missing = [place for place in todo if not place.done]
    began_s = time.monotonic()
    if missing:
        model = load("fp32")
        settings.check(model.config.max_context_tokens)
        if model.tokenizer is None:
            raise InputError("workbench prune needs a model with a tokenizer")
        share = 1.0 / len(todo)
        for number, place in enumerate(missing, start=len(todo) - len(missing)):
            if stop_after_s is not None and time.monotonic() - began_s > stop_after_s:
                break
            text = make_text(
                place.kind, place.seed, place.context, settings.tail_tokens, model.tokenizer.encode, tasks_dir
            )
            tables = study_text(
                model, text, place.context, settings, lambda done, n=number: progress((n + done) * share)
            )
            _write(place, tables)
    return {name: _read(name, [p for p in todo if p.done]) for name in TABLES}


def study_text(
    model: LiveModel, text: Text, context: int, settings: Settings, progress: Callable[[float], None]
) -> dict[str, pl.DataFrame]:
    """One text: dense prefix, dense queries, sketches, certificate curve, predictors, and the continuation under all arms."""
    decoder = model.decoder
    num_prefix = len(text.ids) - text.num_tail
    rng = np.random.default_rng([settings.seed, text.seed, context])
    sure = len(CERTIFIED_BUDGETS) + len(OUTPUT_BUDGETS)
    # Rows of blocks for what each arm writes: as many as arms can be, and what the tail needs.
    most_arms = 1 + sure + len(POLICIES) * len(settings.targets)
    spare = most_arms * (-(-(text.num_tail + BLOCK_SIZE) // BLOCK_SIZE) + 1)
    prefix = prefill(decoder, text.ids, num_prefix, spare, lambda share: progress(0.35 * share), unsummed=WARMUP_TOKENS)
    fit = dense_queries(prefix, fit_positions(num_prefix))
    warmup = fit.last(WARMUP_TOKENS)
    rules = KeyRules(prefix, fit)
    progress(0.45)
    head = {"kind": text.kind, "context": context, "seed": text.seed}
    curve = certificate_curve(rules, rng) if settings.curves else []
    progress(0.6)
    uncovered = -(-num_prefix // BLOCK_SIZE) - rules.covered + 1
    every = arms(settings.targets, warmup, decoder.config.head_dim, uncovered, settings.only)
    decoded = decode(prefix, warmup, every, rules, lambda share: progress(0.6 + 0.4 * share))
    steps, num_arms = decoded.kl_nats.shape
    position = np.arange(num_prefix, num_prefix + steps) + 1  # of the token that is judged
    asked = np.zeros(steps, np.int64)
    for number, (first, end) in enumerate(text.answers, start=1):
        asked[(position >= first) & (position < end)] = number
    columns = {
        "arm": np.tile([arm.name for arm in every], steps),
        "target_frac": np.tile([np.nan if arm.target_frac is None else arm.target_frac for arm in every], steps),
        "position": np.repeat(position, num_arms),
        "answer": np.repeat(asked, num_arms),
    }
    for name in ("kl_nats", "nll_nats", "entropy_nats", "right", "blocks_frac", "sketch_frac", "dropped_mass"):
        columns[name] = getattr(decoded, name).ravel()
    nll = prefix.surprisal_nats
    edges = np.linspace(0, nll.size, 9).astype(int)
    positions = {
        "first_token": prefix.judged[edges[:-1]],
        "nll_nats": [float(nll[a:b].mean()) for a, b in pairwise(edges)],
    }
    tables = {
        "steps": pl.DataFrame(columns),
        "certificates": pl.DataFrame(_certificate_rows(every, decoded.touched)),
        "curve": pl.DataFrame(curve),
        "predictors": pl.DataFrame(predictor_errors(rules, warmup) if settings.curves else []),
        "positions": pl.DataFrame(positions),
    }
    return {
        name: table.with_columns(**{key: pl.lit(value) for key, value in head.items()}) if table.width else table
        for name, table in tables.items()
    }


def _certificate_rows(every: Sequence, touched: Sequence) -> list[dict[str, object]]:
    """A row for each certified arm and layer: sums over steps and heads."""
    rows = []
    for r, arm in enumerate(every):
        told = [step[r] for step in touched if step[r] is not None]
        if not told:
            continue
        bound, dropped, output_bound, change, norm = (
            np.stack([getattr(t, name) for t in told])
            for name in ("bound", "dropped", "output_bound", "output_change", "output_norm")
        )  # [steps, layers, kv_heads, group]
        vacuous, share = np.stack([t.vacuous for t in told]), np.stack([t.bytes_frac for t in told])
        lies = (dropped > bound * (1.0 + 1e-6) + 1e-9) | (change > output_bound * (1.0 + 1e-6) + 1e-6 * norm)
        for layer in range(bound.shape[1]):
            rows.append(
                {
                    "arm": arm.name, "layer": layer, "num_claims": int(lies[:, layer].size),
                    "violations": int(lies[:, layer].sum()), "vacuous_frac": float(vacuous[:, layer].mean()),
                    "bytes_frac": float(share[:, layer].mean()), "bound_mean": float(bound[:, layer].mean()),
                    "dropped_mean": float(dropped[:, layer].mean()), "dropped_max": float(dropped[:, layer].max()),
                    "output_bound_mean": float(output_bound[:, layer].mean()),
                    "output_change_mean": float(change[:, layer].mean()), "output_norm_mean": float(norm[:, layer].mean()),
                }
            )  # fmt: skip
    return rows


def _write(place: Place, tables: dict[str, pl.DataFrame]) -> None:
    """Tables, then the mark that they are whole."""
    try:
        place.folder.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            buffer = io.BytesIO()
            table.write_parquet(buffer, compression="zstd")
            write_atomically(place.folder / f"{name}.parquet", buffer.getvalue())
        write_atomically(place.folder / "done.json", strict_json({"format": FORMAT, "tables": list(tables)}).encode())
    except OSError as error:
        raise InputError(f"cannot write {place.folder}: {error.strerror or error}; choose another --out") from None


def _read(name: str, done: Sequence[Place]) -> pl.DataFrame:
    tables = [pl.read_parquet(place.folder / f"{name}.parquet") for place in done]
    tables = [table for table in tables if table.width]
    return pl.concat(tables, how="diagonal_relaxed") if tables else pl.DataFrame()
