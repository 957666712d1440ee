"""Where the error of a validated simulator comes from, in numbers: the machine's own noise, its drift, or the model.

Of step time. Each step has a measured time t and a prediction; the mean |prediction / t - 1| falls as the predictions are
given what only a record can know, and what each gift takes off is a part of the error:

    bias      one factor for all steps: the machine as a whole ran at another speed than when it was calibrated
    shape     a factor for each kind of batch (see `KINDS`): a term of the step cost that is too small or too large
    drift     a factor for each arm: the machine's speed changed from arm to arm
    floor     what is left when every batch is predicted by the median of the other batches of its arm that are alike (same rows,
              same prefill, KV tokens within `KV_BIN`): no function of the batch can do better
    rest      what lies between: detail of the step cost within a kind

A factor is the one with the least mean relative error, so that no gift can make the error larger on the steps it is fitted to.

Of throughput, TTFT, TPOT and end-to-end time, arm by arm: the error as it is; with the step cost scaled to the speed the arm really
ran at; and how far the simulated figure moves when only the noise is drawn anew. What the speed does not explain is batching,
KV blocks or entropies, and the side-by-side table tells which.
Source: ours.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from sims.recorded import RecordedSteps
from sims.step_cost import StepCost
from workbench.signals import FloatArray

KV_BIN = 0.1  # batches whose KV tokens lie in one such bin of ln(KV tokens) are alike
MIN_ALIKE = 5
SIZES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class ArmSteps:
    """Measured and predicted steps of one arm."""

    name: str
    steps: RecordedSteps
    predicted_s: FloatArray


@dataclass(frozen=True)
class StepParts:
    """Mean |prediction / t - 1| and its parts, which sum to it; `covered` is the share of steps the floor is known for."""

    mape: float
    bias: float
    shape: float
    drift: float
    rest: float
    floor: float
    covered: float


def kind_of(steps: RecordedSteps) -> np.ndarray:
    """Name of each step's kind: with prefill or without, and how many rows, in powers of two."""
    size = np.array(SIZES)[np.searchsorted(SIZES, np.minimum(steps.running, SIZES[-1]))]
    return np.array(
        [f"{'prefill' if c else 'decode'}, up to {n} rows" for c, n in zip(steps.chunks > 0, size, strict=True)]
    )


def best_factor(ratio: FloatArray) -> float:
    """c of least mean |c r - 1| over r = prediction / t: the median of 1 / r with weights r."""
    order = np.argsort(1.0 / ratio)
    weight = np.cumsum(ratio[order])
    return float(1.0 / ratio[order][np.searchsorted(weight, 0.5 * weight[-1])])


def step_parts(arms: Sequence[ArmSteps]) -> StepParts:
    """The decomposition over all steps of all arms."""
    ratio = np.concatenate([a.predicted_s / a.steps.elapsed_s for a in arms])
    arm = np.concatenate([np.full(a.predicted_s.size, i) for i, a in enumerate(arms)])
    kind = np.concatenate([kind_of(a.steps) for a in arms])
    errors = [_error(ratio)]
    for groups in (np.zeros(ratio.size, np.int64), kind, arm):
        ratio = _scaled(ratio, groups)
        errors.append(min(errors[-1], _error(ratio)))
    alone = np.concatenate([_alike_error(a.steps) for a in arms])
    known = ~np.isnan(alone)
    floor = float(np.mean(alone[known])) if known.any() else float("nan")
    rest = errors[3] - floor
    return StepParts(
        errors[0], errors[0] - errors[1], errors[1] - errors[2], errors[2] - errors[3], rest, floor, float(known.mean())
    )


def _error(ratio: FloatArray) -> float:
    return float(np.mean(np.abs(ratio - 1.0)))


def _scaled(ratio: FloatArray, groups: np.ndarray) -> FloatArray:
    out = ratio.copy()
    for group in np.unique(groups):
        rows = groups == group
        out[rows] *= best_factor(ratio[rows])
    return out


def _alike_error(steps: RecordedSteps) -> FloatArray:
    """|median of the other alike steps / t - 1|, NaN where there are too few of them."""
    with np.errstate(divide="ignore"):
        kv = np.floor(np.log(np.maximum(steps.kv_read_tokens, 1.0)) / KV_BIN)
    key = np.column_stack([steps.tokens, steps.sampled, steps.chunks, steps.measures, kv])
    _, group = np.unique(key, axis=0, return_inverse=True)
    out = np.full(steps.elapsed_s.size, np.nan)
    for g in np.flatnonzero(np.bincount(group.ravel()) >= MIN_ALIKE):
        rows = np.flatnonzero(group.ravel() == g)
        t = steps.elapsed_s[rows]
        for i, row in enumerate(rows):
            out[row] = abs(np.median(np.delete(t, i)) / t[i] - 1.0)
    return out


def kinds_table(arms: Sequence[ArmSteps]) -> pl.DataFrame:
    """A row per kind of batch: steps, share of all measured time, signed and absolute error, the floor."""
    frame = pl.DataFrame(
        {
            "kind": np.concatenate([kind_of(a.steps) for a in arms]),
            "rows": np.concatenate([a.steps.running for a in arms]),
            "elapsed_s": np.concatenate([a.steps.elapsed_s for a in arms]),
            "error": np.concatenate([a.predicted_s / a.steps.elapsed_s - 1.0 for a in arms]),
            "floor": np.concatenate([_alike_error(a.steps) for a in arms]),
        }
    )
    whole = float(frame["elapsed_s"].sum())
    return (
        frame.group_by("kind")
        .agg(
            pl.col("rows").max(),
            pl.len().alias("steps"),
            (pl.col("elapsed_s").sum() / whole).alias("time_frac"),
            pl.col("error").mean().alias("bias"),
            pl.col("error").abs().mean().alias("mape"),
            pl.col("floor").drop_nans().mean(),
        )
        .sort(pl.col("kind").str.starts_with("prefill"), "rows")
        .drop("rows")
    )


def speed_of(arm: ArmSteps) -> float:
    """How many times longer the arm's steps took than predicted, by total time."""
    return float(arm.steps.elapsed_s.sum() / arm.predicted_s.sum())


def scaled_cost(cost: StepCost, factor: float) -> StepCost:
    """The step cost of a machine `factor` times as slow."""
    times = ("dense_s", "output_s", "host_s", "row_s", "kv_s_per_token", "pair_s", "chunk_s", "mass_s")
    return replace(cost, **{name: getattr(cost, name) * factor for name in times})


@dataclass(frozen=True)
class FigureParts:
    """One figure over all arms, relative errors: as simulated, at each arm's own speed, and the spread over noise draws."""

    error: float
    bias: float
    error_at_own_speed: float
    bias_at_own_speed: float
    draw_sd: float


def figure_parts(
    live: Sequence[float], simulated: Sequence[float], at_own_speed: Sequence[float], draws: Sequence[Sequence[float]]
) -> FigureParts:
    """Lists over arms; `draws` [arms][draws] of the simulated figure with other noise. Arms without the figure are left out."""
    truth, made, own = (np.array(v, float) for v in (live, simulated, at_own_speed))
    known = np.isfinite(truth) & np.isfinite(made) & np.isfinite(own)
    if not known.any():
        return FigureParts(*[float("nan")] * 5)
    first, second = made[known] / truth[known] - 1.0, own[known] / truth[known] - 1.0
    spread = [
        np.std(np.array(d, float) / m, ddof=1) for d, m, k in zip(draws, made, known, strict=True) if k and len(d) > 1
    ]
    return FigureParts(
        float(np.mean(np.abs(first))), float(np.mean(first)), float(np.mean(np.abs(second))), float(np.mean(second)),
        float(np.mean(spread)) if spread else float("nan"),
    )  # fmt: skip


def sentence(parts: StepParts, tell: Callable[[float], str] = lambda share: f"{share:.1%}") -> str:
    """The parts of the step error in one line."""
    return (
        f"step time: {tell(parts.mape)} = {tell(parts.floor)} equal batches among themselves (floor, known for "
        f"{parts.covered:.0%} of the steps) + {tell(parts.bias)} speed of the machine as a whole + {tell(parts.shape)} kinds of "
        f"batch + {tell(parts.drift)} speed from arm to arm + {tell(parts.rest)} rest"
    )
