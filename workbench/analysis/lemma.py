"""A polynomial inequality with an explicit proof: an identity that anybody can expand.

    given_1 >= 0, ..., positive_1 > 0, ...  imply  shows >= 0  (or > 0)

is proved by an identity  multiplier * shows = sum of  coefficient * product of hypotheses * squares  with positive
rational coefficients and a multiplier that is a product of positive hypotheses. The checker only expands both sides
over the rationals. For a strict conclusion one term must be a product of positive hypotheses alone. An identity
(`shows = 0`) has no terms and no multiplier. z3 decides the same statement separately in `prove`, and names a
counterexample where the statement is false.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import z3

from workbench.analysis.certificate import Verdict, all_of
from workbench.analysis.polynomial import exact, solver_term


@dataclass(frozen=True)
class Term:
    """coefficient * product of `factors` (hypotheses, by their text) * product of squares of `squares`."""

    coefficient: str = "1"
    factors: tuple[str, ...] = ()
    squares: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Lemma:
    """The statement and its proof. `sense` is ">= 0", "> 0" or "= 0"."""

    variables: tuple[str, ...]
    shows: str
    sense: str = ">= 0"
    given: tuple[str, ...] = ()
    positive: tuple[str, ...] = ()
    terms: tuple[Term, ...] = ()
    multiplier: tuple[str, ...] = ()

    def text(self) -> str:
        hypotheses = [f"{g} >= 0" for g in self.given] + [f"{p} > 0" for p in self.positive]
        return (f"{', '.join(hypotheses)} imply " if hypotheses else "") + f"{self.shows} {self.sense}"


def proof_of(lemma: Lemma) -> dict[str, Any]:
    """The proof as JSON, for a witness."""
    return {
        "states": lemma.text(),
        "multiplier": list(lemma.multiplier),
        "terms": [
            {"coefficient": t.coefficient, "factors": list(t.factors), "squares": list(t.squares)} for t in lemma.terms
        ],
    }


def expands(lemma: Lemma, proof: dict[str, Any]) -> Verdict:
    """Does the identity in `proof` prove `lemma`? Exact; uses no part of `lemma` but its statement."""
    names, allowed = lemma.variables, (*lemma.given, *lemma.positive)
    left = exact(lemma.shows, names)
    for factor in proof["multiplier"]:
        if factor not in lemma.positive:
            return Verdict(False, f"multiplier {factor} is not known to be positive")
        left = left * exact(factor, names)
    right, strictly = exact("0", names), False
    for term in proof["terms"]:
        if Fraction(term["coefficient"]) <= 0:
            return Verdict(False, f"coefficient {term['coefficient']} is not positive")
        numerator, denominator = Fraction(term["coefficient"]).as_integer_ratio()
        product = exact(f"{numerator}/{denominator}", names)
        for factor in term["factors"]:
            if factor not in allowed:
                return Verdict(False, f"{factor} is not among the hypotheses")
            product = product * exact(factor, names)
        for square in term["squares"]:
            product = product * exact(square, names) * exact(square, names)
        strictly = strictly or (not term["squares"] and all(f in lemma.positive for f in term["factors"]))
        right = right + product
    if left != right:
        return Verdict(False, f"the two sides differ for: {lemma.text()}")
    if lemma.sense == "= 0" and proof["terms"]:
        return Verdict(False, f"an identity needs no terms: {lemma.text()}")
    if lemma.sense == "> 0" and not strictly:
        return Verdict(False, f"no strictly positive term for: {lemma.text()}")
    return Verdict(True, f"expands: {lemma.text()}")


def decide(lemma: Lemma, timeout_ms: int = 10_000) -> str:
    """z3's own answer: "proved", a counterexample "x = 1/2, ...", or "undecided"."""
    names = lemma.variables
    solver = z3.Solver()
    solver.set("timeout", timeout_ms)
    solver.add(*(solver_term(g, names) >= 0 for g in lemma.given))
    solver.add(*(solver_term(p, names) > 0 for p in lemma.positive))
    goal = solver_term(lemma.shows, names)
    solver.add({">= 0": goal < 0, "> 0": goal <= 0, "= 0": goal != 0}[lemma.sense])
    answer = solver.check()
    if answer == z3.unsat:
        return "proved"
    if answer == z3.sat:
        model = solver.model()
        return ", ".join(f"{name} = {model.eval(z3.Real(name), model_completion=True)}" for name in names)
    return "undecided"


def prove_lemmas(lemmas: dict[str, Lemma], ask_up_to_variables: int = 12) -> dict[str, Any]:
    """Evidence for a set of lemmas: each proof, and what z3 says about the same statement (unless it is too large)."""
    return {
        name: {**proof_of(lemma), "z3": decide(lemma) if len(lemma.variables) <= ask_up_to_variables else "not asked"}
        for name, lemma in lemmas.items()
    }


def check_lemmas(lemmas: dict[str, Lemma], evidence: dict[str, Any]) -> list[Verdict]:
    """Expand every proof. A rejection quotes z3's counterexample where the witness has one."""
    verdicts = []
    for name, lemma in lemmas.items():
        if name not in evidence:
            verdicts.append(Verdict(False, f"no proof of {name}: {lemma.text()}"))
            continue
        verdict = expands(lemma, evidence[name])
        at = evidence[name].get("z3", "")
        quote = f"; z3: false at {at}" if not verdict.holds and "=" in at else ""
        verdicts.append(Verdict(verdict.holds, verdict.reason + quote))
    return verdicts


def verdict_of(lemmas: dict[str, Lemma], evidence: dict[str, Any], *more: Verdict, summary: str = "") -> Verdict:
    """All lemmas and all further parts hold; `summary` adds to the reason when they do."""
    parts: Sequence[Verdict] = [*more, *check_lemmas(lemmas, evidence)]
    counted = f"{len(lemmas)} identit{'y' if len(lemmas) == 1 else 'ies'} expanded"
    return all_of(list(parts), "; ".join(part for part in (counted, summary) if part))
