"""The I law d tokens late: the frozen limit, the counterexample at d = 2, and the verdicts on given gains."""

from fractions import Fraction
from typing import Any

from workbench.analysis.ball import ball, precision
from workbench.analysis.certificate import Certificate, Falsehood, Verdict, Witness, all_of, fraction
from workbench.analysis.certificates.switching import pattern_multiplier, step
from workbench.analysis.exact import characteristic_polynomial
from workbench.analysis.schur import count_roots, crossing_polynomial, is_schur, loop_polynomial
from workbench.analysis.surd import Surd

FROZEN_DELAYS = tuple(range(9))


def prove_frozen(shift: str = "0", delays: tuple[int, ...] = FROZEN_DELAYS) -> Witness:
    """Brackets of width 2e-12 around 2 sin(pi/(2(2d+1)))."""
    claim = {}
    with precision(120):
        for d in delays:
            value = 2 * (ball(1) * 0 + ball(Fraction(1, 2 * (2 * d + 1)))).sin_pi()
            centre = fraction(value.mid().str(20, radius=False)) + fraction(shift)
            claim[str(d)] = {"low": str(centre - Fraction(1, 10**12)), "high": str(centre + Fraction(1, 10**12))}
    return {"claim": claim, "evidence": {"stable_sample": "1/1000"}}


def check_frozen(witness: Witness) -> Verdict:
    sample, verdicts = fraction(witness["evidence"]["stable_sample"]), []
    with precision(200):
        for delay, claim in witness["claim"].items():
            d, low, high = int(delay), fraction(claim["low"]), fraction(claim["high"])
            name = f"delay {d}"
            formula = 2 * ball(Fraction(1, 2 * (2 * d + 1))).sin_pi()
            verdicts.append(
                Verdict(bool(formula > ball(low)) and bool(formula < ball(high)), f"{name}: the sine is elsewhere")
            )
            start = min(sample, low / 2)
            verdicts.append(Verdict(is_schur(loop_polynomial(d, start)), f"{name}: unstable at a small gain"))
            # A root can only leave through z = 1 (g = 0), z = -1 (g = 2, odd sign) or as a complex pair (Orlando).
            if d > 0:
                crossings = count_roots(crossing_polynomial(d), 0, low)
                verdicts.append(Verdict(crossings == 0, f"{name}: {crossings} crossing(s) below {float(low):.12f}"))
            through = is_schur(loop_polynomial(d, low)) and (low < 2)
            verdicts.append(Verdict(through, f"{name}: not stable at {float(low):.12f}"))
            verdicts.append(Verdict(not is_schur(loop_polynomial(d, high)), f"{name}: still stable at {float(high)}"))
    return all_of(verdicts, f"{len(witness['claim'])} delays, each critical gain within 1e-12")


def prove_counterexample(threshold: str = "2", irrational: str = "-1") -> Witness:
    return {
        "claim": {"a": threshold, "b": irrational, "m": 2, "delay": 2, "up_to": "17/5"},
        "evidence": {"word": [0, 0, 1, 1, 1, 1], "positive_low": "1/1000", "gain": "3/5"},
    }


def check_counterexample(witness: Witness) -> Verdict:
    """The multiplier is a polynomial m(g) of one period; m + 1 has the claimed number as root and is negative above."""
    claim, evidence = witness["claim"], witness["evidence"]
    threshold, d = Surd(fraction(claim["a"]), fraction(claim["b"]), int(claim["m"])), int(claim["delay"])
    word: list[int] = evidence["word"]
    at_threshold = pattern_multiplier(threshold, d, word)
    verdicts = [Verdict(at_threshold == -1, f"multiplier at the threshold is {float(at_threshold):.6f}, not -1")]
    # m(g) is quadratic for this word: three values fix it, and an upward parabola below -1 at both ends stays below
    points = [pattern_multiplier(Fraction(k), d, word) for k in range(4)]
    second = [points[k + 2] - 2 * points[k + 1] + points[k] for k in range(2)]
    verdicts.append(Verdict(second[0] == second[1] and second[0] > 0, "the multiplier is not an upward parabola"))
    end = pattern_multiplier(fraction(claim["up_to"]), d, word)
    verdicts.append(Verdict(end < -1, f"stable again at {claim['up_to']}"))
    # with V > 0 throughout: the zeros replaced by a small positive gain, the period's matrix has a root below -1
    low, gain = fraction(evidence["positive_low"]), fraction(evidence["gain"])
    matrix = [[Fraction(int(i == j)) for j in range(d + 1)] for i in range(d + 1)]
    columns = []
    for column in zip(*matrix, strict=True):
        state = list(column)
        for index in word:
            state = step(state, gain if index else low)
        columns.append(state)
    period = [list(row) for row in zip(*columns, strict=True)]
    coefficients = characteristic_polynomial(period)
    at_minus_one = sum(c * (-1) ** k for k, c in enumerate(coefficients))
    odd_degree = (d + 1) % 2 == 1
    verdicts.append(Verdict(odd_degree and at_minus_one > 0, f"no real root below -1 at gain {gain} with V > 0"))
    return all_of(verdicts, "multiplier 1 - 4g + g^2 falls below -1 there; a root below -1 also with every V > 0")


def certified_gain(delay: int) -> Fraction:
    """The proven number that constructors use, as k_i V_max: 2/(2d+1), an open end."""
    return Fraction(2, 2 * delay + 1)


def prove_verdicts(changes: dict[str, bool] | None = None) -> Witness:
    """k_i V = 1.9, 2.0, 2.1 at delay 0; 0.58 and 0.60 at delay 2, frozen and with the gain switching 0,0,a,a,a,a."""
    rows = [
        {"delay": 0, "gain": "19/10", "certified": True, "frozen_settles": True, "switching_settles": True},
        {"delay": 0, "gain": "2", "certified": False, "frozen_settles": False, "switching_settles": False},
        {"delay": 0, "gain": "21/10", "certified": False, "frozen_settles": False, "switching_settles": False},
        {"delay": 2, "gain": "29/50", "certified": False, "frozen_settles": True, "switching_settles": True},
        {"delay": 2, "gain": "3/5", "certified": False, "frozen_settles": True, "switching_settles": False},
    ]
    for row in rows:
        row.update({k.split()[-1]: v for k, v in (changes or {}).items() if k.split()[0] == row["gain"]})
    return {"claim": {"rows": rows, "static_gain": "1"}, "evidence": {"word": {"0": [1], "2": [0, 0, 1, 1, 1, 1]}}}


def check_verdicts(witness: Witness) -> Verdict:
    verdicts = []
    for row in witness["claim"]["rows"]:
        d, gain = int(row["delay"]), fraction(row["gain"])
        word: list[int] = witness["evidence"]["word"][str(d)]
        multiplier = pattern_multiplier(gain, d, word)
        found: dict[str, Any] = {
            "certified": gain < certified_gain(d),
            "frozen_settles": is_schur(loop_polynomial(d, gain)),
            "switching_settles": abs(multiplier) < 1,
        }
        for key, value in found.items():
            verdicts.append(Verdict(row[key] == value, f"delay {d}, k_i V = {gain}: {key} is {value}"))
        # H* - H of one token ahead over the loop polynomial at z = 1: g / p(1)
        static = gain / sum(loop_polynomial(d, gain))
        verdicts.append(
            Verdict(static == fraction(witness["claim"]["static_gain"]), f"delay {d}: the static gain is {static}")
        )
    return all_of(verdicts, f"{len(witness['claim']['rows'])} gains judged exactly; static gain 1")


CERTIFICATES = (
    Certificate(
        name="delay-frozen",
        statement="I law at frozen V, d tokens late: stable exactly for 0 < k_i V < 2 sin(pi/(2(2d+1)))",
        domain=f"delays {FROZEN_DELAYS[0]} to {FROZEN_DELAYS[-1]}: 2, 1, 0.618, 0.445, ... each end within 1e-12",
        method="exact: Orlando's determinant as a polynomial in the gain, Sturm count of crossings; sine by balls",
        argument=(
            "z^(d+1) - z^d + g is Schur at a small gain. On the way up a root can reach the circle only as a complex pair "
            "(or at z = -1, where g = 2); the next-to-last Hurwitz determinant vanishes there, and a Sturm chain counts "
            "no zero of it below the bracket. Just above it the polynomial is not Schur."
        ),
        prove=prove_frozen,
        check=check_frozen,
        falsified=lambda: [
            Falsehood("critical gains larger by 1e-6", prove_frozen("1/1000000", (1, 2))),
            Falsehood("critical gains smaller by 1e-6", prove_frozen("-1/1000000", (1, 2))),
        ],
    ),
    Certificate(
        name="delay-counterexample",
        statement="two tokens late, gains 0,0,a,a,a,a diverge for k_i V_max = a in (2 - sqrt 2, 3.4], frozen limit 0.618",
        domain="delay 2; every a in the interval; at a = 0.6 also with the zeros replaced by 0.001",
        method="exact arithmetic in Q(sqrt 2) and in rationals",
        argument=(
            "From rest at 1 the six tokens give 1 - 4a + a^2 and rest again; this is below -1 exactly between 2 - sqrt 2 "
            "and 2 + sqrt 2. A characteristic polynomial of odd degree that is positive at -1 has a root below -1."
        ),
        prove=prove_counterexample,
        check=check_counterexample,
        falsified=lambda: [
            Falsehood("diverges already from 0.58", prove_counterexample("29/50", "0")),
            Falsehood(
                "diverges up to 3.42",
                {**prove_counterexample(), "claim": {**prove_counterexample()["claim"], "up_to": "171/50"}},
            ),
        ],
    ),
    Certificate(
        name="i-law-verdicts",
        statement="k_i V = 1.9 certified, 2.0 (marginal) and 2.1 not; at delay 2 neither 0.58 nor 0.60; static gain 1",
        domain="these five gains; frozen V, and at delay 2 also V switching 0,0,a,a,a,a",
        method="exact Schur test and exact period multiplier",
        argument="Certified means below 2/(2d+1), the number constructors use. The loop is a discrete-time system.",
        prove=prove_verdicts,
        check=check_verdicts,
        falsified=lambda: [
            Falsehood("2.0 is certified", prove_verdicts({"2 certified": True})),
            Falsehood("0.60 settles under switching", prove_verdicts({"3/5 switching_settles": True})),
            Falsehood(
                "static gain -0.05",
                {**prove_verdicts(), "claim": {**prove_verdicts()["claim"], "static_gain": "-1/20"}},
            ),
        ],
    ),
)
