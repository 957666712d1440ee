"""Coupled loops: small gain, the counterexample without it, the cascade on raw entropy; and a reachable set."""

import math
from fractions import Fraction
from typing import Any

import flint

from workbench.analysis.ball import ball, lower_rational, precision, upper_rational
from workbench.analysis.certificate import Certificate, Falsehood, Verdict, Witness, all_of, fraction
from workbench.analysis.coupling import CoupledLoops, weights
from workbench.analysis.exact import characteristic_polynomial
from workbench.analysis.lemma import Lemma, Term, prove_lemmas, verdict_of
from workbench.analysis.reachable import BoundedLoop, reach, statistics_at
from workbench.analysis.schur import is_schur

GRID = tuple(Fraction(k, 20) for k in range(1, 40))


def small_gain_lemmas(claim: dict[str, Any]) -> dict[str, Lemma]:
    """w = (b + 1 - d, c + 1 - a): each w_i exceeds (M w)_i by the determinant."""
    room = f"{claim['room']}*(1 - a)*(1 - d) - b*c"
    variables, given, positive = ("a", "b", "c", "d"), ("a", "b", "c", "d"), ("1 - a", "1 - d", room)
    return {
        "first": Lemma(
            variables=variables,
            given=given,
            positive=positive,
            shows="(b + 1 - d) - (a*(b + 1 - d) + b*(c + 1 - a))",
            sense="> 0",
            terms=(Term(factors=(room,)),),
        ),
        "second": Lemma(
            variables=variables,
            given=given,
            positive=positive,
            shows="(c + 1 - a) - (c*(b + 1 - d) + d*(c + 1 - a))",
            sense="> 0",
            terms=(Term(factors=(room,)),),
        ),
    }


def prove_small_gain(room: str = "1", **changes: Any) -> Witness:
    claim = {"room": room, "unstable": {"temperature_gain": "3/2", "pruning_gain": "3/10", **changes}}
    return {"claim": claim, "evidence": prove_lemmas(small_gain_lemmas(claim))}


def check_small_gain(witness: Witness) -> Verdict:
    """Lemmas; the counterexample exactly; and on a grid: small gain gives Schur and M w < w, sharp for k_i V >= 1."""
    claim, verdicts = witness["claim"], []
    g, p = (fraction(claim["unstable"][key]) for key in ("temperature_gain", "pruning_gain"))
    tempered, raw = CoupledLoops(g, p, reads_raw_entropy=False), CoupledLoops(g, p, reads_raw_entropy=True)
    verdicts.append(Verdict(abs(1 - g) < 1 and p < 1, "a loop is unstable alone"))
    verdicts.append(Verdict(not _schur(tempered), f"the coupled loops are stable at {g}, {p}"))
    verdicts.append(Verdict(_schur(raw), "the cascade on raw entropy is unstable"))
    for gain in GRID:
        for pruning in (x for x in GRID if x < 1):
            loops = CoupledLoops(gain, pruning, reads_raw_entropy=False)
            if loops.small_gain():
                m = [[Fraction(x) for x in row] for row in loops.comparison()]
                w = weights(m)
                shrinks = all(sum(x * y for x, y in zip(row, w, strict=True)) < w[i] for i, row in enumerate(m))
                verdicts.append(Verdict(shrinks and _schur(loops), f"small gain fails at {gain}, {pruning}"))
            elif gain >= 1:
                verdicts.append(Verdict(not _schur(loops), f"stable without small gain at {gain}, {pruning}"))
    return verdict_of(
        small_gain_lemmas(claim), witness["evidence"], *verdicts, summary=f"{len(verdicts) - 3} pairs of gains checked"
    )


def _schur(loops: CoupledLoops) -> bool:
    return is_schur(characteristic_polynomial([[Fraction(x) for x in row] for row in loops.matrix()]))


# Three token shapes over 49,152 outcomes (levels in nats, multiplicities) that may follow in any order.
SHAPES = (
    ((("14", 1), ("12", 20), ("0", 49131)), "one word and twenty rivals"),
    ((("14", 15), ("11", 80), ("0", 49057)), "fifteen good words"),
    ((("14", 3), ("12", 40), ("0", 49109)), "three words and forty rivals"),
)
LOOP = {"k_i": "1/40", "target": "3", "low": "-7/10", "high": "7/10", "below": "1/10", "above": "1/10"}


def _loop(claim: dict[str, Any]) -> BoundedLoop:
    return BoundedLoop(*(fraction(claim["loop"][key]) for key in ("k_i", "target", "low", "high", "below", "above")))


def _shapes(claim: dict[str, Any]) -> list[list[tuple[Fraction, int]]]:
    return [[(fraction(z), int(count)) for z, count in levels] for levels in claim["shapes"]]


def prove_reachable(tokens: int = 400, shrink: str = "0") -> Witness:
    """The set after `tokens`, rounded outward to 1e-4 (then moved inward by `shrink` where a false claim is wanted)."""
    claim: dict[str, Any] = {"loop": LOOP, "shapes": [[list(level) for level in levels] for levels, _ in SHAPES]}
    with precision(64):
        low, high = reach(_loop(claim), _shapes(claim), tokens, pieces=8)[-1]
        grid = 10**4
        inside = fraction(shrink)
        claim["low"] = str(Fraction(math.floor(lower_rational(low) * grid), grid) + inside)
        claim["high"] = str(Fraction(math.ceil(upper_rational(high) * grid), grid) - inside)
    claim["tokens"] = tokens
    return {"claim": claim, "evidence": {}}


def check_reachable(witness: Witness) -> Verdict:
    """Another way: k_i V_max < 1, so the step is monotone and ends of intervals go to ends."""
    claim = witness["claim"]
    loop, shapes = _loop(claim), _shapes(claim)
    low_claim, high_claim = fraction(claim["low"]), fraction(claim["high"])
    with precision(128):
        for levels in shapes:
            n = sum(count for _, count in levels)
            largest = flint.arb(n - 1).log() ** 2 / 4 + 1  # certificate max-varentropy
            if not bool(ball(loop.k_i) * largest < 1):
                return Verdict(False, "the step need not be monotone")

        def ends(low: Any, high: Any) -> tuple[Any, Any]:
            lows, highs = [], []
            for levels in shapes:
                below, above = ball(loop.bracket_below_nats), ball(loop.bracket_above_nats)
                lows.append(low + ball(loop.k_i) * (ball(loop.target_nats) - statistics_at(levels, low)[0] - above))
                highs.append(high + ball(loop.k_i) * (ball(loop.target_nats) - statistics_at(levels, high)[0] + below))
            bottom, top = ball(loop.log_temperature_min), ball(loop.log_temperature_max)
            low, high = lows[0].min(lows[1]).min(lows[2]), highs[0].max(highs[1]).max(highs[2])
            return low.max(bottom).min(top).lower(), high.max(bottom).min(top).upper()

        low, high = ends(ball(low_claim), ball(high_claim))
        stays = bool(low >= ball(low_claim)) and bool(high <= ball(high_claim))
        low, high = ball(loop.log_temperature_min), ball(loop.log_temperature_max)
        for _ in range(int(claim["tokens"])):
            low, high = ends(low, high)
        arrives = bool(low >= ball(low_claim)) and bool(high <= ball(high_claim))
    return all_of(
        [
            Verdict(stays, "the interval is left again"),
            Verdict(arrives, f"after {claim['tokens']} tokens u may still be outside"),
        ],
        f"ln T stays in [{float(low_claim):.4f}, {float(high_claim):.4f}] of [{LOOP['low']}, {LOOP['high']}]",
    )


CERTIFICATES = (
    Certificate(
        name="small-gain",
        statement="temperature and pruning on one entropy stay stable when (1-M11)(1-M22) > M12 M21; without it they may not",
        domain="every nonnegative 2x2 M; counterexample k_i V = 1.5, s L = 0.3 on tempered entropy, stable on raw entropy",
        method="identities with explicit weights, z3 beside them; exact Schur test, and sharpness on a grid of 741 pairs",
        argument=(
            "w = (M12 + 1 - M22, M21 + 1 - M11) is positive and M w < w exactly by the determinant, so the w-weighted largest "
            "error shrinks. Alone |1 - 1.5| = 0.5 and 0.3 are stable; together 2 - k_i V - 2 s L < 0 puts a pole beyond -1. "
            "A pruner that reads raw entropy makes the pair a cascade; a scheduler writes no logit and drives neither loop."
        ),
        prove=prove_small_gain,
        check=check_small_gain,
        falsified=lambda: [
            Falsehood("1.01 (1-M11)(1-M22) > M12 M21 is enough", prove_small_gain(room="101/100")),
            Falsehood("s L = 0.24 is a counterexample as well", prove_small_gain(pruning_gain="6/25")),
        ],
    ),
    Certificate(
        name="reachable-set",
        statement="I law with saturation and an entropy bracket of +-0.1 nats: ln T enters an interval and never leaves it",
        domain="three token shapes over 49,152 outcomes in any order, k_i = 0.025, H* = 3, ln T in [-0.7, 0.7], any start",
        method="interval sets by ball arithmetic; checked by monotone end points at another precision",
        argument=(
            "k_i V_max < 1 (max-varentropy), so each step is increasing in u and an interval's ends go to ends; the least and largest "
            "over shapes and bracket bound every order. The interval maps into itself and the whole clamp arrives in it."
        ),
        prove=prove_reachable,
        check=check_reachable,
        falsified=lambda: [
            Falsehood("an interval narrower by 0.01 at each end", prove_reachable(shrink="1/100")),
            Falsehood(
                "it is entered within 10 tokens",
                {**prove_reachable(), "claim": {**prove_reachable()["claim"], "tokens": 10}},
            ),
        ],
    ),
)
