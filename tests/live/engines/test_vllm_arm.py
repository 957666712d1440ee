"""`workbench deploy --run`, then replay, report and validate on what vLLM served: the commands a user types."""

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from tests.live.engines.vllm_env import toml, vllm_python
from tests.readme_tree import ROOT

pytestmark = pytest.mark.engines
SEEDS = [1, 2]
SCENARIO = {
    "name": "served in vllm", "plant": "live", "seeds": SEEDS,
    "workload": {"num_requests": 8, "max_tokens": 24, "rate_per_s": 20.0},
    "engine": {"delay_steps": 1, "max_running": 4, "temperature": 0.7, "entropy_target_nats": 1.0},
    "controllers": {"order": {"kind": "entropy-aging"}, "temperature": {"kind": "pi", "target_entropy_nats": 1.0}},
}  # fmt: skip


def workbench(*words: object) -> tuple[int, dict]:
    done = subprocess.run(
        [sys.executable, "-m", "workbench.cli.app", *map(str, words), "--json"], cwd=ROOT, check=False,
        capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stdout.strip(), done.stderr[-3000:]
    return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("arm")
    (folder / "scenario.toml").write_text(toml(SCENARIO), encoding="utf-8")
    code, answer = workbench(
        "deploy", folder / "scenario.toml", "--run", vllm_python(), "--eager", "--out", folder / "run"
    )
    assert code == 0, answer
    return folder / "run", answer["figures"]


def test_one_arm_a_seed_with_every_request_served(run):
    folder, figures = run
    assert figures["arms"] == len(SEEDS)
    assert figures["requests_ended"] == figures["requests_arrived"] == 16
    assert figures["signal_losses"] == figures["engine_losses"] == 0
    for seed in SEEDS:
        requests = pl.read_parquet(folder / f"seed{seed}" / "requests.parquet")
        assert requests["status"].cast(pl.String).to_list() == ["completed"] * 8
        assert requests["arrival_s"].max() > 0.1  # open loop, at 20 a second
        assert (requests["first_token_s"] > requests["arrival_s"]).all()
        assert (requests["finished_s"] >= requests["first_token_s"]).all()
        manifest = json.loads((folder / f"seed{seed}" / "manifest.json").read_text())
        assert manifest["scenario"]["engine"]["block_size"] == manifest["block_size"]
        assert manifest["notes"]["engine"] == "vllm"


def test_replay_and_report_read_it(run):
    folder, _ = run
    code, answer = workbench("replay", folder)
    assert code == 0, answer
    assert answer["figures"]["arms"] == 2
    assert answer["figures"]["decisions"] > 60
    code, answer = workbench("report", folder)
    assert code == 0, answer
    assert answer["figures"]["completed"] == answer["figures"]["requests"] == 16
    assert (folder / "report.html").stat().st_size > 10_000


def test_validate_compares_the_simulator_with_it(run, tmp_path):
    """Fitted to one seed and to entropies of our own engine, judged on the other: the tokens are the same, times are near."""
    folder, _ = run
    code, answer = workbench(
        "record", "--num-requests", 16, "--max-tokens", 24, "--out", folder / "model", "--backend", "torch"
    )
    assert code == 0, answer
    code, answer = workbench("validate", folder, "--engine", "vllm", "--fit-seed", 1)
    assert code in (0, 1), answer  # two arms cannot rank settings
    figures = answer["figures"]
    print(figures)
    judged = pl.read_csv(folder / "validation.csv")
    assert judged["seed"].to_list() == [2]
    assert figures["step_mape"] < 0.6
    assert figures["throughput_err"] < 0.6
    code, answer = workbench("validate", folder, "--engine", "transformers")
    assert code == 2
    assert "no live arm of engine 'transformers'" in answer["error"]
