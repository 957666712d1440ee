"""What dropping attention mass can do to one head, and what bounds the mass that is dropped unread."""

from typing import Any

from workbench.analysis.certificate import Certificate, Falsehood, Verdict, Witness, fraction
from workbench.analysis.lemma import Lemma, Term, prove_lemmas, verdict_of


def output_lemmas(claim: dict[str, Any]) -> dict[str, Lemma]:
    """Per coordinate: K and D are the means of kept and dropped values, d the dropped mass, g the diameter."""
    f = claim["factor"]
    return {
        "the change": Lemma(variables=("d", "K", "D"), shows="((1 - d)*K + d*D) - K - d*(D - K)", sense="= 0"),
        "means are as far as a mixture of pairs": Lemma(
            variables=("a", "b", "v1", "v2", "w1", "w2"),
            shows="(b*w1 + (1 - b)*w2) - (a*v1 + (1 - a)*v2) - (a*b*(w1 - v1) + a*(1 - b)*(w2 - v1)"
            " + (1 - a)*b*(w1 - v2) + (1 - a)*(1 - b)*(w2 - v2))",
            sense="= 0",
        ),
        "at most the diameter": Lemma(
            variables=("d", "g", "x"),
            given=("d", "g - x", "x"),
            shows=f"{f}*d*g - d*x",
            terms=(Term(factors=("d", "g - x")),),
        ),
        "the diameter is at most twice the norm": Lemma(
            variables=("v", "w", "m", "x"),
            given=("m - v", "m - w", "v + w - x"),
            shows="2*m - x",
            terms=(Term(factors=("m - v",)), Term(factors=("m - w",)), Term(factors=("v + w - x",))),
        ),
    }


def prove_output(factor: str = "1") -> Witness:
    claim = {"factor": factor}
    tight = {"dropped": "1/4", "kept_value": "-1", "dropped_value": "1"}
    return {"claim": claim, "evidence": {**prove_lemmas(output_lemmas(claim)), "tight": tight}}


def check_output(witness: Witness) -> Verdict:
    tight = witness["evidence"]["tight"]
    dropped, kept_v, dropped_v = (fraction(tight[k]) for k in ("dropped", "kept_value", "dropped_value"))
    change = abs(((1 - dropped) * kept_v + dropped * dropped_v) - kept_v)
    bound = fraction(witness["claim"]["factor"]) * dropped * abs(kept_v - dropped_v)
    holds = Verdict(change <= bound, f"one kept and one dropped value change the output by {change} > {bound}")
    return verdict_of(output_lemmas(witness["claim"]), witness["evidence"], holds, summary="tight for two values")


def mass_lemmas(claim: dict[str, Any]) -> dict[str, Lemma]:
    """A kept, T truly dropped, B >= T its bound; then the bounds on one score from a box and from a ball of keys."""
    f = claim["factor"]
    return {
        "dropped mass": Lemma(
            variables=("A", "B", "T"),
            positive=("A",),
            given=("T", "B - T"),
            shows=f"{f}*B*(A + T) - T*(A + B)",
            terms=(Term(factors=("A", "B - T")),),
        ),
        "box, q >= 0": Lemma(
            variables=("q", "k", "h"), given=("q", "h - k"), shows="q*h - q*k", terms=(Term(factors=("q", "h - k")),)
        ),
        "box, q <= 0": Lemma(
            variables=("w", "k", "l"), given=("w", "k - l"), shows="-w*l + w*k", terms=(Term(factors=("w", "k - l")),)
        ),
        # |q|^2 |e|^2 - (q.e)^2 is a sum of squares (Lagrange), shown for heads of three coordinates
        "ball of keys": Lemma(
            variables=("q1", "q2", "q3", "e1", "e2", "e3"),
            shows="(q1**2 + q2**2 + q3**2)*(e1**2 + e2**2 + e3**2) - (q1*e1 + q2*e2 + q3*e3)**2",
            terms=tuple(Term(squares=(f"q{i}*e{j} - q{j}*e{i}",)) for i, j in ((1, 2), (1, 3), (2, 3))),
        ),
    }


def prove_mass(factor: str = "1") -> Witness:
    claim = {"factor": factor}
    return {"claim": claim, "evidence": prove_lemmas(mass_lemmas(claim), ask_up_to_variables=4)}


def check_mass(witness: Witness) -> Verdict:
    return verdict_of(mass_lemmas(witness["claim"]), witness["evidence"])


CERTIFICATES = (
    Certificate(
        name="pruning-output",
        statement="dropping mass delta and renormalising moves a head's output by at most delta diam <= 2 delta max||v||",
        domain="one head, one layer, one query; every set of values and every dropped set",
        method="identities, z3 beside them; a two-value example that attains the bound",
        argument=(
            "Old minus new output is delta (D - K), means of dropped and kept values. A difference of means is a mixture of "
            "pairwise differences (shown for two and two, the general sum is the same), so by the triangle inequality its "
            "norm is at most the diameter, itself at most ||v|| + ||w||."
        ),
        prove=prove_output,
        check=check_output,
        falsified=lambda: [Falsehood("at most 0.99 delta diam", prove_output("99/100"))],
    ),
    Certificate(
        name="dropped-mass",
        statement="kept sum A, upper bound B of what is dropped unread: the dropped mass is at most B/(A + B)",
        domain="all A > 0 and 0 <= true dropped sum <= B; key boxes in any dimension, key balls shown in three",
        method="identities, z3 beside the small ones",
        argument=(
            "T/(A+T) rises with T. A box bounds q.k coordinate by coordinate; a ball by q.c + |q| |k - c| (Cauchy and "
            "Schwarz as Lagrange's sum of squares); exp is monotone."
        ),
        prove=prove_mass,
        check=check_mass,
        falsified=lambda: [Falsehood("at most 0.99 B/(A + B)", prove_mass("99/100"))],
    ),
)
