"""Charts: round ticks, everything inside the frame, text escaped, a title for those who cannot see it."""

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.report.svg import HEIGHT, WIDTH, Line, Point, dot_chart, line_chart, log_ticks, ticks

FINITE = st.floats(min_value=-1e9, max_value=1e9, allow_nan=False).filter(lambda v: v == 0 or abs(v) > 1e-9)


@given(FINITE, st.floats(min_value=1e-6, max_value=1e6))
def test_ticks_are_round_inside_and_few(low: float, span: float) -> None:
    high = low + span
    if high - low < 1e-9 * max(abs(low), abs(high)):
        return
    marks = ticks(low, high)
    assert 1 <= len(marks) <= 6
    tolerance = 1e-6 * (high - low)
    assert all(low - tolerance <= mark <= high + tolerance for mark in marks)
    if len(marks) > 1:
        step = marks[1] - marks[0]
        mantissa = step / 10.0 ** math.floor(math.log10(step) + 1e-6)
        assert min(abs(mantissa - m) for m in (1.0, 2.0, 2.5, 5.0, 10.0)) < 1e-3 * mantissa


def test_log_ticks_cover_decades() -> None:
    assert log_ticks(0.01, 100.0) == pytest.approx([0.01, 0.1, 1.0, 10.0, 100.0])
    assert log_ticks(1.0, 10.0) == [1.0, 2.0, 5.0, 10.0]


@given(
    st.lists(
        st.tuples(FINITE, st.one_of(st.none(), FINITE), st.floats(min_value=0, max_value=1e9)), min_size=0, max_size=12
    ),
    st.booleans(),
)
def test_nothing_leaves_the_frame(values: list[tuple[float, float | None, float]], marks: bool) -> None:
    points = [Point(x, y, None if y is None else y - half, None if y is None else y + half) for x, y, half in values]
    chart = str(line_chart("t", "d", [Line("a", "s", points)], "x", "y", step_marks=marks))
    assert "nan" not in chart
    assert "inf" not in chart
    root = ElementTree.fromstring(chart)
    for element in root.iter():
        for name, size in (("x", WIDTH), ("x1", WIDTH), ("x2", WIDTH), ("cx", WIDTH), ("y1", HEIGHT), ("y2", HEIGHT)):
            if name in element.attrib:
                assert -1.0 <= float(element.attrib[name]) <= size + 1.0
        for pair in element.attrib.get("points", "").split():
            x, y = map(float, pair.split(","))
            assert -1.0 <= x <= WIDTH + 1.0
            assert -1.0 <= y <= HEIGHT + 1.0


def test_values_are_drawn_where_they_are() -> None:
    chart = str(line_chart("t", "d", [Line("a", "s", [Point(0, 0.0), Point(1, 5.0), Point(2, 10.0)])], "x", "y"))
    ys = [float(y) for _, y in re.findall(r'<circle class="dot s" cx="([\d.]+)" cy="([\d.]+)"', chart)]
    assert ys[0] > ys[1] > ys[2]
    assert ys[1] == pytest.approx((ys[0] + ys[2]) / 2, abs=0.11)


def test_a_gap_splits_the_line() -> None:
    points = [Point(0, 1.0), Point(1, 1.0), Point(2, None), Point(3, 1.0), Point(4, 1.0)]
    assert str(line_chart("t", "d", [Line("a", "s", points)], "x", "y")).count("<polyline") == 2


def test_text_is_escaped_and_a_title_is_there() -> None:
    evil = '</svg><script>alert("1")</script>'
    for chart in (
        line_chart(evil, evil, [Line(evil, "s", [Point(0, 1.0)])], evil, evil),
        dot_chart(evil, evil, [(evil, Point(1.0, None, 0.5, 1.5), "better")], evil),
        line_chart(evil, evil, [], evil, evil),
    ):
        root = ElementTree.fromstring(str(chart))
        assert root.find("title") is not None
        assert root.find("desc") is not None
        assert "<script" not in chart
