"""The numbers that constructors use lie inside what is proven."""

from fractions import Fraction
from typing import Any

from controllers.temperature.gain_bounds import integral_gain_limit
from workbench.analysis.certificate import Certificate, Falsehood, Verdict, Witness, all_of, fraction
from workbench.analysis.certificates.max_varentropy import check_values, prove_values
from workbench.analysis.stability import gain_interval

SIZES = (24, 25, 26, 32000, 49152, 128256, 151936)
DELAYS = tuple(range(9))


def prove(inflate: str = "1") -> Witness:
    """Every limit as the constructors compute it, as the exact rational value of its float."""
    rows = [
        {"vocab_size": n, "delay": d, "limit": str(Fraction(integral_gain_limit(n, d)) * Fraction(inflate))}
        for n in SIZES
        for d in DELAYS
    ]
    return {
        "claim": {"rows": rows, "tolerance": "1/1000000000000"},
        "evidence": {"max_varentropy": prove_values(sizes=SIZES)},
    }


def check(witness: Witness) -> Verdict:
    """limit (2d+1) V_max = 2 within the tolerance, V_max from its ball; `stability.gain_interval` says the same."""
    values, tolerance = witness["evidence"]["max_varentropy"], fraction(witness["claim"]["tolerance"])
    verdicts = [check_values(values)]
    for row in witness["claim"]["rows"]:
        n, d, limit = int(row["vocab_size"]), int(row["delay"]), fraction(row["limit"])
        value: dict[str, Any] = values["claim"][str(n)]
        product = limit * (2 * d + 1) * fraction(value["value"])
        verdicts.append(Verdict(abs(product - 2) <= tolerance, f"n = {n}, delay {d}: {float(product):.15f} is not 2"))
        ours = Fraction(gain_interval("I", n, d).high)
        verdicts.append(Verdict(abs(ours - limit) <= tolerance * limit, f"n = {n}, delay {d}: two numbers in use"))
    return all_of(verdicts, f"{len(witness['claim']['rows'])} limits equal 2/((2d+1) V_max) to 1e-12")


CERTIFICATES = (
    Certificate(
        name="gain-interval",
        statement="constructors accept k_i exactly up to 2/((2d+1) V_max), the bound of delay-varying",
        domain=f"n in {', '.join(map(str, SIZES))}; delays {DELAYS[0]} to {DELAYS[-1]}",
        method="ball values of V_max against the constructors' floats, exactly",
        argument="The proof is delay-varying with max-varentropy; this ties the numbers in use to it, to 1e-12.",
        prove=prove,
        check=check,
        falsified=lambda: [Falsehood("limits larger by 1e-9", prove("1000000001/1000000000"))],
    ),
)
