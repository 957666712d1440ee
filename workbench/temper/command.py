"""What `workbench temper` does, from options to page and figures."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from controllers.temperature.fixed import Fixed
from controllers.temperature.gain_bounds import check_target
from controllers.temperature.pi import PITemperature
from workbench.errors import InputError
from workbench.live.prompts import builtin_prompts
from workbench.live.session import LiveModel
from workbench.temper.estimator_loss import estimator_table
from workbench.temper.laws import chosen_laws
from workbench.temper.live import live_generate, prompt_ids, recorded_logits
from workbench.temper.loop_gain import Dithered, dither_sign, gain_check, outer_slope
from workbench.temper.page import loop_lines, write_page
from workbench.temper.study import Job, run_study
from workbench.temper.verdict import sentences, text, with_interval

AMPLITUDE = 0.2
REFERENCE = "pi"  # whose figures stand under the plain names


@dataclass(frozen=True)
class Options:
    target: float
    step: tuple[float, float]
    laws: tuple[str, ...]
    num_prompts: int
    num_tokens: int
    seed: int
    model: str
    estimators: bool
    out: Path

    @property
    def command(self) -> str:
        laws = "".join(f' --law "{name}"' for name in self.laws)
        return (
            f"workbench temper --target {self.target:g} --step {self.step[0]:g} {self.step[1]:g} --prompts "
            f"{self.num_prompts} --tokens {self.num_tokens} --seed {self.seed} --model {self.model}{laws}"
        )


@dataclass(frozen=True)
class Result:
    ok: bool
    table: Table
    lines: list[str]
    figures: dict[str, Any]
    paths: dict[str, Path]


def run(options: Options, progress: Callable[[float], None]) -> Result:
    """Raises `InputError` for a target outside [0, ln n], an unknown law, a model that cannot be loaded."""
    laws = chosen_laws(list(options.laws))
    available = len(builtin_prompts())
    if options.num_prompts > available:
        raise InputError(f"there are {available} built-in prompts, got --prompts {options.num_prompts}; lower it")
    model = LiveModel.load(options.model, seed=options.seed)
    vocab = model.config.vocab_size
    check_target("temper", [options.target, *options.step], vocab, unsafe=False)
    generate = live_generate(model, options.num_prompts, options.num_tokens, options.seed)
    study = run_study(
        generate, laws, options.target, options.step, options.num_tokens, vocab, lambda share: progress(0.85 * share)
    )
    (dithered,) = generate(
        [Job(Dithered(Fixed(temperature=1.0), AMPLITUDE, options.seed))], lambda share: progress(0.85 + 0.05 * share)
    )
    rows, columns = dithered.entropy_nats.shape
    sign = dither_sign(options.seed, *(a.ravel() for a in np.indices((rows, columns)))).reshape(rows, columns)
    slope = outer_slope(dithered.entropy_nats, dithered.entropy_raw_nats, dithered.varentropy_nats2, sign, AMPLITUDE)
    progress(0.9)
    texts = [
        recorded_logits(model, prompt_ids(model, i), list(map(int, dithered.token_ids[i])))
        for i in range(min(4, options.num_prompts))
    ]
    check = gain_check(np.concatenate([text[::4] for text in texts]))
    losses = []
    if options.estimators:
        losses = estimator_table(
            lambda: PITemperature(target_entropy_nats=options.target, vocab_size=vocab), texts, options.target
        )
    progress(0.97)
    reference = next((row for row in study.rows if row.law.name == REFERENCE), study.rows[-1])
    figures: dict[str, Any] = {
        "tracking_nats": reference.tracking_nats.value,
        "settle_tokens": reference.settle_tokens.value if reference.settle_tokens else None,
        "overshoot_nats": reference.overshoot_nats.value if reference.overshoot_nats else None,
        "loop_gain_ratio": check.ratio,
        "loop_gain_within_frac": check.within_frac,
        "outer_slope_nats": slope.total.value,
        "outer_slope_low_nats": slope.total.low,
        "outer_slope_high_nats": slope.total.high,
    }
    for row in study.rows:
        for name in ("tracking_nats", "tracking_gain", "spread_nats", "nll_nats", "nll_gain", "distinct_3"):
            figures[f"{row.law.name}: {name}"] = getattr(row, name).value
    paths = write_page(
        study,
        check,
        slope,
        losses,
        options.out,
        model=options.model,
        command=options.command,
        facts=[
            f"{options.num_prompts} prompts x {options.num_tokens} tokens",
            f"H* = {options.target:g} nats, step {options.step[0]:g} to {options.step[1]:g}",
            f"seed {options.seed}",
            f"vocabulary {vocab}",
            f"model {options.model}",
        ],
        figures=figures,
    )
    lines = [*sentences(study), *loop_lines(check, slope)]
    return Result(bool(abs(check.ratio - 1.0) <= 0.01), _table(study.rows), lines, figures, paths)


def _table(rows: tuple[Any, ...]) -> Table:
    table = Table(title="Temperature laws; brackets are 95 % intervals over prompts")
    for name in ("law", "mean |H-H*|", "vs constant", "spread", "settle", "overshoot", "NLL vs constant", "distinct-3"):
        table.add_column(name, justify="left" if name == "law" else "right")
    for row in rows:
        table.add_row(
            row.law.name,
            with_interval(row.tracking_nats),
            with_interval(row.tracking_gain, True),
            with_interval(row.spread_nats),
            "-" if row.settle_tokens is None else text(row.settle_tokens.value),
            "-" if row.overshoot_nats is None else f"{row.overshoot_nats.value:.2f}",
            with_interval(row.nll_gain, True),
            f"{row.distinct_3.value:.3f}",
        )
    return table
