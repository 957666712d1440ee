"""The command line as a program sees it: exit codes, one JSON object, one line for bad input, plain terminals."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.cli.app import VERBS, main

ROOT = Path(__file__).resolve().parents[2]
SCENARIO = """
name = "small"
[workload]
num_requests = 40
rate_per_s = 20.0
[controllers.order]
kind = "entropy-aging"
[controllers.temperature]
kind = "pi"
target_entropy_nats = 1.2
[controllers.keep]
kind = "least-mass"
"""


def workbench(*words: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "workbench.cli.app", *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("cli")
    (folder / "small.toml").write_text(SCENARIO)
    done = workbench("simulate", "small.toml", "--out", "first", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr.decode()
    return folder, json.loads(done.stdout, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))


def test_simulate_prints_one_strict_object_and_writes_what_it_names(run):
    folder, body = run
    assert set(body) == {"ok", "figures", "paths"}
    assert body["ok"] is True
    assert body["figures"]["completed"] == 40
    for path in body["paths"].values():
        assert (folder / path).exists()
    report = (folder / body["paths"]["report"]).read_text()
    assert "<html" in report
    assert 'src="http' not in report


def test_same_seed_same_tables_other_seed_other_tables(run):
    folder, _ = run
    hashes = []
    for out, seed in (("again", "0"), ("other", "1")):
        assert workbench("simulate", "small.toml", "--out", out, "--seed", seed, cwd=folder).returncode == 0
        hashes.append(json.loads((folder / out / f"seed{seed}" / "manifest.json").read_text())["tables"])
    first = json.loads((folder / "first" / "seed0" / "manifest.json").read_text())["tables"]
    assert hashes[0] == first
    assert all(hashes[1][name] != first[name] for name in first)


def test_replay_holds_and_fails_when_one_observation_is_altered(run):
    import polars as pl

    folder, _ = run
    done = workbench("replay", "first", "--json", cwd=folder)
    body = json.loads(done.stdout)
    assert (done.returncode, body["ok"], body["figures"]["arms"]) == (0, True, 1)
    path = folder / "again" / "seed0" / "sequences.parquet"
    frame = pl.read_parquet(path).with_row_index()
    wanted = (pl.col("point") == "temperature") & pl.col("obs_measured")
    row = frame.filter(wanted)["index"][5]
    changed = (
        pl.when(pl.col("index") == row).then(pl.col("obs_entropy_nats") + 0.5).otherwise(pl.col("obs_entropy_nats"))
    )
    frame.with_columns(changed).drop("index").write_parquet(path)
    done = workbench("replay", "again", "--json", cwd=folder)
    assert (done.returncode, json.loads(done.stdout)["ok"]) == (1, False)


def test_output_into_files_has_no_bars_and_a_plain_terminal_gives_the_same_result(run):
    folder, body = run
    done = workbench(
        "simulate", "small.toml", "--out", "first ж", "--json", cwd=folder,
        LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING="ascii", TERM="dumb", COLUMNS="20",
    )  # fmt: skip
    assert done.returncode == 0
    assert b"\r" not in done.stderr
    assert b"\x1b" not in done.stderr
    assert len(done.stderr) < 500
    assert json.loads(done.stdout)["figures"] == body["figures"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("simulate", "absent.toml"), "no such file"),
        (("simulate", "bad.toml"), "did you mean rate_per_s"),
        (("simulate", "live.toml"), "plant"),
        (("simulate", "small.toml", "--seed", "-1"), "--seed"),
        (("replay", "absent"), "no run directory"),
        (("reply", "absent"), "reply"),
        (("report", "absent"), "absent"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(run, words, expected, monkeypatch, capsys):
    folder, _ = run
    (folder / "bad.toml").write_text("[workload]\nrate_per_sec = 1\n")
    (folder / "live.toml").write_text('plant = "live"\n')
    monkeypatch.chdir(folder)
    for extra in ((), ("--json",)):
        monkeypatch.setattr(sys, "argv", ["workbench", *words, *extra])
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        assert left.value.code == 2
        assert len(err.strip().splitlines()) == 1
        assert expected in err
        if extra:
            body = json.loads(out)
            assert body["ok"] is False
            assert expected in body["error"]
        else:
            assert out == ""


def test_help_names_every_verb(run):
    done = workbench("--help", cwd=run[0], COLUMNS="200")
    text = done.stdout.decode()
    assert done.returncode == 0
    assert all(verb in text for verb in VERBS)
