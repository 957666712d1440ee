"""The README says what is there: its tree is the packages' own, its commands exist, its pictures are in the project."""

import re

from tests.readme_tree import README, ROOT, tree, written
from workbench.cli.app import BENCHES, VERBS


def test_tree_is_true():
    assert written() == tree(), "python -m tests.readme_tree writes it anew"


def test_commands_and_files_exist():
    text = README.read_text(encoding="utf-8")
    for verb in re.findall(r"`workbench ([a-z]+)", text):
        assert verb in VERBS or verb == "bench"
    for name in re.findall(r"workbench bench ([a-z-]+)", text):
        assert name in BENCHES
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / target).exists(), target
