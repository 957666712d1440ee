"""AntiBERTy and Sapiens, heavy and light chains: what every policy recovers, and in how many passes.

The tokens are the likeliest ones (T = 0). Entropy sum, EB-Sampler and confidence threshold are swept down to a single pass,
so that they can be compared at equal passes. Every sequence is written to a table as soon as all policies have decoded it;
a study that was interrupted goes on from there.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import polars as pl

from workbench.errors import InputError
from workbench.record import write_table
from workbench.strict_json import strict_json
from workbench.unmasking.policies import named_policy
from workbench.unmasking.protein_results import COLUMNS, protein_results
from workbench.unmasking.proteins import ProteinBench
from workbench.unmasking.studies import Tell, command_of
from workbench.unmasking.study import Study

SHARES = (0.5, 0.9, 1.0)
SWEPT: dict[str, tuple[str, ...]] = {
    "entropy-sum": ("3", "10", "30", "inf"),
    "eb-sampler": ("3", "10", "30", "inf"),
    "confidence-threshold": ("0.7", "0.5", "0.3", "0.01"),
}
SINGLE = (
    "adaptive-entropy-sum:30", "ordered-entropy-sum:10", "max-entropy:2", "confidence-factor:2", "klass:0.5",
    "low-confidence:8", "uniform:8", "random-size:8", "dilated:2", "left-to-right:8",
)  # fmt: skip
SETTINGS = tuple(f"{policy}:{value}" for policy, values in SWEPT.items() for value in values) + SINGLE


@dataclass(frozen=True)
class Plan:
    """What one model decodes. AntiBERTy takes some thirty times as long a pass as Sapiens."""

    model: str
    sequences: int  # the first so many of `antibodies.py`
    scored: int  # positions of a decoded sequence its pseudo-perplexity is taken on
    seed: int = 0
    maskings: int = 1
    shares: tuple[float, ...] = SHARES
    settings: tuple[str, ...] = SETTINGS


PLANS = (
    Plan("sapiens-heavy", 12, 8),
    Plan("sapiens-light", 12, 8),
    Plan("antiberty:heavy", 6, 8),
    Plan("antiberty:light", 6, 8),
)


def study(*, repeats: int | None, seed: int, tell: Tell, directory: Path | None = None) -> Study:
    """`repeats`: sequences of each model. `directory`: where the tables of what is decoded lie, and are gone on from."""
    plans = [replace(plan, seed=seed, sequences=min(repeats or plan.sequences, plan.sequences)) for plan in PLANS]
    total, done = sum(plan.sequences for plan in plans), 0
    frames: list[pl.DataFrame] = []
    for plan in plans:
        before = done / total

        def told(share: float, before: float = before, mine: float = plan.sequences / total) -> None:
            tell(before + mine * share)

        frames.append(decoded(plan, told, None if directory is None else table_path(directory, plan)))
        done += plan.sequences
    return protein_results(pl.concat(frames), command_of("proteins", repeats, seed))


def table_path(directory: Path, plan: Plan) -> Path:
    """Named for the plan (the number of sequences aside), so that another plan's rows are never taken for its own."""
    own = {key: value for key, value in asdict(plan).items() if key != "sequences"}
    digest = hashlib.sha256(strict_json(own).encode()).hexdigest()[:8]
    return directory / f"decodes-{plan.model.replace(':', '-')}-{digest}.parquet"


def decoded(plan: Plan, tell: Tell, path: Path | None) -> pl.DataFrame:
    """Every policy on every sequence of the plan, in the order of the sequences; kept at `path` after each."""
    frame = pl.DataFrame(schema=COLUMNS) if path is None or not path.exists() else read_table(path)
    bench: ProteinBench | None = None
    names: list[str] = []
    for index in range(plan.sequences):
        for part, share in enumerate(plan.shares):
            tell((index + part / len(plan.shares)) / plan.sequences)
            bench = bench or ProteinBench(plan.model, remember=True)
            names = list(bench.sequences)[: plan.sequences]
            known = (pl.col("sequence") == names[index]) & (pl.col("masked_frac") == share)
            if frame.filter(known).height:
                continue
            frame = pl.concat([frame, _one(bench, plan, names[index], share)])
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_table(path, frame.to_arrow())
    tell(1.0)
    return frame.filter(pl.col("sequence").is_in(names))


def read_table(path: Path) -> pl.DataFrame:
    """What was decoded so far. Raises InputError (one line) for a damaged table."""
    try:
        return pl.read_parquet(path).select(pl.col(name).cast(kind) for name, kind in COLUMNS.items())
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: damaged or unreadable ({reason}); remove it and the study begins anew") from None


def _one(bench: ProteinBench, plan: Plan, name: str, share: float) -> pl.DataFrame:
    rows: list[Sequence[object]] = []
    for text in plan.settings:
        policy, _, setting = text.partition(":")
        d = bench.decode(
            named_policy(text).policy, share, sequences=[name], maskings=plan.maskings, seed=plan.seed, scored=plan.scored
        )  # fmt: skip
        rows += [
            (
                plan.model, share, policy, setting, name, int(d.tokens[k].size), float(d.iterations[k]), float(d.recovery[k]),
                float(d.pseudo_nll_nats[k]), float(d.entropy_first_nats[k]), bool((d.tokens[k] >= 0).all()),
            )
            for k in range(plan.maskings)
        ]  # fmt: skip
    return pl.DataFrame(rows, schema=COLUMNS, orient="row")
