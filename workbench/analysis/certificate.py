"""A certificate: a statement, how it is proved, and a checker that needs no faith in how it was proved.

    prove() -> witness        may search with floats, solvers, anything
    check(witness) -> verdict exact arithmetic, ball arithmetic or enumeration only

A witness is plain JSON: {"claim": the numbers the statement is about, "evidence": what the checker needs}. The checker
reads the claim from the witness, so that the same checker can be handed a slightly false claim (`falsified`) and must
reject it. Rational numbers travel as strings "p/q"; no float is ever part of an argument.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

Witness = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """What a checker found. `reason` says why, in one line."""

    holds: bool
    reason: str


@dataclass(frozen=True)
class Falsehood:
    """A slightly false version of a statement with the best evidence there is for it; the checker must reject it."""

    change: str
    witness: Witness


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """One named statement that is recomputed by machine.

    name       what `workbench prove NAME` asks for
    statement  what is proved, in one or two lines
    domain     for which numbers; a finite domain is spelled out
    method     identity and z3 | ball arithmetic | LMI with exact re-check | exhaustive | ...
    argument   the steps of the proof in words, so that a reader sees what each piece of evidence is for
    """

    name: str
    statement: str
    domain: str
    method: str
    argument: str
    prove: Callable[[], Witness]
    check: Callable[[Witness], Verdict]
    falsified: Callable[[], list[Falsehood]]


def fraction(text: str) -> Fraction:
    """A rational from "p/q" or a decimal string. Floats are refused: they have no place in an argument."""
    if not isinstance(text, str):
        raise TypeError(f"a rational in a witness is a string, got {text!r}")
    return Fraction(text)


def all_of(verdicts: list[Verdict], summary: str) -> Verdict:
    """Holds when every part holds; otherwise the first reason against it."""
    for verdict in verdicts:
        if not verdict.holds:
            return verdict
    return Verdict(True, summary)
