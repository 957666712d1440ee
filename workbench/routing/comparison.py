"""Every router against the baselines on one panel, with paired intervals.

A token saving means something only against three baselines at once: always-CoT (what the saving is quoted against),
always-Direct (which saves more than any router) and a random mix with the router's own shares (which needs no probe). So each row
carries the accuracy difference from all three. The random mix is exact, not drawn: accuracy and tokens are the
share-weighted means of the fixed strategies.
Source: ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from controllers.routing.descriptors import describe
from workbench.protocols import Controller, RouteReason, Strategy
from workbench.routing.bootstrap import Interval, auroc_interval, mean_interval, resamples
from workbench.routing.panel import Panel, needs_probe


@dataclass(frozen=True, kw_only=True)
class RouterRow:
    """One router on one task. Differences are router minus baseline, accuracy as a fraction, tokens per question."""

    task: str
    scoring: str
    router: str
    num_questions: int
    accuracy: Interval
    tokens_mean: Interval
    no_answer_share: float
    shares: dict[str, float]  # by strategy
    reasons: dict[str, float]  # by reason
    accuracy_vs_direct: Interval
    accuracy_vs_cot: Interval
    accuracy_vs_mix: Interval
    tokens_vs_direct: Interval
    tokens_vs_cot: Interval
    tokens_vs_mix: Interval

    @property
    def saving_vs_cot(self) -> float | None:
        """Share of always-CoT's tokens saved; negative where the router costs more."""
        if self.tokens_mean.value is None or self.tokens_vs_cot.value is None:
            return None
        cot = self.tokens_mean.value - self.tokens_vs_cot.value
        return -self.tokens_vs_cot.value / cot if cot > 0 else None

    @property
    def beats_mix(self) -> bool:
        """Better than chance routing with the same shares: accuracy above it with 95 % confidence."""
        return self.accuracy_vs_mix.low is not None and self.accuracy_vs_mix.low > 0.0


@dataclass(frozen=True)
class DescriptorRow:
    """How well one number tells the questions that only a chain of thought gets right (against Direct)."""

    task: str
    scoring: str
    descriptor: str
    num_helped: int
    num_questions: int
    auroc: Interval


def compare(panel: Panel, routers: Mapping[str, Controller[Any, Any, Any]], seed: int = 0) -> list[RouterRow]:
    """A row per router, on the same resamples."""
    draws = resamples(len(panel), seed)
    n = len(panel)
    fixed = {s: panel.outcome(np.full(n, int(s)), probed=False) for s in Strategy}
    rows = []
    for name, router in routers.items():
        action = panel.route(router)
        probed = needs_probe(router)
        correct, tokens = panel.outcome(action.strategy, probed)
        share = np.bincount(action.strategy, minlength=len(Strategy)) / n
        mixed_correct = sum(share[s] * fixed[s][0] for s in Strategy)
        mixed_tokens = sum(share[s] * fixed[s][1] for s in Strategy)
        answered = panel.answered[np.arange(n), action.strategy]

        def against(other: Any, mine: Any) -> Interval:
            return mean_interval(np.asarray(mine, dtype=np.float64) - other, draws)

        rows.append(
            RouterRow(
                task=panel.task,
                scoring=panel.scoring,
                router=name,
                num_questions=n,
                accuracy=mean_interval(correct, draws),
                tokens_mean=mean_interval(tokens, draws),
                no_answer_share=float(1.0 - answered.mean()),
                shares={s.name.lower(): float(share[s]) for s in Strategy},
                reasons={r.name.lower(): float((action.reason == r).mean()) for r in RouteReason},
                accuracy_vs_direct=against(fixed[Strategy.DIRECT][0], correct),
                accuracy_vs_cot=against(fixed[Strategy.COT][0], correct),
                accuracy_vs_mix=against(mixed_correct, correct),
                tokens_vs_direct=against(fixed[Strategy.DIRECT][1], tokens),
                tokens_vs_cot=against(fixed[Strategy.COT][1], tokens),
                tokens_vs_mix=against(mixed_tokens, tokens),
            )
        )
    return rows


def oracle_row(panel: Panel, seed: int = 0) -> tuple[Interval, Interval]:
    """(accuracy, tokens) of a router that knows which strategy is right and takes the cheapest such: the most to be had."""
    draws = resamples(len(panel), seed)
    cost = panel.output_tokens + np.where(np.arange(3) == Strategy.STANDARD, 0, panel.probe_tokens[:, None])
    priced = np.where(panel.correct, cost, np.iinfo(np.int64).max // 2)
    best = np.where(panel.correct.any(axis=1), priced.argmin(axis=1), cost.argmin(axis=1))
    correct, tokens = panel.outcome(best, probed=True)
    return mean_interval(correct, draws), mean_interval(tokens, draws)


def descriptor_rows(panel: Panel, seed: int = 0) -> list[DescriptorRow]:
    """AUROC of S_H, -V_sp (falling counts as high), avnr and probe length for "CoT right and Direct wrong"."""
    draws = resamples(len(panel), seed, 1000)
    helped = panel.correct[:, Strategy.COT] & ~panel.correct[:, Strategy.DIRECT]
    numbers = describe(panel.probe_entropy_nats, panel.probe_tokens)
    scores = {
        "S_H": numbers.sum_nats,
        "-V_sp": -numbers.trend,
        "avnr": numbers.avnr,
        "probe length": panel.probe_tokens.astype(np.float64),
    }
    return [
        DescriptorRow(
            panel.task,
            panel.scoring,
            name,
            int(helped.sum()),
            len(panel),
            auroc_interval(score, helped, draws),
        )
        for name, score in scores.items()
    ]
