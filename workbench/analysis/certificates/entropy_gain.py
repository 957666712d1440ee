"""dH/du = V: the gain of the temperature loop, for any number of outcomes."""

from typing import Any

import flint

from workbench.analysis.ball import entropy_series, precision
from workbench.analysis.certificate import Certificate, Falsehood, Verdict, Witness, all_of, fraction
from workbench.analysis.polynomial import exact

NAMES = ("b", "L", "m1", "m2")
ROWS = (["0", "1", "3/2"], ["5", "0", "0", "0", "-2"], ["1/3"] * 4 + ["-7/5"], ["12", "11", "0", "0", "0", "-40"])


def differentiate(polynomial: flint.fmpq_mpoly) -> flint.fmpq_mpoly:
    """d/db of a polynomial in b, L, m1, m2 by the chain rule, with L' = m1 and m1' = m2 - m1^2."""
    if not polynomial.derivative(NAMES.index("m2")).is_zero():
        raise ValueError("the third moment is not part of this argument")
    by_b, by_l, by_m = (polynomial.derivative(NAMES.index(name)) for name in ("b", "L", "m1"))
    return by_b + by_l * exact("m1", NAMES) + by_m * exact("m2 - m1**2", NAMES)


def prove(factor: str = "1") -> Witness:
    return {
        "claim": {"factor": factor},
        "evidence": {
            "entropy": "L - b*m1",
            "second_moment_of_ln_p": "b**2*m2 - 2*b*L*m1 + L**2",
            "logit_rows": [list(row) for row in ROWS],
        },
    }


def check(witness: Witness) -> Verdict:
    factor = fraction(witness["claim"]["factor"])
    evidence: dict[str, Any] = witness["evidence"]
    p, q = factor.as_integer_ratio()
    entropy = exact(evidence["entropy"], NAMES)
    varentropy = exact(evidence["second_moment_of_ln_p"], NAMES) - entropy * entropy
    defining = [
        Verdict(entropy == exact("-(b*m1 - L)", NAMES), "the entropy is not -E[ln p]"),
        Verdict(exact(evidence["second_moment_of_ln_p"], NAMES) == exact("b**2*m2 - 2*b*L*m1 + L**2", NAMES), "E ln^2"),
    ]
    gain = -exact("b", NAMES) * differentiate(entropy)
    symbolic = Verdict(gain == varentropy * exact(f"{p}/{q}", NAMES), f"dH/du is not {factor} V as polynomials")
    balls = []
    with precision(200):
        for row in evidence["logit_rows"]:
            for log_temperature in ("0", "-7/10", "9/10"):
                slope, varentropy_ball = entropy_series(row, log_temperature)
                balls.append(
                    Verdict(
                        slope.overlaps(varentropy_ball * flint.arb(flint.fmpq(p, q))), f"balls are disjoint on {row}"
                    )
                )
    return all_of([*defining, symbolic, *balls], f"equal as polynomials; {len(balls)} ball evaluations agree")


def falsified() -> list[Falsehood]:
    return [
        Falsehood("dH/du = 1.001 V", prove("1001/1000")),
        Falsehood("dH/du = -V", prove("-1")),
    ]


CERTIFICATES = (
    Certificate(
        name="entropy-gain",
        statement="dH/du = V with u = ln T: the plant gain of the temperature loop is the varentropy",
        domain="every n >= 1, every finite logit vector, every T > 0",
        method="exact differential algebra; ball arithmetic on sample rows",
        argument=(
            "With b = 1/T, S_k = sum z^k exp(b z), L = ln S_0, m_k = S_k/S_0: dS_k/db = S_{k+1} for any finite sum, so "
            "L' = m1 and m1' = m2 - m1^2. ln p = b z - L gives H = L - b m1 and E[ln^2 p] = b^2 m2 - 2 b L m1 + L^2. "
            "db/du = -b, hence dH/du = -b dH/db, which equals E[ln^2 p] - H^2 as polynomials."
        ),
        prove=prove,
        check=check,
        falsified=falsified,
    ),
)
