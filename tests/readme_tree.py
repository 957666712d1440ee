"""The README's tree, made from the first sentence of each module: `python -m tests.readme_tree` writes it anew."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
BEGIN, END = "<!-- tree -->\n", "<!-- end of tree -->\n"
PACKAGES = ("workbench", "controllers", "kernels", "sims")
WIDTH = 100


def sentence(path: Path) -> str:
    """First sentence of a module's docstring, shortened to fit a line."""
    text = " ".join((ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split())
    first = re.split(r"(?<=[.!?]) |: (?=[A-Z`])", text, maxsplit=1)[0].rstrip(".")
    return first if len(first) <= WIDTH else first[: WIDTH - 1].rsplit(" ", 1)[0] + " …"


def lines(folder: Path, depth: int = 0) -> list[str]:
    found = []
    for path in sorted(folder.iterdir(), key=lambda p: (p.is_dir(), p.name)):
        if path.is_dir() and any(path.rglob("*.py")) and not path.name.startswith(("__", ".")):
            found += [f"{'  ' * depth}{path.name}/", *lines(path, depth + 1)]
        elif path.suffix == ".py" and path.name != "__init__.py":
            found.append(f"{'  ' * depth}{path.name:<26} {sentence(path)}".rstrip())
    return found


def tree() -> str:
    out = []
    for name in PACKAGES:
        out += [f"{name}/", *lines(ROOT / name, 1)]
    return "```\n" + "\n".join(out) + "\n```\n"


def written() -> str:
    text = README.read_text(encoding="utf-8")
    return text[text.index(BEGIN) + len(BEGIN) : text.index(END)]


if __name__ == "__main__":
    content = README.read_text(encoding="utf-8")
    head, rest = content.split(BEGIN)
    README.write_text(head + BEGIN + tree() + END + rest.split(END)[1], encoding="utf-8")
