"""What an evaluation shows and what it cannot, in sentences computed from its rows: the head of the report.

Every comparison is made at 95 % one at a time, and the count says out of how many, so that what chance gives is in sight.
"""

import math
from collections.abc import Mapping, Sequence

from workbench.routing.bootstrap import Interval
from workbench.routing.comparison import DescriptorRow, RouterRow
from workbench.routing.precision import FlipRow

LEAST_HELPED = 5  # an AUROC over fewer positives says nothing
FIXED = ("always-standard", "always-direct", "always-cot")


def findings(
    routers: Sequence[RouterRow],
    descriptors: Sequence[DescriptorRow],
    flips: Sequence[FlipRow],
    chance: Mapping[str, float],
    rule: str = "heuristic",
) -> list[str]:
    """One sentence a finding; none about what was not measured."""
    by = {(row.task, row.scoring, row.router): row for row in routers}
    said: list[str] = []
    plain = [row for row in routers if row.router == rule and row.scoring == "extraction"]
    if saved := [row.saving_vs_cot for row in plain if row.saving_vs_cot is not None]:
        direct = [by[row.task, row.scoring, "always-direct"].saving_vs_cot for row in plain]
        known = [d for d in direct if d is not None]
        said.append(
            f"Tokens: against always-CoT the plain rule saves {_span(saved)} of the output tokens, probe included (the paper says "
            f"41 to 55 %); always-Direct saves {_span(known)} and needs no probe."
        )
    if plain:
        overload = ", ".join(f"{row.task} {100 * row.reasons.get('overload', 0.0):.0f} %" for row in plain)
        said.append(f"Why it saves: the share sent to Direct by overload alone is {overload}.")
    said += _cot_against_direct(by)
    looking = [row for row in routers if row.router not in FIXED]
    better = [row for row in looking if _above(row.accuracy_vs_direct)]
    said.append(
        f"Accuracy: of {len(looking)} router, task and scoring rows {len(better)} beat always-Direct beyond the interval"
        f"{_named(better)}."
    )
    skilled = [row for row in looking if row.beats_mix]
    said.append(
        f"Routing skill: {len(skilled)} of {len(looking)} rows beat a random mix of their own shares{_named(skilled)}; chance alone "
        f"gives about {0.025 * len(looking):.0f}."
    )
    told = [d for d in descriptors if d.auroc.low is not None and d.num_helped >= LEAST_HELPED]
    sure = [d for d in told if d.auroc.low is not None and d.auroc.low > 0.5]
    if told:
        names = f" ({', '.join(f'{d.descriptor} on {d.task} by {d.scoring}' for d in sure)})" if sure else ""
        said.append(
            f"Descriptors: {len(sure)} of {len(told)} tell where a chain of thought helps, AUROC above 0.5 beyond the interval{names}; "
            f"counted where it helps at least {LEAST_HELPED} questions."
        )
    if flips:
        worst = max(flips, key=lambda f: f.flip_share)
        mean = sum(f.flip_share for f in flips) / len(flips)
        said.append(
            f"Rounding: reading the same probes in the other dtype flips {100 * mean:.1f} % of decisions on average over routers and "
            f"tasks, at most {100 * worst.flip_share:.1f} % ({worst.router} on {worst.task})."
        )
    said += _limits(by, chance)
    return said


def _cot_against_direct(by: Mapping[tuple[str, str, str], RouterRow]) -> list[str]:
    rows = [row for (_, _, name), row in by.items() if name == "always-cot"]
    up = [row for row in rows if _above(row.accuracy_vs_direct)]
    down = [row for row in rows if _below(row.accuracy_vs_direct)]
    return [
        f"A chain of thought is better than Direct beyond the interval on {len(up)} of {len(rows)} task and scoring pairs"
        f"{_named(up)}, and worse on {len(down)}{_named(down)}."
    ]


def _limits(by: Mapping[tuple[str, str, str], RouterRow], chance: Mapping[str, float]) -> list[str]:
    """What the model's size cannot show: tasks where no fixed strategy is better than guessing, or right one time in ten."""
    weak = []
    for task in dict.fromkeys(task for task, _, _ in by):
        rows = [by[task, "extraction", name] for name in FIXED if (task, "extraction", name) in by]
        guess = chance.get(task, math.nan)
        level = 0.1 if math.isnan(guess) else guess
        if rows and not any(row.accuracy.low is not None and row.accuracy.low > level for row in rows):
            best = max(row.accuracy.value or 0.0 for row in rows)
            weak.append(f"{task} ({best:.3f}, {'one in ten' if math.isnan(guess) else f'guessing {guess:.2f}'})")
    if not weak:
        return []
    return [
        f"What this model cannot show: by extraction no strategy is surely above the mark on {', '.join(weak)}. Where a chain of "
        "thought does not help, no router can find out where it helps; such tasks test the machinery, the token accounts and "
        "the null, not the paper's claim about models that reason. The same command takes a larger local model (--model)."
    ]


def _above(value: Interval) -> bool:
    return value.low is not None and value.low > 0.0


def _below(value: Interval) -> bool:
    return value.high is not None and value.high < 0.0


def _span(values: Sequence[float]) -> str:
    low, high = 100 * min(values), 100 * max(values)
    return f"{low:.0f} %" if round(low) == round(high) else f"{low:.0f} to {high:.0f} %"


def _named(rows: Sequence[RouterRow]) -> str:
    if not rows:
        return ""
    return " (" + "; ".join(f"{row.router} on {row.task} by {row.scoring}" for row in rows) + ")"
