"""One quantity as a picture: its 99 % interval over the parts its thresholds cut the axis into."""

import math

from markupsafe import Markup, escape

from workbench.claims.claim import Measured, Quantity, Verdict
from workbench.report.numbers import MINUS

WIDTH, HEIGHT, LEFT, TOP, BAR = 760, 50, 12, 6, 24
CSS = {
    Verdict.REPRODUCED: "good",
    Verdict.PARTLY: "half",
    Verdict.NOT_REPRODUCED: "bad",
    Verdict.FALSE: "bad",
}


def interval_picture(quantity: Quantity, found: Measured) -> Markup:
    """Caption and inline SVG; an interval without ends reaches both edges. Colours are classes of the page."""
    known = [v for v in (found.value, found.low, found.high, *quantity.rule.cuts) if math.isfinite(v)]
    low, high = min(known), max(known)
    pad = 0.15 * (high - low) or 0.5 * abs(high) or 1.0
    low, high = low - pad, high + pad

    def x_of(value: float) -> float:
        return LEFT + (min(max(value, low), high) - low) / (high - low) * (WIDTH - 2 * LEFT)

    parts, middle = [], TOP + BAR // 2
    edges = [low, *quantity.rule.cuts, high]
    for start, end, verdict in zip(edges, edges[1:], quantity.rule.parts, strict=False):
        x, w = x_of(start), x_of(end) - x_of(start)
        parts.append(f'<rect class="{CSS[verdict]}" x="{x:.1f}" y="{TOP}" width="{w:.1f}" height="{BAR}"/>')
        if w > 110:
            parts.append(f'<text class="part" x="{x + 5:.1f}" y="{TOP + BAR - 3}">{escape(verdict.value)}</text>')
    last = -math.inf
    for cut in quantity.rule.cuts:
        x = x_of(cut)
        parts.append(f'<line class="cut" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 3}" y2="{TOP + BAR + 3}"/>')
        # A label that would lie on its neighbour is left out: the verdict says on which side the interval is.
        if x - last > 34:
            parts.append(f'<text class="cut" x="{x:.1f}" y="{TOP + BAR + 15}" text-anchor="middle">{cut:.3g}</text>')
            last = x
    x1, x2 = x_of(found.low), x_of(found.high)
    parts.append(f'<line class="span" x1="{x1:.1f}" x2="{x2:.1f}" y1="{middle}" y2="{middle}"/>')
    for end, x in ((found.low, x1), (found.high, x2)):
        if math.isfinite(end) and x2 - x1 > 2.0:
            parts.append(f'<line class="span" x1="{x:.1f}" x2="{x:.1f}" y1="{middle - 5}" y2="{middle + 5}"/>')
    parts.append(f'<circle class="value" cx="{x_of(found.value):.1f}" cy="{middle}" r="4.5"/>')
    text = f"{quantity.label}: {text_of(found)}"
    verdict = quantity.rule.verdict(found).value
    drawn = Markup('<svg class="interval" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        WIDTH, HEIGHT, f"{text}: {verdict}", Markup("".join(parts))
    )
    return Markup("<figure><figcaption><b>{}</b> {} <small>{}; {}</small></figcaption>{}</figure>").format(
        quantity.label, text_of(found), verdict, found.method, drawn
    )


def text_of(found: Measured) -> str:
    if found.low == found.high:
        return f"{number_text(found.value)} exactly"
    if not math.isfinite(found.low):
        return f"{number_text(found.value)}, no interval"
    return f"{number_text(found.value)} ({number_text(found.low)} to {number_text(found.high)})"


def number_text(value: float) -> str:
    """Three digits, with a minus that is as wide as a plus."""
    return f"{value:.3g}".replace("-", MINUS)
