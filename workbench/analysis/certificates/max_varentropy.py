"""The largest varentropy over n outcomes: the bound for every n, and balls at the vocabularies in use."""

from typing import Any

import flint

from workbench.analysis.ball import ball, precision, varentropy_of_atom
from workbench.analysis.certificate import Certificate, Falsehood, Verdict, Witness, all_of, fraction
from workbench.analysis.lemma import Lemma, Term, prove_lemmas, verdict_of
from workbench.signals import max_varentropy

SHIPPED = (2, 24, 25, 26, 50, 32000, 49152, 128256, 151936)


def lemmas(claim: dict[str, Any]) -> dict[str, Lemma]:
    c = claim["constant"]
    return {
        # Step 1. Stationarity on the simplex: l = ln p_i solves l^2 + (2 - 2m) l - 2m - mu = 0, monic, for every i.
        "at most two levels": Lemma(
            variables=("x", "y", "z", "B"),
            shows="((x**2 + B*x) - (y**2 + B*y))*(x - z) - ((x**2 + B*x) - (z**2 + B*z))*(x - y) - (x-y)*(x-z)*(y-z)",
            sense="= 0",
        ),
        # Step 2. j atoms against k >= j others, j + k <= n: the ratio k/j is at most n - 1 ...
        "one atom is the extreme ratio": Lemma(
            variables=("n", "j", "k"),
            given=("n - j - k", "j - 1", "n"),
            shows="(n - 1)*j - k",
            terms=(Term(factors=("n - j - k",)), Term(factors=("n", "j - 1"))),
        ),
        # ... the maximiser has logit x >= 0 (flipping the sign of a negative x = -w loses nothing) ...
        "the heavy side is the atom": Lemma(
            variables=("a", "w"),
            given=("a", "w"),
            shows="(a + w)**2 - (a - w)**2",
            terms=(Term("4", ("a", "w")),),
        ),
        # ... and (a + x)^2 rises with a = ln(k/j).
        "a larger ratio is worse": Lemma(
            variables=("a", "d", "x"),
            given=("a", "d", "x"),
            shows="(a + d + x)**2 - (a + x)**2",
            terms=(Term("2", ("a", "d")), Term("2", ("d", "x")), Term("1", (), ("d",))),
        ),
        # Step 3. (a + x)^2 <= (a^2/4 + c)(4 + x^2), equality only at a x = 4.
        "Cauchy and Schwarz": Lemma(
            variables=("a", "x"),
            shows=f"(a**2/4 + {c})*(4 + x**2) - (a + x)**2",
            terms=(Term("1", (), ("a*x/2 - 2",)),),
        ),
    }


def prove(constant: str = "1") -> Witness:
    claim = {"constant": constant}
    return {
        "claim": claim,
        "evidence": {
            **prove_lemmas(lemmas(claim)),
            # cosh^2(y) - 1 - y^2 = sum over k >= 2 of 2^(2k-1)/(2k)! y^(2k): every coefficient positive
            "cosh_squared_minus_its_quadratic": {"order": 40},
        },
    }


def check(witness: Witness) -> Verdict:
    c = fraction(witness["claim"]["constant"])
    order = int(witness["evidence"]["cosh_squared_minus_its_quadratic"]["order"])
    factorial, coefficients = 1, []
    for k in range(order + 1):
        factorial = factorial * (2 * k) * (2 * k - 1) if k else 1
        coefficients.append(flint.fmpq(2 ** (2 * k), 2 * factorial))
    coefficients[0] += flint.fmpq(1, 2)  # cosh^2 y = 1/2 + cosh(2y)/2
    series = Verdict(
        coefficients[0] == 1 and coefficients[1] == 1 and all(x > 0 for x in coefficients[2:]) and order >= 2,
        "cosh^2(y) >= 1 + y^2 does not follow from its power series",
    )
    # The bound that the three steps give is (a^2/4 + c)(4 + x^2)/(4 cosh^2(x/2)) <= a^2/4 + c; it must also hold where
    # the maximum is largest against it, far out in n, and there ball arithmetic can refute a wrong constant.
    far = []
    with precision(200):
        for log_odds in (2, 10, 50, 400):
            a = flint.arb(log_odds)
            x = 4 / a
            far.append(
                Verdict(
                    bool((a + x) ** 2 / (4 * (x / 2).cosh() ** 2) < a * a / 4 + ball(c)),
                    f"exceeded at ln(n-1) = {log_odds}, logit p = {4 / log_odds}",
                )
            )
    return verdict_of(
        lemmas(witness["claim"]), witness["evidence"], series, *far, summary=f"power series to order {order}"
    )


def falsified() -> list[Falsehood]:
    return [
        Falsehood("V_max < ln^2(n-1)/4 + 0.999 for every n", prove("999/1000")),
        Falsehood("V_max < ln^2(n-1)/4 for every n", prove("0")),
    ]


def prove_values(shift: str = "0", sizes: tuple[int, ...] = SHIPPED) -> Witness:
    """Brackets for the root of tanh(x/2)(a + x) = 2 by bisection with balls, and the value at the root."""
    claim: dict[str, Any] = {}
    evidence: dict[str, Any] = {}
    with precision(160):
        for n in sizes:
            a = flint.arb(n - 1).log()
            low, high = flint.fmpq(0), flint.fmpq(4)
            for _ in range(90):
                middle = (low + high) / 2
                x = flint.arb(middle)
                low, high = (middle, high) if bool((x / 2).tanh() * (a + x) < 2) else (low, middle)
            value = varentropy_of_atom(n, flint.arb(low).union(flint.arb(high)))
            number = fraction(value.mid().str(25, radius=False)) + fraction(shift)
            claim[str(n)] = {"value": str(number), "radius": "1/1000000000000"}
            evidence[str(n)] = {"root_low": str(low), "root_high": str(high)}
    return {"claim": claim, "evidence": evidence}


def check_values(witness: Witness) -> Verdict:
    verdicts = []
    with precision(300):
        for size, claim in witness["claim"].items():
            n, bracket = int(size), witness["evidence"][size]
            a = flint.arb(n - 1).log()
            low, high = (ball(fraction(bracket[key])) for key in ("root_low", "root_high"))
            # tanh(x/2)(a + x) rises on x > 0, so the signs at the ends enclose its only root.
            verdicts.append(Verdict(bool((low / 2).tanh() * (a + low) < 2), f"n = {n}: the root is below the bracket"))
            verdicts.append(Verdict(bool((high / 2).tanh() * (a + high) > 2), f"n = {n}: the root is above it"))
            enclosure = varentropy_of_atom(n, low.union(high))
            value, radius = fraction(claim["value"]), fraction(claim["radius"])
            inside = bool(enclosure > ball(value - radius)) and bool(enclosure < ball(value + radius))
            verdicts.append(Verdict(inside, f"n = {n}: {enclosure.str(15)} is not within {float(radius)} of the claim"))
            used = ball(fraction(repr(max_varentropy(n))))
            verdicts.append(
                Verdict(bool(abs(used - enclosure) < 1e-10), f"n = {n}: the constructors use {max_varentropy(n)!r}")
            )
    return all_of(verdicts, f"{len(witness['claim'])} vocabularies enclosed to 1e-12; the constructors' numbers agree")


def falsified_values() -> list[Falsehood]:
    return [Falsehood("every V_max larger by 1e-9", prove_values("1/1000000000", (25, 49152)))]


CERTIFICATES = (
    Certificate(
        name="max-varentropy",
        statement="the varentropy of a distribution over n outcomes is below ln^2(n-1)/4 + 1",
        domain="every n >= 2, every distribution",
        method="three steps of identities, z3 beside them; power series with positive coefficients",
        argument=(
            "V is continuous on the simplex (p ln^2 p -> 0), so it has a maximum; on the face where it lies, dV/dp_i = "
            "l_i^2 + 2 l_i - 2m(l_i + 1) is one number for all i, a monic quadratic in l_i = ln p_i: the first identity "
            "says that of three such levels x, y, z two are equal. Two levels, j atoms of total mass p against "
            "k >= j: V = p(1-p)(ln(k/j) + logit p)^2, largest for j = 1, k = n - 1. With x = logit p and a = ln(n-1): "
            "p(1-p) = 1/(4 cosh^2(x/2)), (a+x)^2 <= (a^2/4+1)(4+x^2), cosh^2(x/2) >= 1 + x^2/4. Equality needs a x = 4 "
            "in the second and x = 0 in the third, so the bound is strict."
        ),
        prove=prove,
        check=check,
        falsified=falsified,
    ),
    Certificate(
        name="max-varentropy-values",
        statement="V_max at the vocabularies in use, each within 1e-12, equal to what the constructors use",
        domain="n in " + ", ".join(map(str, SHIPPED)),
        method="ball arithmetic (300 bits) on a bracketed root",
        argument=(
            "By max-varentropy the maximum is that of (a + x)^2/(4 cosh^2(x/2)) on x > 0; its logarithm has derivative "
            "2/(a+x) - tanh(x/2), which falls, so the one root of tanh(x/2)(a+x) = 2 is the maximiser; n = 2 has a = 0."
        ),
        prove=prove_values,
        check=check_values,
        falsified=falsified_values,
    ),
)
