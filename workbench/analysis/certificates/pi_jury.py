"""The Jury region of the PI law at frozen varentropy: exactly where its two poles lie inside the unit circle."""

from typing import Any

import z3

from workbench.analysis.certificate import Certificate, Falsehood, Verdict, Witness
from workbench.analysis.lemma import Lemma, prove_lemmas, verdict_of

# z^2 + a z + b with a = -(1 - (k_p + k_i) V), b = -k_p V
A, B = "((p + k)*V - 1)", "(0 - p*V)"


def lemmas(claim: dict[str, Any]) -> dict[str, Lemma]:
    """The three Jury numbers in terms of the gains, and the map of the circle to the half plane."""
    at_minus_one, product = claim["at_minus_one"], claim["product"]
    names = ("p", "k", "V")
    return {
        "1 + a + b": Lemma(variables=names, shows=f"(1 + {A} + {B}) - k*V", sense="= 0"),
        "1 - a + b": Lemma(variables=names, shows=f"(1 - {A} + {B}) - ({at_minus_one} - (k + 2*p)*V)", sense="= 0"),
        "1 - b^2": Lemma(variables=names, shows=f"(1 - {B}**2) - ({product} - (p*V)**2)", sense="= 0"),
        # z = (1 + w)/(1 - w): (1 - w)^2 (z^2 + a z + b) = (1 - a + b) w^2 + 2 (1 - b) w + (1 + a + b)
        "half plane": Lemma(
            variables=("a", "b", "w"),
            shows="((1 + w)**2 + a*(1 + w)*(1 - w) + b*(1 - w)**2) - ((1 - a + b)*w**2 + 2*(1 - b)*w + (1 + a + b))",
            sense="= 0",
        ),
        "the three sum to four": Lemma(
            variables=("a", "b"), shows="(1 - a + b) + 2*(1 - b) + (1 + a + b) - 4", sense="= 0"
        ),
    }


def z3_equivalence() -> dict[str, str]:
    """Both directions over the reals, complex pairs and real pairs: z3 must find every negation unsatisfiable."""
    a, b, x, y, r, s = z3.Reals("a b x y r s")
    inside = z3.And(b < 1, 1 + a + b > 0, 1 - a + b > 0)
    real_pair = z3.And(a == -(r + s), b == r * s)
    complex_pair = z3.And(a == -2 * x, b == x * x + y * y, y != 0)
    real_inside = z3.And(r * r < 1, s * s < 1)
    questions = {
        "region implies roots inside, real pair": z3.And(inside, real_pair, z3.Not(real_inside)),
        "region implies roots inside, complex pair": z3.And(inside, complex_pair, x * x + y * y >= 1),
        "roots inside imply region, real pair": z3.And(real_pair, real_inside, z3.Not(inside)),
        "roots inside imply region, complex pair": z3.And(complex_pair, x * x + y * y < 1, z3.Not(inside)),
        "with these, |b| < 1": z3.And(inside, b <= -1),
    }
    answers = {}
    for name, question in questions.items():
        solver = z3.Solver()
        solver.set("timeout", 20_000)
        solver.add(question)
        answers[name] = str(solver.check())
    return answers


def prove(at_minus_one: str = "2", product: str = "1") -> Witness:
    claim = {"at_minus_one": at_minus_one, "product": product}
    return {"claim": claim, "evidence": prove_lemmas(lemmas(claim))}


def check(witness: Witness) -> Verdict:
    """Identities reduce the claim to the half plane; the equivalence itself is asked of z3 afresh, not read."""
    refuted = [name for name, answer in z3_equivalence().items() if answer != "unsat"]
    equivalence = Verdict(not refuted, f"z3 does not prove: {', '.join(refuted)}")
    return verdict_of(
        lemmas(witness["claim"]), witness["evidence"], equivalence, summary="z3: both directions, five cases"
    )


CERTIFICATES = (
    Certificate(
        name="pi-jury",
        statement="at frozen V the PI loop is stable exactly when k_i V > 0, |k_p V| < 1 and (k_i + 2 k_p) V < 2",
        domain="all real k_i, k_p and every V > 0, delay 0",
        method="identities to the half plane; z3 on both directions, real and complex poles",
        argument=(
            "u+ = u - (k_p + k_i) V u + k_p V u_prev has z^2 + a z + b. Under z = (1+w)/(1-w) the circle becomes the "
            "half plane and the coefficients 1-a+b, 2(1-b), 1+a+b; they sum to 4, and a quadratic has both roots in the "
            "left half plane exactly when its coefficients share a sign, so all three are positive: (k_i + 2k_p) V < 2, "
            "k_p V > -1, k_i V > 0. The first and last give k_p V < 1."
        ),
        prove=prove,
        check=check,
        falsified=lambda: [
            Falsehood("(k_i + 2 k_p) V < 2.01", prove(at_minus_one="201/100")),
            Falsehood("|k_p V|^2 < 1.01", prove(product="101/100")),
        ],
    ),
)
