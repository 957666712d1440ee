"""What a clamp does to the loop: projection, drift bound, recovery from saturation."""

from fractions import Fraction
from typing import Any

from workbench.analysis.certificate import Certificate, Falsehood, Verdict, Witness, fraction
from workbench.analysis.lemma import Lemma, Term, prove_lemmas, verdict_of

# Where a point lies -> (hypotheses on it, its projection); "a" and "b" are the ends of the interval.
REGIONS = {
    "below": (lambda x: (f"a - {x}",), lambda x: "a"),
    "inside": (lambda x: (f"{x} - a", f"b - {x}"), lambda x: x),
    "above": (lambda x: (f"{x} - b",), lambda x: "b"),
}
# For x >= y, how f (x - y) - (clip x - clip y) and clip x - clip y are sums of hypotheses (by index below).
CASES: dict[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...]]] = {
    ("below", "below"): (("x - y",), ()),
    ("inside", "below"): (("a - y",), ("x - a",)),
    ("above", "below"): (("x - b", "a - y"), ("b - a",)),
    ("inside", "inside"): ((), ("x - y",)),
    ("above", "inside"): (("x - b",), ("b - y",)),
    ("above", "above"): (("x - y",), ()),
}


def projection_lemmas(claim: dict[str, Any]) -> dict[str, Lemma]:
    f, lemmas = claim["factor"], {}
    for (where_x, where_y), (shrinks, keeps_order) in CASES.items():
        (at_x, clip_x), (at_y, clip_y) = REGIONS[where_x], REGIONS[where_y]
        given = tuple(dict.fromkeys(("x - y", "b - a", *at_x("x"), *at_y("y"))))
        difference = f"({clip_x('x')} - {clip_y('y')})"
        for name, shows, parts in (
            ("shrinks", f"{f}*(x - y) - {difference}", shrinks),
            ("keeps order", difference, keeps_order),
        ):
            lemmas[f"{where_x}, {where_y}: {name}"] = Lemma(
                variables=("a", "b", "x", "y"),
                given=given,
                shows=shows,
                terms=tuple(Term(factors=(part,)) for part in parts),
            )
    return lemmas


def prove_projection(factor: str = "1") -> Witness:
    claim = {"factor": factor}
    return {"claim": claim, "evidence": prove_lemmas(projection_lemmas(claim))}


def check_projection(witness: Witness) -> Verdict:
    return verdict_of(projection_lemmas(witness["claim"]), witness["evidence"])


def drift_lemmas(claim: dict[str, Any]) -> dict[str, Lemma]:
    """q = c D/(1 - r) is the claimed end; r^k is called w. The induction carries e <= w E + q to the next token."""
    c = claim["factor"]
    drift = f"q*(1 - r)/{Fraction(c).numerator}*{Fraction(c).denominator}"  # D in terms of q
    return {
        "one token": Lemma(
            variables=("r", "e", "D", "x", "m"),
            given=("r*e - m", "m + D - x"),
            shows="r*e + D - x",
            terms=(Term(factors=("r*e - m",)), Term(factors=("m + D - x",))),
        ),
        "start": Lemma(
            variables=("E", "e", "q"),
            given=("E - e", "q"),
            shows="E + q - e",
            terms=(Term(factors=("E - e",)), Term(factors=("q",))),
        ),
        "induction": Lemma(
            variables=("r", "w", "E", "q", "e", "x"),
            given=("r", "1 - r", "q", "w", "E", f"r*e + {drift} - x", "w*E + q - e"),
            shows="r*w*E + q - x",
            terms=(Term(factors=(f"r*e + {drift} - x",)), Term(factors=("r", "w*E + q - e"))),
        ),
    }


def prove_drift(factor: str = "1") -> Witness:
    claim = {"factor": factor}
    tight = {"rho": "4/5", "drift": "1/10", "tokens": 60}
    return {"claim": claim, "evidence": {**prove_lemmas(drift_lemmas(claim)), "tight": tight}}


def check_drift(witness: Witness) -> Verdict:
    """The lemmas, and a run with constant drift at V = V_lo that comes within a hair of the bound."""
    tight = witness["evidence"]["tight"]
    rho, drift, factor = fraction(tight["rho"]), fraction(tight["drift"]), fraction(witness["claim"]["factor"])
    error, power = Fraction(0), Fraction(1)
    for _ in range(int(tight["tokens"])):
        error, power = rho * error + drift, power * rho
        if error > factor * drift / (1 - rho):
            return Verdict(False, f"a run with constant drift reaches {float(error):.6f}, above the bound")
    reached = error / (drift / (1 - rho))
    close = Verdict(reached > Fraction(999, 1000), f"the run reaches only {float(reached):.2%} of the bound")
    return verdict_of(
        drift_lemmas(witness["claim"]), witness["evidence"], close, summary=f"a run reaches {float(reached):.4%}"
    )


def windup_lemmas(claim: dict[str, Any]) -> dict[str, Lemma]:
    """With the applied u as state it is inside the clamp; without, M saturated tokens cost at least M c / b more."""
    hurry = claim["hurry"]
    return {
        "the state is inside the clamp": Lemma(
            variables=("a", "b", "x"),
            given=("b - x", "x - a"),
            shows="b - a - (x - a)",
            terms=(Term(factors=("b - x",)),),
        ),
        "an unclamped integral still sits at the clamp": Lemma(
            variables=("k", "M", "c", "t", "b"),
            positive=("k", f"M*c - {hurry}*t*b"),
            given=("t", "b"),
            shows="k*M*c - k*t*b",
            sense="> 0",
            terms=(Term(factors=("k", f"M*c - {hurry}*t*b")),),
        ),
    }


def prove_windup(tokens: int = 378, hurry: str = "1") -> Witness:
    claim = {"log_range": "3", "rho": "197/200", "within": "1/100", "tokens": tokens, "hurry": hurry}
    return {"claim": claim, "evidence": prove_lemmas(windup_lemmas(claim))}


def check_windup(witness: Witness) -> Verdict:
    """rho^N range <= within, exactly; and the loop that contracts by exactly rho shows that N is not generous."""
    claim = witness["claim"]
    rho, within, n = fraction(claim["rho"]), fraction(claim["within"]), int(claim["tokens"])
    distance = fraction(claim["log_range"]) * rho**n
    in_time = Verdict(distance <= within, f"after {n} tokens still {float(distance):.5f} away")
    needed = Verdict(
        fraction(claim["log_range"]) * rho ** (n - 1) > within,
        f"{n} tokens are more than needed; the claim is not sharp",
    )
    return verdict_of(
        windup_lemmas(claim), witness["evidence"], in_time, needed, summary=f"{n} tokens suffice, {n - 1} do not"
    )


CERTIFICATES = (
    Certificate(
        name="projection",
        statement="a clamp keeps nonexpansiveness: |clip(x) - clip(y)| <= |x - y|, and order is kept",
        domain="every interval [a, b] and all real x, y",
        method="six cases (x >= y without loss), each a sum of its hypotheses; z3 beside them",
        argument="Regions overlap only at their ends, where the projections agree; x < y follows by exchanging names.",
        prove=prove_projection,
        check=check_projection,
        falsified=lambda: [Falsehood("|clip(x) - clip(y)| <= 0.999 |x - y|", prove_projection("999/1000"))],
    ),
    Certificate(
        name="drift-bound",
        statement="|e_k| <= rho^k |e_0| + sup|d| / (1 - rho), e_k = u_k - u*_k, when V >= V_lo > 0 between them",
        domain="every 0 <= rho < 1, every drift sequence d; u*_k is the clamped solution of token k",
        method="induction, each step a sum of hypotheses; a run that reaches 99.9 % of the bound",
        argument=(
            "u*_k is a fixed point of the clamped step, also when H* is out of reach, so by projection and contraction the "
            "step leaves at most rho |e_k|; the solution then moves by d_k. Tight for constant drift at V = V_lo."
        ),
        prove=prove_drift,
        check=check_drift,
        falsified=lambda: [Falsehood("0.99 sup|d| / (1 - rho)", prove_drift("99/100"))],
    ),
    Certificate(
        name="anti-windup",
        statement="after any saturation the loop recovers like a fresh start at the clamp: within 0.01 in 378 tokens",
        domain="clamp range ln T_max - ln T_min <= 3, rho = 0.985; an unclamped integral waits M c/b tokens, unbounded in M",
        method="exact rational powers; identities, z3 beside them",
        argument=(
            "The state is the applied u, so whatever came before it lies in the clamp and the distance to a reachable "
            "solution is at most the range; contraction does the rest. An integral that grew by k c for M tokens beyond "
            "the clamp and shrinks by at most k b a token is still beyond it after t < M c/b tokens."
        ),
        prove=prove_windup,
        check=check_windup,
        falsified=lambda: [
            Falsehood("within 0.01 in 377 tokens", prove_windup(377)),
            Falsehood("an unclamped integral waits 2 M c/b tokens", prove_windup(hurry="1/2")),
        ],
    ),
)
