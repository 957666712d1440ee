"""How a number is written on the page: three significant digits, its unit, its interval; a dash with a reason if none."""

import math

from workbench.metrics import Figure, Metric

MINUS, DASH = "−", "–"
THIN = "\u202f"  # narrow and never broken: a number stays with its unit


MANY = 10.0  # changes from a thousand per cent on are written as factors: six digits of per cent say little


def digits(value: float) -> str:
    """Three significant digits without an exponent between 0.001 and a million, a true minus sign."""
    if value == 0.0:
        return "0"
    size = float(f"{abs(value):.3g}")
    if size >= 1e6 or size < 1e-3:
        mantissa, exponent = f"{size:.2e}".split("e")
        text = f"{mantissa}×10{_superscript(int(exponent))}"
    elif size >= 1000:
        text = f"{size:,.0f}".replace(",", THIN)
    else:
        text = f"{size:.{max(0, 2 - math.floor(math.log10(size)))}f}"
    return MINUS + text if value < 0 else text


def _superscript(number: int) -> str:
    return str(number).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def percent(value: float, signed: bool = True) -> str:
    """A share as percent: one decimal below ten, none above, a sign where it is a change."""
    points = 100.0 * value
    size = abs(points)
    text = f"{size:.0f}" if size >= 9.95 else f"{size:.1f}"
    if size > 999.5:
        text = digits(size)
    if float(text.replace(THIN, "").split("×")[0]) == 0.0:
        return "0" + THIN + "%"
    sign = MINUS if points < 0 else "+" if signed else ""
    return sign + text + THIN + "%"


def times(value: float) -> str:
    """A relative change as a factor: "×12.3"."""
    return f"×{digits(1.0 + value)}"


def scaled(metric: Metric, reference: float) -> tuple[float, str]:
    """(factor, unit) a metric is shown in, given a typical value: milliseconds below a second, percent for shares."""
    if metric.unit == "s":
        return (1e3, "ms") if abs(reference) < 1.0 else (1.0, "s")
    if metric.unit.startswith("share"):
        return 100.0, "%" + metric.unit.removeprefix("share")
    return 1.0, metric.unit


def value_text(metric: Metric, figure: Figure, reference: float | None = None) -> str:
    """The value with its unit, or a dash."""
    if figure.value is None:
        return DASH
    factor, unit = scaled(metric, figure.value if reference is None else reference)
    return f"{digits(figure.value * factor)}{THIN}{unit}".rstrip()


def interval_text(metric: Metric, figure: Figure, reference: float | None = None) -> str:
    """ "low to high" in the unit of the value; empty without an interval."""
    if figure.value is None or figure.low is None or figure.high is None:
        return ""
    factor, _ = scaled(metric, figure.value if reference is None else reference)
    return f"{digits(figure.low * factor)} to {digits(figure.high * factor)}"


def change_text(relative: Figure) -> str:
    """ "-12 % (-15 to -9)" of a relative change, "×12.3 (9.1 to 15.5)" from `MANY` on."""
    if relative.value is None:
        return DASH
    if relative.value >= MANY:
        ends = relative.low, relative.high
        within = "" if None in ends else f" ({' to '.join(digits(1.0 + end) for end in ends if end is not None)})"
        return times(relative.value) + within
    if relative.low is None or relative.high is None:
        return percent(relative.value)
    low, high = (percent(end).removesuffix(THIN + "%") for end in (relative.low, relative.high))
    return f"{percent(relative.value)} ({low} to {high})"
