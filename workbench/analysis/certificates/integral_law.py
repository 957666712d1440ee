"""The integral law without delay: universal gain bound and its tightness, contraction on a clamp, the explore law."""

from typing import Any

import flint

from workbench.analysis.ball import ball, level_statistics, precision
from workbench.analysis.certificate import Certificate, Falsehood, Verdict, Witness, fraction
from workbench.analysis.certificates.max_varentropy import check_values, prove_values
from workbench.analysis.lemma import Lemma, Term, prove_lemmas, verdict_of

TIGHT_SIZES = (25, 49152, 151936)


def gain_lemmas(claim: dict[str, Any]) -> dict[str, Lemma]:
    limit = claim["limit"]
    return {
        # 1 - (1 - kV)^2 = kV (2 - kV), and kV <= k M <= limit.
        "slope within [-1, 1]": Lemma(
            variables=("k", "V", "M"),
            given=("k", "V", "M - V", f"{limit} - k*M"),
            shows="1 - (1 - k*V)**2",
            terms=(
                Term(factors=("k", "V", f"{limit} - k*M")),
                Term(factors=("k", "k", "V", "M - V")),
            ),
        )
    }


def prove_gain(limit: str = "2") -> Witness:
    claim = {"limit": limit, "excess": "1/1000000"}
    values = prove_values(sizes=TIGHT_SIZES)
    atoms = {size: found["root_low"] for size, found in values["evidence"].items()}
    evidence = {**prove_lemmas(gain_lemmas(claim)), "max_varentropy": values, "atom_logit": atoms}
    return {"claim": claim, "evidence": evidence}


def check_gain(witness: Witness) -> Verdict:
    """The lemma for "nonexpansive"; for "tight", an explicit logit vector whose slope at u = 0 is below -1."""
    limit, excess = fraction(witness["claim"]["limit"]), fraction(witness["claim"]["excess"])
    values = witness["evidence"]["max_varentropy"]
    parts = [check_values(values)]
    with precision(200):
        for size, logit in witness["evidence"]["atom_logit"].items():
            claimed = values["claim"][size]
            gain = ball(limit * (1 + excess) / (fraction(claimed["value"]) + fraction(claimed["radius"])))
            # one atom with logit p = x among n outcomes stands x + ln(n - 1) above the others; V from its definition
            n = int(size)
            _, varentropy = level_statistics(
                [(ball(fraction(logit)) + flint.arb(n - 1).log(), 1), (flint.arb(0), n - 1)]
            )
            parts.append(Verdict(bool(1 - gain * varentropy < -1), f"n = {n}: this vector's slope is not below -1"))
    return verdict_of(
        gain_lemmas(witness["claim"]), witness["evidence"], *parts, summary=f"tight at {len(parts) - 1} vocabularies"
    )


def clamp_lemmas(claim: dict[str, Any]) -> dict[str, Lemma]:
    """V between A = V_lo and B = V_hi; r is any number that is at least |1 - kA| and |1 - kB|."""
    rho = f"{claim['shrink']}*r"
    low_above, low_below, high_above, high_below = "r - 1 + k*A", "r + 1 - k*A", "r - 1 + k*B", "r + 1 - k*B"
    hypotheses = ("V - A", "B - V", low_above, low_below, high_above, high_below)
    variables = ("k", "A", "B", "V", "r")
    return {
        "1 - kV <= rho": Lemma(
            variables=variables,
            given=hypotheses,
            positive=("B - A",),
            shows=f"{rho} - (1 - k*V)",
            multiplier=("B - A",),
            terms=(Term(factors=("B - V", low_above)), Term(factors=("V - A", high_above))),
        ),
        "kV - 1 <= rho": Lemma(
            variables=variables,
            given=hypotheses,
            positive=("B - A",),
            shows=f"{rho} + (1 - k*V)",
            multiplier=("B - A",),
            terms=(Term(factors=("B - V", low_below)), Term(factors=("V - A", high_below))),
        ),
        "1 - kA < 1": Lemma(
            variables=("k", "A"),
            positive=("k", "A"),
            shows="1 - (1 - k*A)",
            sense="> 0",
            terms=(Term("1", ("k", "A")),),
        ),
    }


def prove_clamp(shrink: str = "1") -> Witness:
    claim = {"shrink": shrink}
    return {"claim": claim, "evidence": prove_lemmas(clamp_lemmas(claim))}


def check_clamp(witness: Witness) -> Verdict:
    return verdict_of(clamp_lemmas(witness["claim"]), witness["evidence"])


def explore_lemmas(claim: dict[str, Any]) -> dict[str, Lemma]:
    growth = claim["growth"]
    return {
        "the slope exceeds one": Lemma(
            variables=("k", "V"),
            positive=("k", "V"),
            shows="(1 + k*V) - 1",
            sense="> 0",
            terms=(Term("1", ("k", "V")),),
        ),
        "distances grow": Lemma(
            variables=("k", "V", "A"),
            given=("k", "A", "V - A"),
            shows=f"(1 + k*V) - (1 + {growth}*k*A)",
            terms=(Term(factors=("k", "V - A")),),
        ),
    }


def prove_explore(growth: str = "1") -> Witness:
    claim = {"growth": growth}
    return {"claim": claim, "evidence": prove_lemmas(explore_lemmas(claim))}


def check_explore(witness: Witness) -> Verdict:
    return verdict_of(explore_lemmas(witness["claim"]), witness["evidence"])


def mean_lemmas(claim: dict[str, Any]) -> dict[str, Lemma]:
    """Induction on k s + f (u - a) = 0, s the summed error so far and a the start: no token, then one more of error e."""
    f = claim["factor"]
    return {
        "no token": Lemma(variables=("a", "k"), shows=f"k*0 + {f}*(a - a)", sense="= 0"),
        "one more token": Lemma(
            variables=("a", "k", "s", "u", "e"),
            shows=f"(k*(s + e) + {f}*((u - k*e) - a)) - (k*s + {f}*(u - a))",
            sense="= 0",
        ),
    }


def prove_mean(factor: str = "1") -> Witness:
    claim = {"factor": factor}
    return {"claim": claim, "evidence": prove_lemmas(mean_lemmas(claim))}


def check_mean(witness: Witness) -> Verdict:
    return verdict_of(mean_lemmas(witness["claim"]), witness["evidence"])


CERTIFICATES = (
    Certificate(
        name="gain-bound",
        statement="the I law is nonexpansive for every logit vector when k_i V_max <= 2, and 2 cannot be raised",
        domain=f"every n and logit vector; tightness at n in {', '.join(map(str, TIGHT_SIZES))} with an excess of 1e-6",
        method="identity, z3 beside it; ball arithmetic on an explicit logit vector for tightness",
        argument=(
            "By the mean value theorem two starts move apart by |1 - k V| at some u between them, and 0 <= V <= M = "
            "V_max: 1 - (1 - kV)^2 >= 0. At gain (2 + 2e-6)/V_max the one-atom vector has slope below -1 at its own u."
        ),
        prove=prove_gain,
        check=check_gain,
        falsified=lambda: [
            Falsehood("nonexpansive up to k_i V_max = 2.001", prove_gain("2001/1000")),
            Falsehood("1.9 cannot be raised", {**prove_gain(), "claim": {"limit": "19/10", "excess": "1/1000000"}}),
        ],
    ),
    Certificate(
        name="clamp-contraction",
        statement="on a clamp where V is in [V_lo, V_hi] the I law contracts with rho = max(|1-k V_lo|, |1-k V_hi|)",
        domain="every k > 0 and 0 < V_lo < V_hi; rho < 1 exactly when k V_hi < 2",
        method="identities (V as a mixture of the ends), z3 beside them",
        argument="|1 - k V| is convex in V, so an interval's largest value is at an end; 1 - k V_lo < 1 as k V_lo > 0.",
        prove=prove_clamp,
        check=check_clamp,
        falsified=lambda: [Falsehood("contracts with 0.999 rho", prove_clamp("999/1000"))],
    ),
    Certificate(
        name="explore-expands",
        statement="the integral explore law u+ = u + k(H - H*) moves any two starts apart by at least 1 + k V_lo a step",
        domain="every k > 0, V >= V_lo > 0 between the starts, until a clamp is reached",
        method="identities, z3 beside them",
        argument="Its slope is 1 + k V > 1: the fixed point H = H* repels, so the law ends at a clamp.",
        prove=prove_explore,
        check=check_explore,
        falsified=lambda: [Falsehood("apart by 1 + 1.01 k V_lo", prove_explore("101/100"))],
    ),
    Certificate(
        name="mean-entropy-identity",
        statement="an unclamped I law has mean(H) - H* = -(u_end - u_0)/(k_i n), whatever the plant does",
        domain="every n >= 1, every entropy sequence",
        method="induction over tokens, each step an identity",
        argument="u_n - u_0 = -k_i sum (H - H*) telescopes: a mean near H* says nothing about tracking.",
        prove=prove_mean,
        check=check_mean,
        falsified=lambda: [Falsehood("mean(H) - H* = -1.01 (u_end - u_0)/(k_i n)", prove_mean("101/100"))],
    ),
)
