"""Facts about entropy itself: entropic time, the top-k bracket, renormalised top-k."""

from typing import Any

import flint

from workbench.analysis.ball import ball, precision
from workbench.analysis.certificate import Certificate, Falsehood, Verdict, Witness, fraction
from workbench.analysis.lemma import Lemma, Term, prove_lemmas, verdict_of


def tau_lemmas(claim: dict[str, Any]) -> dict[str, Lemma]:
    """Induction on 2 f tau = (H_0 - H_t) + TV for a fall (x > 0), a rise (x > 0) and an empty trace."""
    f = claim["factor"]
    before = f"(2*{f}*t - (a - h) - v)"
    return {
        "empty": Lemma(variables=("a",), shows="0 - (a - a) - 0", sense="= 0"),
        "a fall of x": Lemma(
            variables=("a", "h", "v", "t", "x"),
            shows=f"(2*{f}*(t + x) - (a - (h - x)) - (v + x)) - {before}",
            sense="= 0",
        ),
        "a rise of x": Lemma(
            variables=("a", "h", "v", "t", "x"), shows=f"(2*{f}*t - (a - (h + x)) - (v + x)) - {before}", sense="= 0"
        ),
    }


def prove_tau(factor: str = "1") -> Witness:
    claim = {"factor": factor}
    return {"claim": claim, "evidence": prove_lemmas(tau_lemmas(claim))}


def check_tau(witness: Witness) -> Verdict:
    return verdict_of(tau_lemmas(witness["claim"]), witness["evidence"])


def bracket_lemmas(claim: dict[str, Any]) -> dict[str, Lemma]:
    """One tail atom q <= p_k: l = ln 1/q, m = ln 1/p_k; and the sum of ln x <= x - 1 over the tail."""
    lower, upper = claim["lower"], claim["upper"]
    return {
        "lower end, per tail atom": Lemma(
            variables=("q", "l", "m"),
            given=("q", "l - m", "m"),
            shows=f"q*l - {lower}*q*m",
            terms=(Term(factors=("q", "l - m")),),
        ),
        # with c = u r/N the tail's cross entropy is at most r ln(1/c) + (N c - r), and N c - r must not be positive
        "upper end, summed": Lemma(
            variables=("N", "c", "r"),
            given=("r", f"{upper}*r - N*c"),
            shows="r - N*c",
            terms=(Term(factors=(f"{upper}*r - N*c",)),),
        ),
    }


def prove_bracket(lower: str = "1", upper: str = "1") -> Witness:
    """Extremes: a uniform tail attains the upper end, a tail of atoms as large as p_k the lower end."""
    claim = {"lower": lower, "upper": upper}
    extremes = [
        {"top": ["1/2", "1/4"], "tail": ["1/8"] * 2},
        {"top": ["2/5", "1/5", "1/5"], "tail": ["1/5"]},
        {"top": ["1/2", "1/4"], "tail": ["1/400"] * 100},
        {"top": ["9/10"], "tail": ["1/100"] * 10},
        {"top": ["1/3", "1/3"], "tail": ["1/6", "1/12", "1/12"]},
    ]
    return {"claim": claim, "evidence": {**prove_lemmas(bracket_lemmas(claim)), "extremes": extremes}}


def _entropy(probabilities: list[flint.arb]) -> flint.arb:
    return -sum((p * p.log() for p in probabilities), flint.arb(0))


def check_bracket(witness: Witness) -> Verdict:
    claim, refuted = witness["claim"], []
    with precision(200):
        for row in witness["evidence"]["extremes"]:
            exact = [fraction(p) for p in (*row["top"], *row["tail"])]
            if sum(exact) != 1 or min(fraction(p) for p in row["top"]) < max(fraction(p) for p in row["tail"]):
                return Verdict(False, f"{row} is not a distribution with its largest atoms first")
            top, tail = [ball(p) for p in row["top"]], [ball(p) for p in row["tail"]]
            rest, entropy = ball(sum(fraction(p) for p in row["tail"])), _entropy(top) + _entropy(tail)
            low = _entropy(top) + ball(claim["lower"]) * rest * -min(top, key=lambda p: float(p.mid())).log()
            high = _entropy(top) + rest * (len(tail) / (ball(claim["upper"]) * rest)).log()
            if bool(entropy < low) or bool(entropy > high):
                refuted.append(row)
    outside = Verdict(not refuted, f"H is outside the bracket for {refuted[:1]}")
    return verdict_of(bracket_lemmas(claim), witness["evidence"], outside, summary="five extremes inside, by balls")


def renormalised_lemmas(claim: dict[str, Any]) -> dict[str, Lemma]:
    """With A = H_k, s = 1 - r, L = ln 1/p_k, G = ln 1/s: the lower end minus the renormalised entropy, times s."""
    f = claim["factor"]
    return {
        "below the lower end": Lemma(
            variables=("r", "A", "L", "G"),
            given=("r", "(1 - r)*L - A", "G", "A"),
            positive=("1 - r",),
            shows=f"(A + r*L)*(1 - r) - {f}*(A - G*(1 - r))",
            terms=(Term(factors=("r", "(1 - r)*L - A")), Term(factors=("1 - r", "G"))),
        )
    }


def prove_renormalised(factor: str = "1") -> Witness:
    claim = {"factor": factor}
    return {"claim": claim, "evidence": prove_lemmas(renormalised_lemmas(claim))}


def check_renormalised(witness: Witness) -> Verdict:
    return verdict_of(renormalised_lemmas(witness["claim"]), witness["evidence"])


CERTIFICATES = (
    Certificate(
        name="tau-identity",
        statement="entropic time is (H_0 - H_t + TV)/2: it pays for oscillation as much as for progress",
        domain="every finite entropy trace",
        method="induction over tokens, each step an identity",
        argument="A fall of x adds x to tau, to the net drop and to TV; a rise adds -x to the net drop and x to TV.",
        prove=prove_tau,
        check=check_tau,
        falsified=lambda: [Falsehood("tau = 0.99 (H_0 - H_t + TV)/2", prove_tau("100/99"))],
    ),
    Certificate(
        name="entropy-bracket",
        statement="top k of mass 1-r, last p_k: H_k + r ln(1/p_k) <= H <= H_k + r ln((n-k)/r)",
        domain="every distribution, 1 <= k < n, r > 0 (at r = 0 both ends are H)",
        method="per-atom identities, z3 beside them; extremes by ball arithmetic",
        argument=(
            "Tail atoms q <= p_k give q ln(1/q) >= q ln(1/p_k). For the upper end ln x <= x - 1 at x = c/q, c = r/(n-k): "
            "sum q ln(c/q) <= (n-k) c - r = 0, so the tail's -sum q ln q is at most r ln(1/c)."
        ),
        prove=prove_bracket,
        check=check_bracket,
        falsified=lambda: [
            Falsehood("lower end H_k + 1.01 r ln(1/p_k)", prove_bracket(lower="101/100")),
            Falsehood("upper end H_k + r ln((n-k)/(1.01 r))", prove_bracket(upper="101/100")),
        ],
    ),
    Certificate(
        name="renormalised-top-k",
        statement="the entropy of the renormalised top k never exceeds the bracket's lower end, so never H",
        domain="every distribution, 1 <= k <= n, 0 <= r < 1",
        method="identity, z3 beside it",
        argument=(
            "It is A/s - G. Top atoms p >= p_k give A <= s L; s = 1 - r <= 1 gives G >= 0; the difference times s is "
            "r (s L - A) + s G."
        ),
        prove=prove_renormalised,
        check=check_renormalised,
        falsified=lambda: [Falsehood("1.01 times it never exceeds the lower end", prove_renormalised("101/100"))],
    ),
)
