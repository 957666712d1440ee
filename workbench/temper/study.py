"""Run every law on the same prompts with the same random numbers, and reduce the runs to a table.

Three kinds of run: constant temperatures (what "doing nothing" gives at any mean H), every law at a constant H*, and every
law that has an H* through a step of it at half length. Texts are cut at the given length and run on past their end
token, so that all have equally many tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from controllers.temperature.fixed import Fixed
from workbench.signals import FloatArray, IntArray
from workbench.temper.laws import NOTHING, Law
from workbench.temper.measures import (
    ConstantGrid,
    Estimate,
    bootstrap_indices,
    distinct_3,
    drift_nats,
    mean_interval,
    spread_interval,
    step_response,
    tracking_nats,
    variation_nats,
    whole_interval,
)

GRID = (0.35, 0.5, 0.65, 0.8, 1.0, 1.2, 1.4)


@dataclass(frozen=True)
class Run:
    """One law on all prompts; arrays [prompts, tokens]."""

    entropy_nats: FloatArray
    entropy_raw_nats: FloatArray
    varentropy_nats2: FloatArray
    surprisal_raw_nats: FloatArray
    temperature: FloatArray
    token_ids: IntArray


@dataclass(frozen=True)
class Job:
    """One controller on all prompts, at a plant delay."""

    controller: Any
    delay_steps: int = 0


# All jobs with the same random numbers; the live model, or a fake one in tests. The last argument moves a progress bar.
Generate = Callable[[Sequence[Job], Callable[[float], None]], list[Run]]


@dataclass(frozen=True)
class LawFigures:
    """One row of the table; `None` where the figure does not apply. Differences are law minus matched constant."""

    law: Law
    mean_entropy_nats: Estimate
    tracking_nats: Estimate
    spread_nats: Estimate
    drift_nats: Estimate
    variation_nats: Estimate
    temperature_variation: Estimate  # mean |du| a token
    clamped_frac: float
    nll_nats: Estimate
    distinct_3: Estimate
    matched_temperature: float
    tracking_gain: Estimate
    spread_gain: Estimate
    nll_gain: Estimate
    distinct_gain: Estimate
    settle_tokens: Estimate | None = None
    overshoot_nats: Estimate | None = None
    final_error_nats: Estimate | None = None


@dataclass(frozen=True)
class Study:
    target_nats: float
    step_nats: tuple[float, float]
    step_token: int
    vocab_size: int
    rows: tuple[LawFigures, ...]
    constant: dict[str, Run]  # law name -> run at constant H*
    stepped: dict[str, Run]
    grid: dict[float, Run]


def run_study(
    generate: Generate,
    laws: Sequence[Law],
    target_nats: float,
    step_nats: tuple[float, float],
    num_tokens: int,
    vocab_size: int,
    progress: Callable[[float], None] = lambda share: None,
) -> Study:
    """All runs, then all figures."""
    step_token = num_tokens // 2
    steps = ((step_token, step_nats[1]),)
    acting = [law for law in laws if law is not NOTHING]  # T = 1 is on the grid
    regulating = [law for law in acting if law.regulates]
    jobs = [Job(Fixed(temperature=t)) for t in GRID]
    jobs += [Job(law.build(target_nats, (), vocab_size), law.delay_steps) for law in acting]
    jobs += [Job(law.build(step_nats[0], steps, vocab_size), law.delay_steps) for law in regulating]
    runs = iter(generate(jobs, progress))
    grid = {t: next(runs) for t in GRID}
    constant = {law.name: next(runs) for law in acting} | {NOTHING.name: grid[1.0]}
    stepped = {law.name: next(runs) for law in regulating} | {NOTHING.name: grid[1.0]}
    rows = tuple(
        law_figures(law, constant[law.name], stepped.get(law.name), grid, target_nats, step_nats, step_token)
        for law in laws
    )
    return Study(target_nats, step_nats, step_token, vocab_size, rows, constant, stepped, grid)


def law_figures(
    law: Law,
    run: Run,
    stepped: Run | None,
    grid: dict[float, Run],
    target_nats: float,
    step_nats: tuple[float, float],
    step_token: int,
) -> LawFigures:
    indices = bootstrap_indices(run.entropy_nats.shape[0])
    mean_h = run.entropy_nats.mean(axis=1)
    runs = list(grid.values())
    constant = ConstantGrid(np.log(np.array(list(grid))), np.array([r.entropy_nats.mean(axis=1) for r in runs]))
    log_t = np.log(np.maximum(run.temperature, 1e-6))
    low, high = run.temperature.min(), run.temperature.max()
    at_end = (run.temperature <= low * (1 + 1e-9)) | (run.temperature >= high * (1 - 1e-9))

    def gain(measure: Callable[[Run], FloatArray]) -> Estimate:
        return constant.difference(measure(run), np.array([measure(r) for r in runs]), mean_h, indices)

    def nll(r: Run) -> FloatArray:
        return r.surprisal_raw_nats.mean(axis=1)

    response: dict[str, Estimate] = {}
    if stepped is not None:
        for name in ("settle_tokens", "overshoot_nats", "final_error_nats"):
            response[name] = whole_interval(
                lambda chosen, name=name: getattr(
                    step_response(stepped.entropy_nats[chosen], step_token, *step_nats), name
                ),
                indices,
            )
    return LawFigures(
        law=law,
        mean_entropy_nats=mean_interval(mean_h, indices),
        tracking_nats=mean_interval(tracking_nats(run.entropy_nats, target_nats), indices),
        spread_nats=spread_interval(mean_h, indices),
        drift_nats=mean_interval(drift_nats(run.entropy_nats), indices),
        variation_nats=mean_interval(variation_nats(run.entropy_nats), indices),
        temperature_variation=mean_interval(np.abs(np.diff(log_t, axis=1)).mean(axis=1), indices),
        clamped_frac=float(at_end.mean()) if high > low * (1 + 1e-9) else 0.0,
        nll_nats=mean_interval(nll(run), indices),
        distinct_3=mean_interval(distinct_3(run.token_ids), indices),
        matched_temperature=float(np.exp(constant.matched(mean_h, np.arange(mean_h.size)))),
        tracking_gain=gain(lambda r: tracking_nats(r.entropy_nats, target_nats)),
        spread_gain=constant.spread_difference(mean_h, mean_h, indices),
        nll_gain=gain(nll),
        distinct_gain=gain(lambda r: distinct_3(r.token_ids)),
        **response,
    )
