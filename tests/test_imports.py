"""Dependencies point one way; importing anything has no side effect; `kernels` is ours."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("workbench", "controllers", "kernels", "sims")
FORBIDDEN = [
    ("controllers", {"torch", "simpy", "sims", "transformers"}),
    ("workbench/engine", {"torch", "simpy", "sims", "transformers", "kernels"}),
    ("sims", {"torch", "transformers"}),
    ("kernels", {"workbench", "controllers", "sims"}),
]


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize(("folder", "forbidden"), FORBIDDEN, ids=[folder for folder, _ in FORBIDDEN])
def test_one_way(folder, forbidden):
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    wrong = {str(f.relative_to(ROOT)): imported(f) & forbidden for f in files if imported(f) & forbidden}
    assert not wrong


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("workbench.cli.app", "torch"),
        ("sims.plant", "torch"),
        ("controllers", "torch"),
        ("workbench.engine.plant", "simpy"),
    ],
)
def test_heavy_packages_stay_out(module, absent):
    code = f"import sys, {module}; sys.exit({absent!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_kernels_is_ours_and_transformers_does_not_mistake_it():
    code = (
        "import kernels, pathlib, transformers\n"
        "from transformers.utils import is_kernels_available\n"
        f"assert pathlib.Path(kernels.__file__).is_relative_to({str(ROOT)!r})\n"
        "assert not is_kernels_available()\n"
    )
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, check=False).returncode == 0
