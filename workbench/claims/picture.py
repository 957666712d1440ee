"""One quantity as a picture: its 99 % interval over the parts its thresholds cut the axis into."""

import math

from markupsafe import Markup, escape

from workbench.claims.claim import Measured, Quantity, Verdict

WIDTH, HEIGHT, LEFT, TOP, BAR = 760, 46, 12, 4, 24
COLOURS = {
    Verdict.REPRODUCED: "#d7eedd",
    Verdict.PARTLY: "#f6ebc8",
    Verdict.NOT_REPRODUCED: "#f5d9d9",
    Verdict.FALSE: "#f5d9d9",
}


def interval_picture(quantity: Quantity, found: Measured) -> Markup:
    """Caption and inline SVG; an interval without ends reaches both edges."""
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
        parts.append(f'<rect x="{x:.1f}" y="{TOP}" width="{w:.1f}" height="{BAR}" fill="{COLOURS[verdict]}"/>')
        if w > 90:
            parts.append(
                f'<text x="{x + 4:.1f}" y="{TOP + 16}" font-size="11" fill="#777">{escape(verdict.value)}</text>'
            )
    for cut in quantity.rule.cuts:
        parts.append(
            f'<line x1="{x_of(cut):.1f}" x2="{x_of(cut):.1f}" y1="{TOP - 2}" y2="{TOP + BAR + 2}" stroke="#555"/>'
        )
        parts.append(
            f'<text x="{x_of(cut):.1f}" y="{TOP + BAR + 14}" font-size="11" text-anchor="middle" fill="#555">{cut:.3g}</text>'
        )
    parts.append(
        f'<line x1="{x_of(found.low):.1f}" x2="{x_of(found.high):.1f}" y1="{middle}" y2="{middle}" stroke="#123" stroke-width="2"/>'
    )
    parts.append(f'<circle cx="{x_of(found.value):.1f}" cy="{middle}" r="4.5" fill="#123"/>')
    text = f"{quantity.label}: {text_of(found)}: {quantity.rule.verdict(found).value}"
    drawn = Markup(
        '<svg viewBox="0 0 {0} {1}" width="100%" style="max-width:{0}px;font-family:sans-serif" role="img" aria-label="{2}">'
        "{3}</svg>"
    ).format(WIDTH, HEIGHT, text, Markup("".join(parts)))
    return Markup("<figure><figcaption>{}. <small>{}</small></figcaption>{}</figure>").format(text, found.method, drawn)


def text_of(found: Measured) -> str:
    if found.low == found.high:
        return f"{found.value:.3g} exactly"
    if not math.isfinite(found.low):
        return f"{found.value:.3g}, no interval"
    return f"{found.value:.3g} ({found.low:.3g} to {found.high:.3g})"
