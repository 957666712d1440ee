"""The ledger's short form between two markers of a Markdown file: a row a claim, its figures and its verdict."""

from collections.abc import Sequence
from pathlib import Path

from workbench.claims.ledger import Row
from workbench.claims.picture import text_of
from workbench.errors import InputError
from workbench.record import write_atomically

BEGIN, END = "<!-- claims -->", "<!-- /claims -->"


def short_table(rows: Sequence[Row], command: str) -> str:
    lines = [
        f"Made by `{command}`; intervals at 99 %.",
        "",
        "| claim | says | measured | verdict |",
        "|---|---|---|---|",
    ]
    for row in rows:
        shown = [f"{q.label} {text_of(row.found[q.name])}" for q in row.claim.quantities if q.name in row.found]
        more = [f"{len(shown) - 2} more"] if len(shown) > 3 else []
        told = "; ".join([*shown[: 2 if more else 3], *more])
        lines.append(f"| {row.claim.id} | {row.claim.says} | {told} | {row.verdict.value} |")
    return "\n".join(lines)


def write_short_table(rows: Sequence[Row], command: str, path: Path) -> None:
    """Replace what stands between the markers of `path`. Raises `InputError` where it has none."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if BEGIN not in text or END not in text:
        raise InputError(f"{path} has no lines {BEGIN} and {END}; add both where the table belongs")
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    write_atomically(path, f"{before}{BEGIN}\n{short_table(rows, command)}\n{END}{after}".encode())
