"""On top of a sweep: Optuna search, more seeds until intervals are narrow, capacity inside an SLO, Pareto front, sensitivity."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from scipy.stats import t as student

from workbench.errors import InputError, unknown_name
from workbench.metrics import METRICS
from workbench.scenario import Scenario
from workbench.sweep import Done, Point, Store, Task, Workers, run_tasks, tasks_of

BATCH = 4  # Optuna points asked for at a time, whatever the number of workers, so that workers change nothing
MAX_SEEDS = 32
BISECTIONS = 10


def better_sign(figure: str) -> float:
    """+1 where larger is better, -1 where smaller is. Raises `InputError` for an unknown figure."""
    for metric in METRICS:
        if metric.name == figure:
            return -1.0 if metric.better == "lower" else 1.0
    raise unknown_name("figure", figure, [metric.name for metric in METRICS])


def optuna_tasks(
    plan: Scenario, axes: Sequence[tuple[str, list[Any]]], count: int, objective: str, store: Store, workers: Workers,
    tell: Callable[[float], None],
) -> tuple[list[Task], Done]:  # fmt: skip
    """`count` points by a seeded tree-structured Parzen estimator. Deterministic, so a resumed search reuses its results."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sign = better_sign(objective)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=plan.seeds[0]))
    tasks: list[Task] = []
    done = Done(0, 0, 0)
    for first in range(0, count, BATCH):
        trials = [study.ask() for _ in range(min(BATCH, count - first))]
        points = [Point(first + i, {k: _suggest(trial, k, v) for k, v in axes}) for i, trial in enumerate(trials)]
        new = tasks_of(plan, points, plan.seeds)
        step = run_tasks(new, store, workers)
        done = Done(done.done + step.done, done.computed + step.computed, done.reused + step.reused)
        for trial, point in zip(trials, points, strict=True):
            values = [store.get(t.key) or {} for t in new if t.point is point]
            found = [v[objective] for v in values if v.get(objective) is not None]
            study.tell(trial, sign * float(np.mean(found)) if found else -1e300)
        tasks += new
        tell(min(1.0, (first + BATCH) / count))
    return tasks, done


def _suggest(trial: Any, key: str, values: list[Any]) -> Any:
    if values[-1] is not ...:
        return trial.suggest_categorical(key, values)
    low, high = values[0], values[1]
    if isinstance(low, int) and isinstance(high, int):
        return trial.suggest_int(key, low, high)
    return trial.suggest_float(key, float(low), float(high))


def parse_until(text: str) -> tuple[str, float]:
    figure, _, share = text.partition("=")
    better_sign(figure)
    try:
        width = float(share)
    except ValueError:
        width = math.nan
    if not 0.0 < width < 1.0:
        raise InputError(f"--until reads FIGURE=SHARE with a share in (0, 1), got {text!r}")
    return figure, width


def add_seeds(
    plan: Scenario, tasks: list[Task], figure: str, width: float, store: Store, workers: Workers, done: Done
) -> tuple[list[Task], Done]:
    """Double the seeds of every point whose 95 % interval of `figure` is wider than `width` of its mean, to 32 at most."""
    seeds = list(dict.fromkeys(plan.seeds))
    while True:
        wide = []
        for index in dict.fromkeys(t.point.index for t in tasks):
            mine = [t for t in tasks if t.point.index == index]
            values = np.array([(store.get(t.key) or {}).get(figure) or np.nan for t in mine], float)
            half = np.inf
            if values.size > 1:
                half = student.ppf(0.975, values.size - 1) * values.std(ddof=1) / math.sqrt(values.size)
            if not half <= width * abs(values.mean()) and len(mine) < MAX_SEEDS:
                wide.append((mine[0].point, len(mine)))
        if not wide:
            return sorted(tasks, key=lambda t: (t.point.index, t.seed)), done
        new = []
        for point, count in wide:
            more = [max(seeds) + 1 + i for i in range(2 * max(count, 2) - count + (count - len(seeds)))]
            have = {t.seed for t in tasks if t.point.index == point.index}
            new += tasks_of(plan, [point], [s for s in more if s not in have])
        step = run_tasks(new, store, workers)
        done = Done(done.done + step.done, done.computed + step.computed, done.reused + step.reused)
        tasks = tasks + new


LOWEST_RATE_PER_S = 0.01  # where a capacity search begins


@dataclass(frozen=True)
class Capacity:
    rate_per_s: float
    goodput_frac: float
    met: bool


def capacity_search(
    plan: Scenario, store: Store, workers: Workers, share: float, say: Callable[[str], None]
) -> Capacity:
    """The largest mean rate at which at least `share` of the requests are inside the SLO, by bisection of its logarithm.

    Where even a trickle of 0.01 requests/s misses it, the SLO cannot be met: `met` is False.
    """
    if not 0.0 < share <= 1.0:
        raise InputError(f"--capacity must be in (0, 1], got {share}")

    def inside(rate: float) -> float:
        tasks = tasks_of(plan, [Point(0, {"workload.rate_per_s": rate})], plan.seeds)
        run_tasks(tasks, store, workers)
        found = [(store.get(t.key) or {}).get("goodput_frac") or 0.0 for t in tasks]
        say(f"{rate:.4g} requests/s: {np.mean(found):.4f} inside the SLO")
        return float(np.mean(found))

    low, high = LOWEST_RATE_PER_S, 1.0
    at_low = inside(low)
    if at_low < share:
        return Capacity(0.0, at_low, False)
    while (value := inside(high)) >= share:
        low, at_low, high = high, value, high * 4.0
        if high > 1e6:
            return Capacity(low, at_low, True)
    for _ in range(BISECTIONS):
        middle = math.sqrt(low * high)
        value = inside(middle)
        if value >= share:
            low, at_low = middle, value
        else:
            high = middle
    return Capacity(low, at_low, True)


def mark_front(table: pl.DataFrame, figures: str) -> pl.DataFrame:
    """A column `pareto`: no other point's seed means are at least as good in both figures and better in one."""
    names = [name.strip() for name in figures.split(",")]
    if len(names) != 2:
        raise InputError(f"--pareto takes two figures, got {figures!r}")
    signs = np.array([better_sign(name) for name in names])
    means = table.group_by("point", maintain_order=True).agg([pl.col(n).mean() for n in names])
    values = means.select(names).to_numpy().astype(float) * signs
    best = []
    for row in values:
        beats = np.all(values >= row, axis=1) & np.any(values > row, axis=1)
        best.append(bool(np.all(np.isfinite(row)) and not beats.any()))
    return table.join(means.select("point").with_columns(pl.Series("pareto", best)), on="point", maintain_order="left")


def best_rows(table: pl.DataFrame, keys: Sequence[str], objective: str, count: int = 3) -> list[str]:
    """The best points by the mean of `objective` over seeds, a line each."""
    sign = better_sign(objective)
    if objective not in table.columns:
        return []
    means = table.group_by(["point", *keys], maintain_order=True).agg(pl.col(objective).mean())
    means = means.drop_nulls(objective).sort(objective, descending=sign > 0, maintain_order=True).head(count)
    return [
        f"{objective} {row[objective]:.5g} at " + ", ".join(f"{k} = {row[k]}" for k in keys)
        for row in means.iter_rows(named=True)
    ]


def sensitivity(table: pl.DataFrame, keys: Sequence[str], objective: str) -> list[str]:
    """Share of the variance of point means that one axis alone explains (main effect), a line each."""
    if objective not in table.columns or table[objective].null_count() == table.height:
        return []
    means = table.group_by(["point", *keys], maintain_order=True).agg(pl.col(objective).mean()).drop_nulls(objective)
    values = means[objective].to_numpy()
    total = float(values.var())
    lines = []
    for key in keys:
        level = means.group_by(key, maintain_order=True).agg(pl.col(objective).mean().alias("m"), pl.len().alias("n"))
        if total <= 0.0 or level.height in (1, means.height):
            continue
        m, n = level["m"].to_numpy(), level["n"].to_numpy()
        share = float(np.average((m - np.average(m, weights=n)) ** 2, weights=n)) / total
        lines.append(f"{key} alone explains {share:.0%} of the variance of {objective}")
    return lines
