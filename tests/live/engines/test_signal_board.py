import os
import subprocess
import sys

import numpy as np
import pytest

from tests.readme_tree import ROOT
from workbench.errors import InputError
from workbench.live.engines.signal_board import COUNTERS, SignalBoard, read_board


def ints(*values):
    return np.array(values, np.int64)


@pytest.fixture
def board(tmp_path):
    return SignalBoard(tmp_path / "a.board", num_slots=4, depth=5)


def test_a_measurement_is_found_by_request_and_token_and_no_other(board):
    board.publish(ints(0, 2), ints(10, 11), ints(7, 3), ints(5, 5), np.array([1.25, np.nan]), np.array([0.5, 2.0]))
    found = board.read(ints(0, 2, 0, 0, 1), ints(10, 11, 10, 9, 10), ints(7, 3, 6, 7, 7))
    assert found.found.tolist() == [True, True, False, False, False]
    assert found.entropy_raw_nats[0] == 1.25
    assert found.varentropy_raw_nats2.tolist()[:2] == [0.5, 2.0]
    assert np.isnan(found.entropy_raw_nats[1:]).all()
    assert found.step.tolist() == [5, 5, 0, 0, 0]


def test_an_empty_board_and_a_token_before_the_first_are_missing_not_torn(board):
    found = board.read(ints(0, 1), ints(0, 0), ints(0, -1))
    assert not found.found.any()
    assert board.counters()["torn_entries"] == 0


@pytest.mark.parametrize("word", range(1, 6))
def test_an_entry_read_while_it_is_written_is_torn_and_counted(board, word):
    board.publish(ints(1), ints(10), ints(2), ints(5), np.array([1.0]), np.array([2.0]))
    board._entries[1, 2, word] ^= 1 << 17
    wanted = ints(2) if word != 1 else ints(2 ^ 1 << 17)
    board._entries[1, wanted % board.depth] = board._entries[1, 2]
    assert not board.read(ints(1), ints(10), wanted).found.any()
    assert board.counters()["torn_entries"] == 1


def test_the_last_tokens_stay_as_deep_as_the_board(board):
    for token in range(12):
        board.publish(ints(0), ints(3), ints(token), ints(token), np.array([float(token)]), np.array([0.0]))
    found = board.read(ints(*[0] * 12), ints(*[3] * 12), np.arange(12))
    assert found.found.tolist() == [False] * 7 + [True] * 5
    assert found.entropy_raw_nats[7:].tolist() == [7.0, 8.0, 9.0, 10.0, 11.0]


def test_another_process_writes_what_this_one_reads(board):
    code = (
        "import sys, numpy as np; from pathlib import Path\n"
        "from workbench.live.engines.signal_board import SignalBoard\n"
        "b = SignalBoard(Path(sys.argv[1]), 4, 5); b.sign('sampler')\n"
        "one = lambda x: np.array([x])\n"
        "b.publish(one(3), one(8), one(0), one(41), one(0.125), one(0.25)); b.beat(41); b.count('drawn_rows', 6)\n"
    )
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code, str(board.path)], check=True, env=environ)
    found = board.read(ints(3), ints(8), ints(0))
    assert (found.entropy_raw_nats[0], found.varentropy_raw_nats2[0], found.step[0]) == (0.125, 0.25, 41)
    assert board.sampler_step == 42
    assert board.counters()["drawn_rows"] == 6
    assert board.state()["sampler_pid"] not in (0, os.getpid())


def test_nobody_finds_a_board_without_its_header(tmp_path):
    """Processes create and read one board over and over: either there is none, or it is whole."""
    path = tmp_path / "a.board"
    code = (
        "import sys; from pathlib import Path\n"
        "from workbench.live.engines.signal_board import SignalBoard\n"
        "for _ in range(400): SignalBoard(Path(sys.argv[1]), 64, 5).close(remove=True)\n"
    )
    maker = subprocess.Popen([sys.executable, "-c", code, str(path)], env=os.environ | {"PYTHONPATH": str(ROOT)})
    found, refused = 0, set()
    while maker.poll() is None:
        if path.exists():
            try:
                found += read_board(path).num_slots == 64
            except InputError as gone:
                refused.add(str(gone))
    assert maker.returncode == 0
    assert found > 0
    assert all("No such file" in line for line in refused)
    assert list(tmp_path.iterdir()) == []


def test_a_watcher_reads_the_layout_from_the_file(board, tmp_path):
    board.count("preemptions", 3)
    assert read_board(board.path).counters() == {name: 3 * (name == "preemptions") for name in COUNTERS}
    (tmp_path / "other").write_bytes(b"x" * 4096)
    with pytest.raises(InputError, match="no signal file"):
        read_board(tmp_path / "other")
    with pytest.raises(InputError, match="another layout"):
        SignalBoard(board.path, num_slots=5, depth=5)
