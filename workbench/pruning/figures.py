"""From the tables of a study to figures with intervals, paired: every arm saw the same texts and the same tokens.

Intervals are 95 % percentile bootstrap over texts (2,000 resamples, seed 0; the same resamples for all arms, so that a
difference between arms is paired). With few texts they are wide and on the narrow side of honest: tokens within a text are
not independent, so they are never resampled one by one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from workbench.pruning.arms import BASELINES, OURS
from workbench.signals import FloatArray

RESAMPLES = 2000
MIN_TEXTS = 3  # fewer give no interval
QUALITY_KEPT_NATS = 0.01  # of NLL a token: what "quality kept" allows


@dataclass(frozen=True)
class Interval:
    value: float
    low: float
    high: float

    def text(self, places: int = 4, signed: bool = False) -> str:
        if np.isnan(self.value):
            return "–"
        form = f"{{:{'+' if signed else ''}.{places}f}}"
        if np.isnan(self.low):
            return form.format(self.value)
        return f"{form.format(self.value)} [{form.format(self.low)}, {form.format(self.high)}]"


METRICS = ("kl_nats", "nll_loss_nats", "bytes_frac", "blocks_frac", "entropy_shift_nats", "accuracy", "dropped_mass")


@dataclass(frozen=True)
class ArmFigures:
    """One policy at one budget in one context. `by_text`: metric -> [texts], NaN where the text has none."""

    context: int
    arm: str
    target_frac: float | None
    by_text: dict[str, FloatArray]
    metrics: dict[str, Interval]

    @property
    def label(self) -> str:
        return self.arm if self.target_frac is None else f"{self.arm} at {self.target_frac:.0%}"

    @property
    def ours(self) -> bool:
        return self.arm.split(" ")[0] in OURS


def interval_of(values: FloatArray) -> Interval:
    """Mean over texts and its bootstrap interval; `values` [texts], NaN left out."""
    known = values[~np.isnan(values)]
    if known.size == 0:
        return Interval(np.nan, np.nan, np.nan)
    if known.size < MIN_TEXTS:
        return Interval(float(known.mean()), np.nan, np.nan)
    pick = np.random.default_rng(0).integers(0, known.size, (RESAMPLES, known.size))
    low, high = np.quantile(known[pick].mean(axis=1), (0.025, 0.975))
    return Interval(float(known.mean()), float(low), float(high))


def arm_figures(steps: pl.DataFrame) -> list[ArmFigures]:
    """Every arm of every context, dense first, in the order of the study."""
    text = ["context", "kind", "seed"]
    dense = steps.filter(pl.col("arm") == "none").select(
        *text, "position", dense_nll="nll_nats", dense_entropy="entropy_nats"
    )
    joined = steps.join(dense, on=[*text, "position"], how="left").with_columns(
        nll_loss_nats=pl.col("nll_nats") - pl.col("dense_nll"),
        entropy_shift_nats=pl.col("entropy_nats") - pl.col("dense_entropy"),
        bytes_frac=pl.col("blocks_frac") + pl.col("sketch_frac"),
        dropped_mass=pl.col("dropped_mass").fill_nan(None),
    )
    keys = [*text, "arm", "target_frac"]
    means = ["kl_nats", "nll_loss_nats", "bytes_frac", "blocks_frac", "entropy_shift_nats", "dropped_mass"]
    per_text = joined.group_by(keys, maintain_order=True).agg(pl.col(means).mean())
    answers = (
        joined.filter(pl.col("answer") > 0)
        .group_by([*keys, "answer"])
        .agg(pl.col("right").all())
        .group_by(keys)
        .agg(accuracy=pl.col("right").mean())
    )
    per_text = per_text.join(answers, on=keys, how="left", nulls_equal=True)
    found = []
    for (context, arm, target), rows in per_text.group_by(["context", "arm", "target_frac"], maintain_order=True):
        rows = rows.sort(text)
        by_text = {name: rows[name].cast(pl.Float64).fill_null(np.nan).to_numpy() for name in METRICS}
        share = None if np.isnan(float(target)) else float(target)
        found.append(
            ArmFigures(int(context), str(arm), share, by_text, {k: interval_of(v) for k, v in by_text.items()})
        )
    return found


def at_one_per_cent(curve: pl.DataFrame) -> pl.DataFrame:
    """The rows of the certificate's curve at a dropped mass of 0.01."""
    return curve.filter((pl.col("stops_by") == "mass") & (pl.col("budget") == 0.01))


@dataclass(frozen=True)
class Duel:
    """Ours against one baseline at one budget, ours minus theirs: negative is better."""

    context: int
    target_frac: float
    ours: str
    baseline: str
    kl_nats: Interval
    nll_nats: Interval


def best_of_ours(figures: Sequence[ArmFigures], context: int, target: float) -> ArmFigures | None:
    """The policy of ours with the least KL among those that read at most the target (and 2 % of it)."""
    found = [
        f
        for f in figures
        if f.context == context
        and f.ours
        and f.metrics["bytes_frac"].value <= 1.02 * target
        and f.target_frac == target
    ]
    return min(found, key=lambda f: f.metrics["kl_nats"].value, default=None)


def duels(figures: Sequence[ArmFigures]) -> list[Duel]:
    """At every context and budget, our best against every baseline."""
    found = []
    for context in sorted({f.context for f in figures}):
        for target in sorted({f.target_frac for f in figures if f.target_frac is not None}, reverse=True):
            ours = best_of_ours(figures, context, target)
            if ours is None:
                continue
            for f in figures:
                if f.context == context and f.target_frac == target and f.arm in BASELINES:
                    found.append(
                        Duel(
                            context, target, ours.arm, f.arm,
                            interval_of(ours.by_text["kl_nats"] - f.by_text["kl_nats"]),
                            interval_of(ours.by_text["nll_loss_nats"] - f.by_text["nll_loss_nats"]),
                        )
                    )  # fmt: skip
    return found


def quality_budget(figures: Sequence[ArmFigures], context: int) -> ArmFigures | None:
    """The arm that reads least among those whose NLL loss is at most `QUALITY_KEPT_NATS` with 95 % confidence."""
    held = [
        f
        for f in figures
        if f.context == context and f.arm != "none" and f.metrics["nll_loss_nats"].high <= QUALITY_KEPT_NATS
    ]
    return min(held, key=lambda f: f.metrics["bytes_frac"].value, default=None)


def entropy_law(figures: Sequence[ArmFigures]) -> tuple[Interval, int]:
    """Slope of the entropy shift against dropped mass, nats a unit of mass, through the origin; and how many texts.

    A point is one text under one arm; the interval resamples texts.
    """
    kept = [f for f in figures if f.arm != "none"]
    size = min((f.by_text["dropped_mass"].size for f in kept), default=0)
    if size == 0:
        return Interval(np.nan, np.nan, np.nan), 0
    mass = np.array([f.by_text["dropped_mass"][:size] for f in kept])
    shift = np.array([f.by_text["entropy_shift_nats"][:size] for f in kept])

    def slope(pick: np.ndarray) -> float:
        x, y = mass[:, pick].ravel(), shift[:, pick].ravel()
        good = ~(np.isnan(x) | np.isnan(y))
        return float((x[good] * y[good]).sum() / max((x[good] ** 2).sum(), 1e-12))

    rng = np.random.default_rng(0)
    drawn = [slope(rng.integers(0, size, size)) for _ in range(500)]
    low, high = np.quantile(drawn, (0.025, 0.975))
    return Interval(slope(np.arange(size)), float(low), float(high)), size
