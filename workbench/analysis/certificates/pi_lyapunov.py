"""Decay of the PI loop at SmolLM2's vocabulary for varentropy between half a nat^2 and its maximum: LMI, rational check."""

from fractions import Fraction
from typing import Any

from workbench.analysis.certificate import Certificate, Falsehood, Verdict, Witness, all_of, fraction
from workbench.analysis.closed_loop import exact_matrix, proportional_integral
from workbench.analysis.exact import from_text, to_text
from workbench.analysis.lyapunov import common_quadratic, decreases

# V_max(49152) < 30.164 by max-varentropy-values; gains in 1/nat, well inside the certified interval of each delay
LOOPS = (
    {"delay": 0, "k_p": "1/100", "k_i": "3/100", "low": "1/2", "high": "30164/1000"},
    {"delay": 0, "k_p": "-1/200", "k_i": "1/25", "low": "1/2", "high": "30164/1000"},
    {"delay": 1, "k_p": "1/200", "k_i": "1/100", "low": "1/2", "high": "30164/1000"},
    {"delay": 2, "k_p": "1/500", "k_i": "1/125", "low": "1/2", "high": "30164/1000"},
    {"delay": 3, "k_p": "0", "k_i": "1/200", "low": "1/2", "high": "30164/1000"},
)


def _matrices(loop: dict[str, Any]) -> list[Any]:
    law = proportional_integral(fraction(loop["k_p"]), fraction(loop["k_i"]))
    return [exact_matrix(law, fraction(loop[end]), int(loop["delay"])) for end in ("low", "high")]


def prove(loops: tuple[dict[str, Any], ...] = LOOPS) -> Witness:
    claims, evidence = [], []
    for loop in loops:
        law = proportional_integral(fraction(loop["k_p"]), fraction(loop["k_i"]))
        found = common_quadratic(law, fraction(loop["low"]), fraction(loop["high"]), int(loop["delay"]))
        if found is None:
            raise ArithmeticError(f"no common quadratic Lyapunov function for {loop}")
        claims.append({**loop, "rate": str(found.rate)})
        evidence.append({"p": to_text(found.p)})
    return {"claim": {"loops": claims}, "evidence": {"loops": evidence}}


def check(witness: Witness) -> Verdict:
    verdicts = []
    for loop, evidence in zip(witness["claim"]["loops"], witness["evidence"]["loops"], strict=True):
        rate = fraction(loop["rate"])
        works = 0 < rate <= 1 and decreases(from_text(evidence["p"]), _matrices(loop), rate)
        name = f"delay {loop['delay']}, k_p {loop['k_p']}, k_i {loop['k_i']}"
        verdicts.append(Verdict(works, f"{name}: P does not decrease at rate {float(rate):.5f}"))
    rates = ", ".join(f"{float(fraction(loop['rate'])):.4f}" for loop in witness["claim"]["loops"])
    return all_of(verdicts, f"rates per token {rates}, factorised in rationals")


def falsified() -> list[Falsehood]:
    true = prove(LOOPS[:1])
    [loop] = true["claim"]["loops"]
    faster = {"loops": [{**loop, "rate": str(fraction(loop["rate"]) - Fraction(1, 100))}]}
    wider = {"loops": [{**loop, "high": "70"}]}
    return [
        Falsehood("decays 0.01 a token faster", {"claim": faster, "evidence": true["evidence"]}),
        Falsehood("holds up to V = 70, where k_i V > 2", {"claim": wider, "evidence": true["evidence"]}),
    ]


CERTIFICATES = (
    Certificate(
        name="pi-lyapunov",
        statement="PI loops with delay share one quadratic Lyapunov function for every V in [0.5, V_max] and decay at a rate",
        domain="n = 49152; delays 0 to 3 with five pairs of gains; any sequence of V in the interval",
        method="LMI (cvxpy, Clarabel), P rounded to rationals, three exact factorisations",
        argument=(
            "A(V) is affine in V and P > 0, so the decrease is convex in V and holds on the interval when it holds at both "
            "ends. Positive definiteness is decided by exact elimination."
        ),
        prove=prove,
        check=check,
        falsified=falsified,
    ),
)
