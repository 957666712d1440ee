"""The recorded generations of an evaluation: a folder of small Parquet files, one per chunk of questions and strategy.

    manifest.json                            what decides the numbers (settings, model, prompts, question sets)
    <task>.<strategy>.<chunk>.parquet        one row per question, see `SCHEMA`

Chunks are fixed by position, written under a temporary name and renamed, so an interrupted evaluation resumes with the missing
chunks and gives the same table; a folder of another evaluation is refused with the setting that differs.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from workbench.errors import InputError
from workbench.protocols import Strategy

MANIFEST = "manifest.json"
SCHEMA = {
    "task": pl.String,
    "question_id": pl.String,
    "position": pl.Int64,  # in the seeded order of the task
    "strategy": pl.String,
    "answer": pl.String,
    "num_labels": pl.Int64,  # 0 for a number
    "prompt_tokens": pl.Int64,
    "output_tokens": pl.Int64,  # the end token included
    "finish_reason": pl.String,
    "text": pl.String,
    "token_ids": pl.List(pl.Int64),
    "entropy_raw_nats": pl.List(pl.Float64),  # per output token
    "surprisal_raw_nats": pl.List(pl.Float64),
    "extracted": pl.String,  # null: no answer
    "rule": pl.String,
    "correct_extraction": pl.Boolean,
    "option_nats": pl.List(pl.Float64),  # ln p of each label's scored text after the reply; empty for numbers
    "option_tokens": pl.List(pl.Int64),
    "likeliest": pl.String,  # the label with the largest ln p per token; null for numbers
    "correct_likelihood": pl.Boolean,
    "check_tokens": pl.List(pl.Int64),  # chain of thought: after how many tokens it was asked for its answer
    "check_entropy_nats": pl.List(pl.Float64),  # entropy of the next token after the cue there
    "check_likeliest": pl.List(pl.String),  # the likeliest label there; empty for numbers
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a user chooses. `max_tokens` is per strategy, in the order of `Strategy`."""

    num_questions: int = 200
    num_calibration: int = 50
    seed: int = 0
    probe_tokens: int = 64
    max_standard_tokens: int = 192
    max_direct_tokens: int = 16
    max_cot_tokens: int = 256
    temperature: float = 0.0
    chunk_questions: int = 128  # written together; the model runs at most 64 of them at once, new ones as old ones end
    check_every_tokens: int = 32  # early stop: how often a chain of thought is asked; 0: never

    def __post_init__(self) -> None:
        for name in ("num_questions", "probe_tokens", "max_direct_tokens", "max_cot_tokens", "chunk_questions"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.num_calibration < 0 or self.check_every_tokens < 0:
            raise InputError("num_calibration and check_every_tokens must be at least 0")
        if self.max_standard_tokens < self.probe_tokens:
            raise InputError(
                f"max_standard_tokens ({self.max_standard_tokens}) must be at least probe_tokens ({self.probe_tokens})"
            )
        if not 0.0 <= self.temperature < float("inf"):
            raise InputError(f"temperature must be in [0, inf), got {self.temperature}; 0 is greedy")

    def max_tokens(self, strategy: Strategy) -> int:
        return {
            Strategy.STANDARD: self.max_standard_tokens,
            Strategy.DIRECT: self.max_direct_tokens,
            Strategy.COT: self.max_cot_tokens,
        }[strategy]

    @property
    def total_questions(self) -> int:
        """Calibration questions come first in the seeded order; evaluation questions follow."""
        return self.num_calibration + self.num_questions


class GenerationRecord:
    """One folder; `open` creates it, or continues one of the same evaluation."""

    def __init__(self, directory: Path, manifest: dict[str, Any]) -> None:
        self.directory, self.manifest = directory, manifest

    @classmethod
    def open(cls, directory: Path, settings: Settings, identity: dict[str, Any]) -> "GenerationRecord":
        manifest = json.loads(json.dumps({"settings": asdict(settings), **identity}))
        path = directory / MANIFEST
        if path.is_file():
            known = read_manifest(directory)
            differing = sorted(
                f"{section}.{key}" if isinstance(value, dict) else section
                for section, value in {**known, **manifest}.items()
                for key in (
                    sorted({*(known.get(section) or {}), *(manifest.get(section) or {})})
                    if isinstance(value, dict)
                    else [""]
                )
                if _get(known, section, key) != _get(manifest, section, key)
            )
            if differing:
                raise InputError(
                    f"{directory} holds another evaluation (differs in {', '.join(differing)}); choose another --out"
                )
        else:
            try:
                directory.mkdir(parents=True, exist_ok=True)
                write_atomic(path, json.dumps(manifest, indent=1, sort_keys=True, allow_nan=False) + "\n")
            except OSError as error:
                raise InputError(f"{directory} cannot be written: {error.strerror or error}") from None
        return cls(directory, manifest)

    def chunk_path(self, task: str, strategy: Strategy, chunk: int) -> Path:
        return self.directory / f"{task}.{strategy.name.lower()}.{chunk:04d}.parquet"

    def write(self, path: Path, rows: list[dict[str, Any]]) -> None:
        temporary = path.with_suffix(".part")
        pl.DataFrame(rows, schema=SCHEMA).write_parquet(temporary)
        os.replace(temporary, path)

    def table(self) -> pl.DataFrame:
        return read_generations(self.directory)


def _get(manifest: dict[str, Any], section: str, key: str) -> Any:
    value = manifest.get(section)
    return value.get(key) if key and isinstance(value, dict) else value


def read_manifest(directory: Path) -> dict[str, Any]:
    try:
        return json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{directory} is no evaluation: {MANIFEST} cannot be read ({error})") from None


def read_generations(directory: Path) -> pl.DataFrame:
    """Every recorded generation, sorted by task, strategy and position. Raises on an empty folder."""
    files = sorted(directory.glob("*.parquet"))
    if not files:
        raise InputError(f"{directory}: no generations recorded yet")
    return pl.concat([pl.read_parquet(file) for file in files]).sort("task", "strategy", "position")


def slimmed(table: pl.DataFrame, probe_tokens: int) -> pl.DataFrame:
    """What routers and their comparison need, small enough to be kept beside a notebook: no texts, probes only.

    Entropies are rounded to 0.001 nats; those of Direct and CoT replies are left out.
    """
    standard = pl.col("strategy") == "standard"
    nothing = pl.lit([], dtype=pl.List(pl.Float64))
    return table.with_columns(
        pl.lit("").alias("text"),
        pl.lit([], dtype=pl.List(pl.Int64)).alias("token_ids"),
        *(
            pl.when(standard)
            .then(pl.col(name).list.head(probe_tokens).list.eval(pl.element().round(3)))
            .otherwise(nothing)
            for name in ("entropy_raw_nats", "surprisal_raw_nats")
        ),
        *(pl.col(name).list.eval(pl.element().round(3)) for name in ("option_nats", "check_entropy_nats")),
    )


def write_atomic(path: Path, text: str) -> None:
    temporary = path.with_suffix(path.suffix + ".part")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
