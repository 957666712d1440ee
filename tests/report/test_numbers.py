"""How numbers are written: three digits, true minus, units that fit, a dash where there is nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.metrics import Figure
from workbench.metrics.table import BY_NAME
from workbench.report.numbers import THIN, change_text, digits, interval_text, percent, value_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1.0, "1.00"),
        (-0.1234, "−0.123"),
        (999.6, f"1{THIN}000"),
        (0.9999999, "1.00"),
        (12345.6, f"12{THIN}300"),
        (2.5e6, "2.50×10⁶"),
        (-4.2e-5, "−4.20×10⁻⁵"),
    ],
)
def test_digits(value: float, text: str) -> None:
    assert digits(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e12, max_value=1e12))
def test_digits_keep_three_significant_ones(value: float) -> None:
    text = digits(value).replace("−", "-").replace(THIN, "")
    if "×10" in text:
        mantissa, power = text.split("×10")
        back = float(mantissa) * 10.0 ** int(power.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")))
    else:
        back = float(text)
    assert back == pytest.approx(value, rel=6e-3)


@pytest.mark.parametrize(
    ("value", "text"), [(-0.4, "−40"), (0.0123, "+1.2"), (-0.00001, "0"), (12.0, f"+1{THIN}200"), (0.0999, "+10")]
)
def test_percent(value: float, text: str) -> None:
    assert percent(value) == f"{text}{THIN}%"


def test_seconds_below_one_are_milliseconds_and_the_interval_follows() -> None:
    metric = BY_NAME["ttft_p50_s"]
    figure = Figure(0.0312, 0.03, 0.0324, "t, 3 seeds", 3)
    assert value_text(metric, figure) == f"31.2{THIN}ms"
    assert interval_text(metric, figure) == "30.0 to 32.4"
    assert interval_text(metric, figure, reference=2.0) == "0.0300 to 0.0324"


def test_nothing_is_a_dash() -> None:
    assert value_text(BY_NAME["ttft_p50_s"], Figure(None, reason="no request completed")) == "–"
    assert change_text(Figure(None)) == "–"
    assert change_text(Figure(755.0, 323.0, 1189.0)) == f"×756 (324 to 1{THIN}190)"
    assert change_text(Figure(20.0)) == "×21.0"
    assert change_text(Figure(-0.1, -0.15, -0.05)) == f"−10{THIN}% (−15 to −5.0)"
