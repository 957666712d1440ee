"""Early-stop rules on recorded chains of thought: what each would have saved, and what it would have answered.

Every `check_every_tokens` tokens the evaluation asked for the answer (cue appended, options scored, next-token entropy kept).
A rule sees those checks in order, one observation for all questions at once, and the first check it stops at counts:
tokens up to there, the likeliest option there. Questions it never stops keep their whole thought. Numbers have no options to
score midway, so tasks of numbers are left out.
Source: ours; the rules cite theirs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from controllers.routing.early_stop import ThoughtObservation
from workbench.protocols import Controller
from workbench.routing.bootstrap import Interval, mean_interval, resamples
from workbench.signals import BoolArray, IntArray


@dataclass(frozen=True, kw_only=True)
class EarlyStopRow:
    """One rule on one task; differences are against the whole chain of thought."""

    task: str
    rule: str
    num_questions: int
    stopped_share: float
    accuracy: Interval
    tokens_mean: Interval
    accuracy_vs_whole: Interval
    tokens_vs_whole: Interval


def early_stop_rows(
    table: pl.DataFrame,
    task: str,
    rules: Mapping[str, Controller[Any, Any, Any]],
    first_position: int = 0,
    seed: int = 0,
) -> list[EarlyStopRow]:
    """A row per rule; empty for a task of numbers, and for a slimmed table, which has no entropies of thoughts."""
    rows = (
        table.filter((pl.col("task") == task) & (pl.col("strategy") == "cot") & (pl.col("position") >= first_position))
        .sort("position")
        .to_dicts()
    )
    slim = any(len(row["entropy_raw_nats"]) < row["output_tokens"] for row in rows)
    if not rows or slim or any(row["likeliest"] is None for row in rows):
        return []
    whole_correct = np.array([row["likeliest"] == row["answer"] for row in rows])
    whole_tokens = np.array([row["output_tokens"] for row in rows])
    draws = resamples(len(rows), seed)
    out = []
    for name, rule in rules.items():
        stop_at = first_stop(rows, rule)
        stopped = stop_at >= 0
        tokens, correct = whole_tokens.copy(), whole_correct.copy()
        for i in np.flatnonzero(stopped):
            tokens[i] = rows[i]["check_tokens"][stop_at[i]]
            correct[i] = rows[i]["check_likeliest"][stop_at[i]] == rows[i]["answer"]
        out.append(
            EarlyStopRow(
                task=task,
                rule=name,
                num_questions=len(rows),
                stopped_share=float(stopped.mean()),
                accuracy=mean_interval(correct, draws),
                tokens_mean=mean_interval(tokens, draws),
                accuracy_vs_whole=mean_interval(correct.astype(float) - whole_correct, draws),
                tokens_vs_whole=mean_interval(tokens - whole_tokens, draws),
            )
        )
    return out


def first_stop(rows: list[dict[str, Any]], rule: Controller[Any, Any, Any]) -> IntArray:
    """[Q] index of the check each question stops at, -1 for none."""
    n = len(rows)
    longest = max((len(row["check_tokens"]) for row in rows), default=0)
    width = max((row["output_tokens"] for row in rows), default=1)
    entropy = np.full((n, width), np.nan)
    for i, row in enumerate(rows):
        entropy[i, : row["output_tokens"]] = row["entropy_raw_nats"]
    state, stop_at = rule.init(n), np.full(n, -1, dtype=np.int64)
    for k in range(longest):
        active: BoolArray = np.array([len(row["check_tokens"]) > k for row in rows])
        tokens = np.array([row["check_tokens"][k] if a else 0 for row, a in zip(rows, active, strict=True)])
        after = np.array([row["check_entropy_nats"][k] if a else np.nan for row, a in zip(rows, active, strict=True)])
        recent = np.full((n, width), np.nan)
        for i in np.flatnonzero(active):
            recent[i, width - tokens[i] :] = entropy[i, : tokens[i]]
        state, action = rule.step(
            state,
            ThoughtObservation(
                step=k,
                active=active,
                joined=active & (k == 0),
                request_id=np.where(active, np.arange(n), -1),
                measured=active,
                measured_step=np.full(n, k),
                thought_tokens=tokens,
                entropy_after_marker_nats=after,
                recent_entropy_nats=recent,
            ),
        )
        stop_at = np.where((stop_at < 0) & action.stop, k, stop_at)
    return stop_at
