"""`workbench deploy`: a scenario is checked for an engine's decisions, its vocabulary and its delay."""

import json
import os
import subprocess
import sys

import pytest

from tests.readme_tree import ROOT
from workbench.live.engines.signal_board import SignalBoard, board_path


def workbench(*words, **environ):
    done = subprocess.run(
        [sys.executable, "-m", "workbench.cli.app", "deploy", *words, "--json"], cwd=ROOT, check=False,
        capture_output=True, text=True, env=os.environ | environ,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize(("text", "words", "code", "said"), [
    ("[controllers.temperature]\nkind = 'pi'\ntarget_entropy_nats = 1.0\nk_i = 0.06\n", ("--vocab-size", "49152"), 0, ""),
    ("[controllers.temperature]\nkind = 'pi'\ntarget_entropy_nats = 1.0\nk_i = 0.06\n", ("--vocab-size", "151936"), 2, "k_i"),
    ("[controllers.temperature]\nkind = 'pi'\ntarget_entropy_nats = 1.0\nk_i = 0.1\nunsafe = true\n",
     ("--vocab-size", "49152"), 1, ""),
    ("[controllers.keep]\nkind = 'least-mass'\n", ("--vocab-size", "9"), 2, "not offered by vllm"),
    ("[controllers.keep]\nkind = 'least-mass'\n", ("--vocab-size", "9", "--engine", "transformers"), 0, ""),
    ("", ("--vocab-size", "9", "--engine", "vlm"), 2, "engine 'vlm'"),
])  # fmt: skip
def test_a_scenario_is_judged(tmp_path, text, words, code, said):
    path = tmp_path / "s.toml"
    path.write_text(text)
    got, body = workbench(str(path), *words)
    assert got == code
    assert said in body.get("error", "")
    assert body["ok"] == (code == 0)


def test_watching_reads_the_counters(tmp_path):
    path = board_path(f"test-{os.getpid()}")
    board = SignalBoard(path, 2, 4)
    try:
        board.sign("scheduler")
        board.count("signal_losses", 1)
        code, body = workbench("--watch")
        assert code == 1
        assert body["figures"]["signal_losses"] >= 1
        assert body["figures"]["engines"] >= 1
    finally:
        board.close(remove=True)
