"""What the table means, in sentences: which law to use, what it costs, and when none helps."""

import math

from workbench.temper.laws import NOTHING
from workbench.temper.measures import Estimate
from workbench.temper.study import LawFigures, Study


def below(estimate: Estimate | None) -> bool:
    """The whole interval is below zero."""
    return estimate is not None and estimate.high < 0.0


def above(estimate: Estimate | None) -> bool:
    return estimate is not None and estimate.low > 0.0


def best_tracker(study: Study) -> LawFigures | None:
    """The law of least mean |H - H*| among those that clearly beat their matched constant."""
    helpful = [row for row in study.rows if row.law.regulates and below(row.tracking_gain)]
    return min(helpful, key=lambda row: row.tracking_nats.value, default=None)


def smooth_tracker(study: Study) -> LawFigures | None:
    """The law of least mean |H - H*| among those that move T by at most 5 % a token on average."""
    helpful = [
        row
        for row in study.rows
        if row.law.regulates and below(row.tracking_gain) and row.temperature_variation.value <= 0.05
    ]
    return min(helpful, key=lambda row: row.tracking_nats.value, default=None)


def text(value: float, signed: bool = False) -> str:
    if math.isnan(value):
        return "undefined"  # never settled, or no constant on the grid has that mean H
    value = 0.0 if abs(value) < 1e-12 else value
    return f"{value:+.3g}" if signed else f"{value:.3g}"


def with_interval(estimate: Estimate | None, signed: bool = False) -> str:
    if estimate is None:
        return "-"
    return f"{text(estimate.value, signed)} [{text(estimate.low, signed)}, {text(estimate.high, signed)}]"


def sentences(study: Study) -> list[str]:
    """Plain statements, each backed by an interval of the table."""
    out = []
    best, smooth = best_tracker(study), smooth_tracker(study)
    regulators = [row for row in study.rows if row.law.regulates]
    if best is None:
        out.append(
            f"No law keeps H nearer to H* = {study.target_nats:g} nats than a constant temperature with the same mean "
            "entropy: use the constant."
        )
    else:
        out.append(
            f"To keep H near H* = {study.target_nats:g} nats at every token use {best.law.name}: mean |H - H*| "
            f"{with_interval(best.tracking_nats)} nats, {with_interval(best.tracking_gain, True)} against the constant "
            f"T = {best.matched_temperature:.3g} of equal mean H."
        )
        if above(best.nll_gain):
            out.append(
                f"It costs quality: NLL {with_interval(best.nll_gain, True)} nats a token against that constant."
            )
    if smooth is not None and smooth is not best:
        out.append(
            f"Where T must move smoothly use {smooth.law.name}: mean |H - H*| {with_interval(smooth.tracking_nats)} nats "
            f"({with_interval(smooth.tracking_gain, True)} against the constant), |du| "
            f"{text(smooth.temperature_variation.value)} a token."
        )
    elif smooth is None and best is not None:
        out.append("No law that moves T by 5 % a token or less beats the constant on mean |H - H*|.")
    steadier = [row for row in regulators if below(row.spread_gain)]
    if steadier:
        row = min(steadier, key=lambda r: r.spread_nats.value)
        out.append(
            f"Feedback makes texts alike: the spread of per-text mean H is {with_interval(row.spread_nats)} nats with "
            f"{row.law.name}, {with_interval(row.spread_gain, True)} against the constant."
        )
    else:
        out.append("No law narrows the spread of mean H between texts beyond doubt.")
    better = [row for row in study.rows if row.law is not NOTHING and below(row.nll_gain)]
    if better:
        names = ", ".join(f"{row.law.name} ({with_interval(row.nll_gain, True)})" for row in better)
        out.append(
            f"At equal mean H, NLL is lower than with a constant for: {names}. Truncation lowers NLL by cutting the tail "
            "while H is measured before the cut, so read distinct-3 beside it."
        )
    else:
        out.append("No law lowers NLL at equal mean H: for quality alone none helps, set a constant temperature.")
    worse = [row for row in regulators if above(row.nll_gain)]
    if worse:
        names = ", ".join(f"{row.law.name} ({with_interval(row.nll_gain, True)})" for row in worse)
        out.append(f"NLL is higher than with the matched constant for: {names}.")
    out.append(
        "Mean H reaching H* is no evidence for an integral law: unclamped it does so identically; that is why every law "
        "stands beside the constant of equal mean H."
    )
    return out
