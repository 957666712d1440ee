"""One quantity as a picture: its 99 % interval over the parts its thresholds cut the axis into."""

import math

from markupsafe import Markup, escape

from workbench.claims.claim import Measured, Quantity, Verdict

WIDTH, HEIGHT, LEFT = 760, 64, 12
COLOURS = {
    Verdict.REPRODUCED: "#d7eedd",
    Verdict.PARTLY: "#f6ebc8",
    Verdict.NOT_REPRODUCED: "#f5d9d9",
    Verdict.FALSE: "#f5d9d9",
}


def interval_picture(quantity: Quantity, found: Measured) -> Markup:
    """Inline SVG; an interval without ends reaches both edges."""
    known = [v for v in (found.value, found.low, found.high, *quantity.rule.cuts) if math.isfinite(v)]
    low, high = min(known), max(known)
    pad = 0.15 * (high - low) or 0.5 * abs(high) or 1.0
    low, high = low - pad, high + pad

    def x_of(value: float) -> float:
        return LEFT + (min(max(value, low), high) - low) / (high - low) * (WIDTH - 2 * LEFT)

    parts = []
    edges = [low, *quantity.rule.cuts, high]
    for start, end, verdict in zip(edges, edges[1:], quantity.rule.parts, strict=False):
        x, w = x_of(start), x_of(end) - x_of(start)
        parts.append(f'<rect x="{x:.1f}" y="20" width="{w:.1f}" height="24" fill="{COLOURS[verdict]}"/>')
        if w > 90:
            parts.append(f'<text x="{x + 4:.1f}" y="36" font-size="11" fill="#777">{escape(verdict.value)}</text>')
    for cut in quantity.rule.cuts:
        parts.append(f'<line x1="{x_of(cut):.1f}" x2="{x_of(cut):.1f}" y1="18" y2="46" stroke="#555"/>')
        parts.append(
            f'<text x="{x_of(cut):.1f}" y="58" font-size="11" text-anchor="middle" fill="#555">{cut:.3g}</text>'
        )
    parts.append(
        f'<line x1="{x_of(found.low):.1f}" x2="{x_of(found.high):.1f}" y1="32" y2="32" stroke="#123" stroke-width="2"/>'
    )
    parts.append(f'<circle cx="{x_of(found.value):.1f}" cy="32" r="4.5" fill="#123"/>')
    text = f"{quantity.label}: {text_of(found)} — {quantity.rule.verdict(found).value}; {found.method}"
    parts.append(f'<text x="{LEFT}" y="13" font-size="12.5" fill="#123">{escape(text)}</text>')
    return Markup(
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="100%" style="max-width:{WIDTH}px;font-family:sans-serif" role="img" '
        f'aria-label="{escape(text)}">{"".join(parts)}</svg>'
    )


def text_of(found: Measured) -> str:
    if found.low == found.high:
        return f"{found.value:.3g} exactly"
    if not math.isfinite(found.low):
        return f"{found.value:.3g}, no interval"
    return f"{found.value:.3g} ({found.low:.3g} to {found.high:.3g})"
