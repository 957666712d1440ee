"""A page of an evaluation or a routed question: text, tables and pictures in one HTML file that loads nothing from outside.

All text is escaped by the template.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jinja2 import Environment

from workbench.routing.generation_record import write_atomic

TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.2rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #8884; text-align: right; white-space: nowrap; }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left; }
p, li { overflow-wrap: anywhere; } pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #8881; padding: .8rem; }
img { max-width: 100%; height: auto; background: #fff; }
</style></head><body>
<h1>{{ title }}</h1>
{% for line in lead %}<p>{{ line }}</p>{% endfor %}
{% for section in sections %}
<h2>{{ section.title }}</h2>
{% for line in section.lines %}<p>{{ line }}</p>{% endfor %}
{% if section.text %}<pre>{{ section.text }}</pre>{% endif %}
{% if section.header %}<div class="wide"><table><thead><tr>{% for cell in section.header %}<th>{{ cell }}</th>{% endfor %}</tr></thead>
<tbody>{% for row in section.rows %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>{% endfor %}</tbody></table></div>{% endif %}
{% if section.picture %}<img alt="{{ section.title }}" src="data:image/png;base64,{{ section.picture }}">{% endif %}
{% endfor %}
</body></html>
"""


@dataclass
class Section:
    title: str
    lines: Sequence[str] = ()
    text: str = ""
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = field(default_factory=list)
    picture: str = ""  # base64

    @classmethod
    def of_picture(cls, title: str, png: bytes, *lines: str) -> "Section":
        return cls(title, lines, picture=base64.b64encode(png).decode())


def write_page(path: Path, title: str, lead: Sequence[str], sections: Sequence[Section]) -> None:
    page = Environment(autoescape=True).from_string(TEMPLATE).render(title=title, lead=lead, sections=sections)
    write_atomic(path, page)


def markdown(title: str, lead: Sequence[str], sections: Sequence[Section]) -> str:
    """The same without pictures, to be read where it lies."""
    parts = [f"# {title}", *lead]
    for section in sections:
        if section.picture and not section.header:
            continue
        parts += [f"## {section.title}", *section.lines]
        if section.text:
            parts.append("```\n" + section.text + "\n```")
        if section.header:
            rule = ["---", "---", *["---:"] * (len(section.header) - 2)]
            table = [section.header, rule, *section.rows]
            parts.append("\n".join("| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in table))
    return "\n\n".join(parts) + "\n"
