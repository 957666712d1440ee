"""Ball arithmetic (python-flint): entropy and varentropy as rigorous enclosures, series derivatives included."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction

import flint


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Working precision inside the block; restored after it."""
    before = flint.ctx.prec
    flint.ctx.prec = bits
    try:
        yield
    finally:
        flint.ctx.prec = before


def ball(value: str | int | Fraction) -> flint.arb:
    """The tightest ball around a rational."""
    number = Fraction(value)
    return flint.arb(flint.fmpq(number.numerator, number.denominator))


def entropy_series(logits: Sequence[str], log_temperature: str) -> tuple[flint.arb, flint.arb]:
    """(dH/du, V) at u = log_temperature: the first from a power series in u, the second from its definition."""
    order = 2
    u = flint.arb_series([ball(log_temperature), 1], prec=order)
    inverse_temperature = (-u).exp()
    scaled = [inverse_temperature * ball(z) for z in logits]
    log_total = sum((x.exp() for x in scaled), flint.arb_series([0], prec=order)).log()
    log_p = [x - log_total for x in scaled]
    entropy = -sum((lp.exp() * lp for lp in log_p), flint.arb_series([0], prec=order))
    values = [lp[0] for lp in log_p]
    mean = sum((lp.exp() * lp for lp in values), flint.arb(0))
    varentropy = sum((lp.exp() * (lp - mean) ** 2 for lp in values), flint.arb(0))
    return entropy[1], varentropy


def level_statistics(levels: Sequence[tuple[flint.arb, int]]) -> tuple[flint.arb, flint.arb]:
    """(H, V) of the softmax of logits given as (level, multiplicity)."""
    top = max(levels, key=lambda level: float(level[0].mid()))[0]
    total = sum((m * (z - top).exp() for z, m in levels), flint.arb(0))
    log_p = [(z - top - total.log(), m) for z, m in levels]
    entropy = -sum((m * lp.exp() * lp for lp, m in log_p), flint.arb(0))
    return entropy, sum((m * lp.exp() * (lp + entropy) ** 2 for lp, m in log_p), flint.arb(0))


def varentropy_of_atom(num_outcomes: int, logit: flint.arb) -> flint.arb:
    """V of one atom of probability p against n - 1 equal ones, x = logit p: (ln(n-1) + x)^2 / (4 cosh^2(x/2))."""
    a = flint.arb(num_outcomes - 1).log() if num_outcomes > 2 else flint.arb(0)
    return (a + logit) ** 2 / (4 * (logit / 2).cosh() ** 2)


def lower_rational(value: flint.arb) -> Fraction:
    """The ball's lower end, exactly."""
    end = value.lower().fmpq()
    return Fraction(int(end.p), int(end.q))


def upper_rational(value: flint.arb) -> Fraction:
    """The ball's upper end, exactly."""
    end = value.upper().fmpq()
    return Fraction(int(end.p), int(end.q))
