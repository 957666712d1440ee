"""Small charts as inline SVG: lines with intervals, traces over time, dots with intervals. No script, no fixed colour.

Colours are CSS classes, so a chart follows the page into the dark; series differ by dash as well as by colour; every
chart carries a title and a description for those who cannot see it. Text is escaped here.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from workbench.report.numbers import MINUS, digits

WIDTH, HEIGHT = 380, 232
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 14, 36


@dataclass(frozen=True)
class Point:
    x: float
    y: float | None  # None draws a gap
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Line:
    label: str
    css: str  # class of the series: "base", "s", "t", "p", "all"
    points: Sequence[Point]


def ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Round numbers (1, 2, 5 times a power of ten) that span [low, high]."""
    span = max(high - low, 1e-12 * max(abs(high), 1.0))
    raw = span / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((m * power for m in (1.0, 2.0, 2.5, 5.0) if m * power >= raw * (1 - 1e-9)), 10.0 * power)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    marks = [
        m * 10.0**e
        for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for m in (1.0, 2.0, 5.0)
    ]
    inside = [mark for mark in marks if low * 0.999 <= mark <= high * 1.001]
    decades = [mark for mark in inside if abs(math.log10(mark) % 1.0) < 1e-9]
    return decades if len(inside) > 7 and len(decades) >= 2 else inside[:: 1 + len(inside) // 8]


def line_chart(
    title: str, description: str, lines: Sequence[Line], x_label: str, y_label: str, *, target: float | None = None,
    step_marks: bool = True, may_log: bool = True, y_floor: float | None = 0.0, x_ticks: Sequence[float] | None = None,
) -> Markup:  # fmt: skip
    """Lines over x. Log scale in y where the values span a factor above thirty and `may_log`. `target` draws a dashed rule."""
    points = [p for line in lines for p in line.points if p.y is not None]
    if not points:
        return empty_chart(title, "nothing was measured")
    ys = [y for p in points for y in (p.y, p.low, p.high) if y is not None] + ([] if target is None else [target])
    centers = [p.y for p in points if p.y is not None]
    log = may_log and min(centers) > 0.0 and max(centers) / min(centers) > 30.0
    if log:
        low, high = min(centers) / 1.3, max(y for y in ys) * 1.15
        place_y = _scale(math.log10(low), math.log10(high), HEIGHT - BOTTOM, TOP)
        y_of: Callable[[float], float] = lambda y: place_y(math.log10(max(y, low)))  # noqa: E731
        marks = log_ticks(low, high)
    else:
        low = min([*centers, y_floor]) if y_floor is not None else min(ys)
        # One wild interval must not flatten the rest: bars are cut at 1.5 times the range of the values.
        high = min(max(ys), low + 1.5 * (max([*centers, low if target is None else target]) - low) or max(ys))
        pad = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
        low = low if y_floor is not None and low >= y_floor else low - pad
        y_of = _scale(low, high + pad, HEIGHT - BOTTOM, TOP)
        marks = ticks(low, high + pad)
    x_low, x_high = min(p.x for p in points), max(p.x for p in points)
    if x_low == x_high:
        x_low, x_high = x_low - 0.5, x_high + 0.5
    inset = 10 if step_marks else 0
    x_of = _scale(x_low, x_high, LEFT + inset, WIDTH - RIGHT - inset)
    body = [_y_axis(marks, y_of, y_label + (" (log)" if log else ""))]
    body.append(_x_axis(x_ticks if x_ticks is not None else ticks(x_low, x_high, 5), x_of, x_label))
    inside = y_of
    y_of = lambda y: min(max(inside(y), TOP - 2.0), float(HEIGHT - BOTTOM))  # noqa: E731
    if target is not None:
        y = y_of(target)
        body.append(f'<line class="target" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
    spread = 3.0 if step_marks else 0.0
    for k, line in enumerate(lines):
        shift = spread * (k - (len(lines) - 1) / 2)
        body.append(_line(line, lambda x, s=shift: x_of(x) + s, y_of, step_marks))
    return _frame(title, description, body, WIDTH, HEIGHT)


def dot_chart(title: str, description: str, rows: Sequence[tuple[str, Point, str]], x_label: str) -> Markup:
    """One dot with its interval a row: (label, point with x as the value and low/high as the interval, class)."""
    if not rows:
        return empty_chart(title, "nothing to compare")
    xs = [v for _, p, _ in rows for v in (p.x, p.low, p.high) if v is not None] + [0.0]
    low, high = min(xs), max(xs)
    pad = 0.06 * (high - low) or 1.0
    left, line_height = 148, 23
    height = TOP + line_height * len(rows) + BOTTOM
    x_of = _scale(low - pad, high + pad, left, WIDTH - RIGHT)
    bottom = height - BOTTOM
    body = []
    for mark in ticks(low - pad, high + pad, 4):
        x = x_of(mark)
        body.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 4}" y2="{bottom}"/>')
        body.append(
            f'<text class="tick" x="{x:.1f}" y="{bottom + 14}" text-anchor="middle">{escape(_tick(mark))}</text>'
        )
    body.append(f'<line class="zero" x1="{x_of(0):.1f}" x2="{x_of(0):.1f}" y1="{TOP - 4}" y2="{bottom}"/>')
    for k, (label, point, css) in enumerate(rows):
        y = TOP + line_height * (k + 0.5)
        body.append(f'<text class="row" x="{left - 10}" y="{y + 4:.1f}" text-anchor="end">{escape(label)}</text>')
        if point.low is not None and point.high is not None:
            x1, x2 = x_of(point.low), x_of(point.high)
            body.append(f'<line class="bar {css}" x1="{x1:.1f}" x2="{x2:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        body.append(f'<circle class="dot {css}" cx="{x_of(point.x):.1f}" cy="{y:.1f}" r="4"/>')
    middle = (left + WIDTH - RIGHT) / 2
    body.append(f'<text class="axis" x="{middle}" y="{height - 6}" text-anchor="middle">{escape(x_label)}</text>')
    return _frame(title, description, body, WIDTH, height)


def _tick(mark: float) -> str:
    """A round number as short as it is: 0.5, 1 000, 2×10⁶."""
    return digits(mark) if abs(mark) >= 1000 or 0 < abs(mark) < 1e-3 else f"{mark:.6g}".replace("-", MINUS)


def empty_chart(title: str, why: str) -> Markup:
    body = [f'<text class="note" x="{WIDTH / 2}" y="{HEIGHT / 2}" text-anchor="middle">{escape(why)}</text>']
    return _frame(title, f"No picture: {why}.", body, WIDTH, HEIGHT)


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    factor = (end - start) / ((high - low) or 1.0)
    return lambda value: start + (value - low) * factor


def _y_axis(marks: Sequence[float], y_of: Callable[[float], float], label: str) -> str:
    parts = [f'<text class="axis" x="{LEFT - 44}" y="{TOP - 3}">{escape(label)}</text>']
    for mark in marks:
        y = y_of(mark)
        if y < TOP + 6:
            continue
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{escape(_tick(mark))}</text>'
        )
    return "".join(parts)


def _x_axis(marks: Sequence[float], x_of: Callable[[float], float], label: str) -> str:
    bottom = HEIGHT - BOTTOM
    parts = [f'<line class="frame" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>']
    for mark in marks:
        x = x_of(mark)
        parts.append(f'<line class="frame" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 4}"/>')
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{bottom + 15}" text-anchor="middle">{escape(_tick(mark))}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text class="axis" x="{middle}" y="{HEIGHT - 5}" text-anchor="middle">{escape(label)}</text>')
    return "".join(parts)


def _line(line: Line, x_of: Callable[[float], float], y_of: Callable[[float], float], marks: bool) -> str:
    parts: list[str] = []
    run: list[str] = []
    for point in [*line.points, Point(0.0, None)]:
        if point.y is None:
            if len(run) > 1:
                parts.append(f'<polyline class="line {line.css}" points="{" ".join(run)}"/>')
            elif run:
                x, y = run[0].split(",")
                parts.append(f'<circle class="dot {line.css}" cx="{x}" cy="{y}" r="1.5"/>')
            run = []
            continue
        x, y = x_of(point.x), y_of(point.y)
        run.append(f"{x:.1f},{y:.1f}")
        if point.low is not None and point.high is not None:
            y1, y2 = y_of(point.low), y_of(point.high)
            parts.append(f'<line class="bar {line.css}" x1="{x:.1f}" x2="{x:.1f}" y1="{y1:.1f}" y2="{y2:.1f}"/>')
        if marks:
            parts.append(f'<circle class="dot {line.css}" cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>')
    return "".join(parts)


def _frame(title: str, description: str, body: Sequence[str], width: int, height: int) -> Markup:
    return Markup(
        f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>{''.join(body)}</svg>"
    )
