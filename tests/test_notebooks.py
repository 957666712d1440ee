"""Every notebook runs from top to bottom, and is committed with small outputs so that it can be read where it lies."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LARGEST_BYTES = 600_000


def test_there_are_notebooks():
    assert [p.name[:3] for p in NOTEBOOKS[:4]] == ["01_", "02_", "03_", "04_"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_outputs_are_committed_and_small(path):
    cells = [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
    assert path.stat().st_size < LARGEST_BYTES
    assert any(c["outputs"] for c in cells), "nothing to read"
    assert not any(out["output_type"] == "error" for c in cells for out in c["outputs"])
    assert not any(str(FOLDER.parent) in json.dumps(out) for c in cells for out in c["outputs"]), "a machine's path"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_runs(path, tmp_path):
    """In a process of its own, so that Jupyter's warnings are not ours."""
    code = (
        "import sys, nbformat\n"
        "from nbclient import NotebookClient\n"
        "book = nbformat.read(sys.argv[1], 4)\n"
        "NotebookClient(book, timeout=800, resources={'metadata': {'path': sys.argv[2]}}).execute()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), str(FOLDER)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "IPYTHONDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
