"""Gain bounds for varentropy that varies in any way: PI without delay, the I law with delay, the whole velocity law.

One explicit Lyapunov function covers them. With y_j the effect V u of j tokens ago (y_0 now) and

    s = u - k_i sum_{j<=d} y_j + k_p y_{d+1} + k_d (y_{d+1} - y_{d+2})        so that s+ = s - k_i y_0,
    W = s^2 + k_i^2 sum_{j<=d} sum_{i<=j} y_i^2 + k_i |k_p| sum_{i<=d+1} y_i^2
            + k_i |k_d| (sum_{i<=d+1} + sum_{i<=d+2}) y_i^2,

the sector condition u y_0 >= y_0^2 / V_max gives W+ <= W whenever ((2d+1) k_i + 2|k_p| + 4|k_d|) V_max <= 2. At
k_p = k_d = 0 the squares left over are those of the Dirichlet kernel, sum_j |1 - exp(ijw)|^2: the circle criterion,
made explicit.
"""

from typing import Any

from workbench.analysis.certificate import Certificate, Falsehood, Verdict, Witness, fraction
from workbench.analysis.lemma import Lemma, Term, prove_lemmas, verdict_of

Signs = tuple[int, int]


def _sum(terms: list[str]) -> str:
    return " + ".join(terms) if terms else "0"


def decrease(delay: int, signs: Signs, limit: str, terms: set[str]) -> Lemma:
    """M (W - W+) >= 0 for one delay and one choice of signs; `terms` of "p", "d" says which gains are present."""
    last = delay + (2 if "d" in terms else 1 if "p" in terms else 0)
    y = [f"y{j}" for j in range(last + 1)]
    variables = ["k", "M", "u", *y]
    given, bound = [], f"{2 * delay + 1}*k"
    shift_p, shift_d = ("+" if s > 0 else "-" for s in signs)

    def state(past: list[str], u: str) -> str:
        """s and the storage, for the past effects past[0] = one token ago, and so on."""
        s = f"{u} - k*({_sum(past[:delay])})"
        storage = [f"k**2*({_sum([f'({v})**2' for v in past[:j]])})" for j in range(1, delay + 1)]
        if "p" in terms:
            s += f" {shift_p} p*({past[delay]})"
            storage.append(f"k*p*({_sum([f'({v})**2' for v in past[: delay + 1]])})")
        if "d" in terms:
            s += f" {shift_d} q*({past[delay]} - {past[delay + 1]})"
            storage += [f"k*q*({_sum([f'({v})**2' for v in past[: delay + n]])})" for n in (1, 2)]
        return f"({s})**2 + {_sum(storage)}"

    # one step of the law: u+ = u - k y_d -+ p (y_d - y_{d+1}) -+ q (y_d - 2 y_{d+1} + y_{d+2})
    step = f"u - k*{y[delay]}"
    squares = [Term(factors=("M", "k", "k"), squares=(f"y0 - {v}",)) for v in y[1 : delay + 1]]
    if "p" in terms:
        variables.append("p")
        given.append("p")
        bound += " + 2*p"
        step += f" {'-' if signs[0] > 0 else '+'} p*({y[delay]} - {y[delay + 1]})"
        squares.append(Term(factors=("M", "k", "p"), squares=(f"y0 {shift_p} {y[delay + 1]}",)))
    if "d" in terms:
        variables.append("q")
        given.append("q")
        bound += " + 4*q"
        step += f" {'-' if signs[1] > 0 else '+'} q*({y[delay]} - 2*{y[delay + 1]} + {y[delay + 2]})"
        opposite = "-" if signs[1] > 0 else "+"
        squares.append(Term(factors=("M", "k", "q"), squares=(f"y0 {shift_d} {y[delay + 1]}",)))
        squares.append(Term(factors=("M", "k", "q"), squares=(f"y0 {opposite} {y[delay + 2]}",)))
    sector, room = "M*u*y0 - y0**2", f"{limit} - M*({bound})"
    return Lemma(
        variables=tuple(variables),
        given=(*given, sector, room),
        positive=("k", "M"),
        shows=f"({state(y[1:], 'u')}) - ({state(y[:-1] if last else [], step)})",
        multiplier=("M",),
        terms=(Term("2", ("k", sector)), Term("1", ("k", room), ("y0",)), *squares),
    )


def lemmas(claim: dict[str, Any]) -> dict[str, Lemma]:
    terms = set(claim["terms"])
    choices = [(a, b) for a in ((1, -1) if "p" in terms else (1,)) for b in ((1, -1) if "d" in terms else (1,))]
    return {
        f"delay {d}, signs {a:+d} {b:+d}": decrease(d, (a, b), claim["limit"], terms)
        for d in claim["delays"]
        for a, b in choices
    }


def prove(terms: str, delays: tuple[int, ...], limit: str = "2") -> Witness:
    claim = {"terms": terms, "delays": list(delays), "limit": limit}
    return {"claim": claim, "evidence": prove_lemmas(lemmas(claim), ask_up_to_variables=6)}


def check(witness: Witness) -> Verdict:
    if fraction(witness["claim"]["limit"]) <= 0:
        return Verdict(False, "an empty interval proves nothing")
    return verdict_of(lemmas(witness["claim"]), witness["evidence"])


def _certificate(
    name: str, statement: str, domain: str, terms: str, delays: tuple[int, ...], wrong: str
) -> Certificate:
    return Certificate(
        name=name,
        statement=statement,
        domain=domain,
        method="explicit Lyapunov function; its decrease is an exact identity per delay, z3 beside the small ones",
        argument=(__doc__ or "").split("\n\n", 1)[1].strip(),
        prove=lambda: prove(terms, delays),
        check=check,
        falsified=lambda: [Falsehood(wrong, prove(terms, delays, "201/100"))],
    )


CERTIFICATES = (
    _certificate(
        "pi-varying",
        "PI with V varying anywhere in (0, V_max]: bounded when (k_i + 2|k_p|) V_max <= 2",
        "every k_i > 0, k_p of either sign, V_max > 0, delay 0, any sequence of V",
        "p",
        (0,),
        "(k_i + 2|k_p|) V_max <= 2.01",
    ),
    _certificate(
        "delay-varying",
        "I law with V varying anywhere in (0, V_max], d tokens late: bounded when k_i V_max <= 2/(2d+1)",
        "delays 0 to 8, every k_i > 0 and V_max > 0, any sequence of V",
        "",
        tuple(range(9)),
        "k_i V_max <= 2.01/(2d+1)",
    ),
    _certificate(
        "velocity-varying",
        "the velocity law with delay, V varying: bounded when ((2d+1) k_i + 2|k_p| + 4|k_d|) V_max <= 2",
        "delays 0 to 4, every k_i > 0, k_p and k_d of either sign, V_max > 0, any sequence of V",
        "pd",
        tuple(range(5)),
        "((2d+1) k_i + 2|k_p| + 4|k_d|) V_max <= 2.01",
    ),
)
