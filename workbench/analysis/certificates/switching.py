"""Delayed I law whose gain switches: the exact critical gain at delays 1, 2, 3, and two-sided bounds on its decay."""

from fractions import Fraction
from typing import Any

from workbench.analysis.certificate import Certificate, Falsehood, Verdict, Witness, all_of, fraction
from workbench.analysis.invariant_polytope import Polytope, grow, is_invariant, with_images
from workbench.analysis.joint_spectral_radius import best_product, radius_is_at_least, switching_matrix
from workbench.analysis.surd import Surd

# critical k_i V_max = a + b sqrt(m): 1, 2 - sqrt 2, 1 - sqrt(3)/3
CRITICAL = {1: ("1", "0", 2), 2: ("2", "-1", 2), 3: ("1", "-1/3", 3)}
# (delay, lowest gain, highest gain) for the bounds on decay
RANGES = ((0, "1/10", "9/5"), (1, "1/10", "3/5"), (1, "1/10", "9/10"), (2, "1/20", "3/8"), (2, "1/20", "11/20"))
COUNTEREXAMPLE = {1: (0, 1, 1), 2: (0, 0, 1, 1, 1, 1), 3: (0, 0, 0, 1, 1, 1, 1, 1, 1)}


def _surd(text: dict[str, Any]) -> Surd:
    return Surd(fraction(text["a"]), fraction(text["b"]), int(text["m"]))


def _text(value: Any) -> list[str]:
    return [str(value.a), str(value.b)] if isinstance(value, Surd) else [str(value)]


def _number(text: list[str], m: int) -> Any:
    return Surd(fraction(text[0]), fraction(text[1]), m) if len(text) == 2 else fraction(text[0])


def encode(polytope: Polytope) -> dict[str, Any]:
    return {
        "vertices": [[_text(x) for x in v] for v in polytope.vertices],
        "images": [[[[i, _text(c)] for i, c in pairs] for pairs in images] for images in polytope.images],
    }


def decode(text: dict[str, Any], m: int) -> Polytope:
    return Polytope(
        [[_number(x, m) for x in v] for v in text["vertices"]],
        [[[(int(i), _number(c, m)) for i, c in pairs] for pairs in images] for images in text["images"]],
    )


def prove_limit(delays: tuple[int, ...] = (1, 2, 3)) -> Witness:
    claim: dict[str, Any] = {}
    evidence: dict[str, Any] = {}
    for d in delays:
        a, b, m = CRITICAL[d]
        gain = Surd(Fraction(a), Fraction(b), m)
        matrices = [switching_matrix(gain * 0, d), switching_matrix(gain, d)]
        one = gain * 0 + 1
        vertices = grow(matrices, [[one] * (d + 1)], one)
        if vertices is None:
            raise ArithmeticError(f"no invariant polytope found at delay {d}")
        claim[str(d)] = {"a": a, "b": b, "m": m}
        evidence[str(d)] = {"polytope": encode(with_images(matrices, vertices)), "word": list(COUNTEREXAMPLE[d])}
    return {"claim": claim, "evidence": evidence}


def check_limit(witness: Witness) -> Verdict:
    """At the critical gain an invariant polytope; just above it a switching whose multiplier is below -1."""
    verdicts = []
    for delay, claim in witness["claim"].items():
        d, gain, evidence = int(delay), _surd(claim), witness["evidence"][delay]
        matrices = [switching_matrix(gain * 0, d), switching_matrix(gain, d)]
        invariant = is_invariant(matrices, decode(evidence["polytope"], gain.m), Fraction(1))
        verdicts.append(
            Verdict(invariant, f"delay {d}: the polytope at k_i V_max = {float(gain):.6f} is not invariant")
        )
        for excess in (Fraction(1, 10**9), Fraction(1, 100)):
            above = gain + excess
            multiplier = pattern_multiplier(above, d, evidence["word"])
            verdicts.append(
                Verdict(
                    multiplier is not None and multiplier < -1,
                    f"delay {d}: the switching {evidence['word']} does not diverge at {float(above):.9f}",
                )
            )
    return all_of(verdicts, f"polytopes invariant and counterexamples diverge at {len(witness['claim'])} delays")


def pattern_multiplier(gain: Any, delay: int, word: list[int]) -> Any:
    """The factor by which one period multiplies a resting start (1, ..., 1); None if it does not come back to rest.

    Words begin with `delay` zeros, so every start is at rest when the active gains begin; one period later it is again.
    """
    state = [gain * 0 + 1] * (delay + 1)
    for index in word[delay:]:
        state = step(state, gain * index)
    for index in word[:delay]:
        state = step(state, gain * index)
    return state[0] if all(x == state[0] for x in state) else None


def step(state: list[Any], gain: Any) -> list[Any]:
    return [state[0] - gain * state[-1], *state[:-1]]


def falsified_limit() -> list[Falsehood]:
    """Each critical gain moved by 0.001, with the polytope grown for that gain where one exists."""
    made = []
    true = prove_limit((1, 2))
    for d, change in ((1, "1/1000"), (2, "1/1000"), (2, "-1/1000")):
        claim = dict(true["claim"][str(d)])
        claim["a"] = str(Fraction(claim["a"]) + Fraction(change))
        evidence = dict(true["evidence"][str(d)])
        gain = _surd(claim)
        matrices = [switching_matrix(gain * 0, d), switching_matrix(gain, d)]
        one = gain * 0 + 1
        vertices = grow(matrices, [[one] * (d + 1)], one, most_vertices=40, most_rounds=12)
        if vertices is not None:
            evidence["polytope"] = encode(with_images(matrices, vertices))
        made.append(
            Falsehood(
                f"critical gain at delay {d} moved by {change}",
                {"claim": {str(d): claim}, "evidence": {str(d): evidence}},
            )
        )
    return made


def prove_decay(ranges: tuple[tuple[int, str, str], ...] = RANGES, gap: str = "1/100") -> Witness:
    claims, evidence = [], []
    for d, low, high in ranges:
        matrices = [switching_matrix(Fraction(low), d), switching_matrix(Fraction(high), d)]
        radius, word = best_product(matrices, 10)
        lower = Fraction(int(radius * 10**7) - 1, 10**7)
        upper = lower * (1 + Fraction(gap))
        corners = [[Fraction(int(i == j)) for j in range(d + 1)] for i in range(d + 1)]
        vertices = grow(
            matrices, corners, upper * Fraction(9999, 10000), lambda v: [Fraction(round(x * 10**9), 10**9) for x in v]
        )
        if vertices is None:
            raise ArithmeticError(f"no polytope found at delay {d} for gains in [{low}, {high}]")
        claims.append({"delay": d, "gain_low": low, "gain_high": high, "lower": str(lower), "upper": str(upper)})
        evidence.append({"word": list(word), "polytope": encode(with_images(matrices, vertices))})
    return {"claim": {"bounds": claims}, "evidence": {"bounds": evidence}}


def check_decay(witness: Witness) -> Verdict:
    verdicts = []
    for claim, evidence in zip(witness["claim"]["bounds"], witness["evidence"]["bounds"], strict=True):
        d, name = int(claim["delay"]), f"delay {claim['delay']}, gains in [{claim['gain_low']}, {claim['gain_high']}]"
        matrices = [switching_matrix(fraction(claim[end]), d) for end in ("gain_low", "gain_high")]
        below = radius_is_at_least(matrices, evidence["word"], fraction(claim["lower"]))
        verdicts.append(Verdict(below, f"{name}: the product does not reach {float(fraction(claim['lower'])):.6f}"))
        above = is_invariant(matrices, decode(evidence["polytope"], 0), fraction(claim["upper"]))
        verdicts.append(Verdict(above, f"{name}: not contracted at rate {float(fraction(claim['upper'])):.6f}"))
    shown = "; ".join(
        f"d={c['delay']} [{c['gain_low']}, {c['gain_high']}]: "
        f"{float(fraction(c['lower'])):.4f} to {float(fraction(c['upper'])):.4f}"
        for c in witness["claim"]["bounds"]
    )
    return all_of(verdicts, shown)


def falsified_decay() -> list[Falsehood]:
    true = prove_decay(RANGES[3:4])
    [claim] = true["claim"]["bounds"]
    return [
        Falsehood(
            f"joint spectral radius {end} moved by 2 %",
            {
                "claim": {"bounds": [{**claim, end: str(fraction(claim[end]) * Fraction(factor))}]},
                "evidence": true["evidence"],
            },
        )
        for end, factor in (("lower", "102/100"), ("upper", "98/100"))
    ]


CERTIFICATES = (
    Certificate(
        name="switching-limit",
        statement="delayed I law, V anywhere in [0, V_max]: the exact critical k_i V_max is 1, 2 - sqrt 2, 1 - 1/sqrt 3",
        domain="delays 1, 2, 3; any sequence of V; unstable patterns checked 1e-9 and 0.01 above the critical gain",
        method="invariant polytope in Q(sqrt m), exact; explicit diverging switchings above",
        argument=(
            "x+ = x - g_{k-d} x_{k-d} with g in [0, g*] is a mixture of g = 0 and g = g*. A polytope that both map into "
            "itself makes every switching nonexpansive up to g* included, so 2/(2d+1) is not sharp. Above g* the pattern "
            "of d zeros and then some tokens at full gain multiplies a resting start by less than -1. For 0 < g_low <= "
            "g <= g_high < g* the decay is uniform: a step is then a mixture with positive weights of both matrices, and "
            "no face of the polytope holds the images of a point under all words of length 2d + 2."
        ),
        prove=prove_limit,
        check=check_limit,
        falsified=falsified_limit,
    ),
    Certificate(
        name="switching-decay",
        statement="joint spectral radius of the delayed loop with switching gains, enclosed within 1 %",
        domain="; ".join(f"d={d}: k_i V in [{low}, {high}]" for d, low, high in RANGES),
        method="product from below (exact Schur test), contracted rational polytope from above",
        argument=(
            "A periodic switching decays no faster than its product's spectral radius per step; a polytope that each "
            "matrix maps into `upper` times itself bounds every switching. Both numbers are rationals."
        ),
        prove=prove_decay,
        check=check_decay,
        falsified=falsified_decay,
    ),
)
