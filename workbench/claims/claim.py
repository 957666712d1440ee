"""A claim and its verdict: thresholds cut the axis of a measured quantity, and its whole 99 % interval must lie in one part.

    not reproduced | partly | reproduced          cuts: a tenth of the claimed effect, and the claimed effect
    reproduced | false in general                 cut: the largest violation that counts as none

Quantities are oriented so that more is more of what is claimed. Several quantities of one claim are joined: all of them
must hold ("all"), or they are settings of one claim ("settings": some hold and some do not is "partly").
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

TENTH = 0.1  # an effect below this share of the claimed one counts as none


class Verdict(Enum):
    REPRODUCED = "reproduced"
    PARTLY = "partly"
    NOT_REPRODUCED = "not reproduced"
    FALSE = "false in general"
    INCONCLUSIVE = "inconclusive"
    NOT_TESTABLE = "not testable here"


@dataclass(frozen=True)
class Measured:
    """A value with its 99 % interval; an exact value has low = high. `method` says how the interval was made."""

    value: float
    low: float
    high: float
    method: str
    num_replicates: int = 1


@dataclass(frozen=True)
class Rule:
    """`cuts` in rising order; `parts[i]` is the verdict between cuts i - 1 and i. A cut belongs to the part named
    by `closed`: "above" (reaching the claim is enough) or "below" (no violation beyond the cut)."""

    cuts: tuple[float, ...]
    parts: tuple[Verdict, ...]
    closed: Literal["above", "below"] = "above"

    def part(self, x: float) -> Verdict:
        above = sum(x >= cut if self.closed == "above" else x > cut for cut in self.cuts)
        return self.parts[above]

    def verdict(self, found: Measured) -> Verdict:
        low, high = self.part(found.low), self.part(found.high)
        return low if low is high else Verdict.INCONCLUSIVE


def at_least(claimed: float) -> Rule:
    """An effect of at least `claimed` > 0; below a tenth of it there is none."""
    parts = (Verdict.NOT_REPRODUCED, Verdict.PARTLY, Verdict.REPRODUCED)
    return Rule((TENTH * claimed, claimed), parts)


def above(cut: float) -> Rule:
    """A quantity above `cut`, or the claim is not reproduced."""
    return Rule((cut,), (Verdict.NOT_REPRODUCED, Verdict.REPRODUCED), closed="below")


def never_above(cut: float = 0.0) -> Rule:
    """A statement about all cases: its violation never exceeds `cut`; one case beyond is a counterexample."""
    return Rule((cut,), (Verdict.REPRODUCED, Verdict.FALSE), closed="below")


def at_most(cut: float) -> Rule:
    """A loss of at most `cut`, or the claim is not reproduced."""
    return Rule((cut,), (Verdict.REPRODUCED, Verdict.NOT_REPRODUCED), closed="below")


def graded(partly: float, reproduced: float) -> Rule:
    """A figure without a claimed effect to take a tenth of: below `partly` not reproduced, from `reproduced` on reproduced."""
    return Rule((partly, reproduced), (Verdict.NOT_REPRODUCED, Verdict.PARTLY, Verdict.REPRODUCED))


def within(low: float, high: float) -> Rule:
    """A figure between two cuts."""
    return Rule((low, high), (Verdict.NOT_REPRODUCED, Verdict.REPRODUCED, Verdict.NOT_REPRODUCED))


@dataclass(frozen=True)
class Quantity:
    """One measured number a verdict rests on: its name in the experiment's result, in words, and its rule."""

    name: str
    label: str
    rule: Rule


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One row of the ledger. `experiment` None: not testable here, and `needs` says what it would take."""

    id: str
    source: str
    says: str
    definition: str
    experiment: str | None
    quantities: tuple[Quantity, ...] = ()
    join: Literal["all", "settings"] = "all"
    needs: str = ""
    caution: str = ""


def decide(claim: Claim, found: Mapping[str, Measured]) -> Verdict:
    """The verdict of a claim from what its experiment measured. A missing quantity is inconclusive, never skipped."""
    if claim.experiment is None:
        return Verdict.NOT_TESTABLE
    parts = [q.rule.verdict(found[q.name]) if q.name in found else Verdict.INCONCLUSIVE for q in claim.quantities]
    return join_all(parts) if claim.join == "all" else join_settings(parts)


def join_all(parts: Sequence[Verdict]) -> Verdict:
    """Every part must hold: one that decidedly does not decides; then doubt; then the weakest."""
    for verdict in (Verdict.FALSE, Verdict.NOT_REPRODUCED, Verdict.INCONCLUSIVE, Verdict.PARTLY):
        if verdict in parts:
            return verdict
    return Verdict.REPRODUCED


def join_settings(parts: Sequence[Verdict]) -> Verdict:
    """Settings of one claim: those decided agree and none is in doubt, or two decided ones differ and it is "partly"."""
    decided = set(parts) - {Verdict.INCONCLUSIVE}
    if len(decided) > 1 or decided == {Verdict.PARTLY}:
        return Verdict.PARTLY
    return decided.pop() if decided and Verdict.INCONCLUSIVE not in parts else Verdict.INCONCLUSIVE
