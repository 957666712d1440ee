"""`vllm serve` with the plug-in: a scenario file, requests over HTTP, refusals, and what is left when a worker is killed."""

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.live.engines.vllm_env import environment, toml
from tests.live.engines.vllm_server import Server, free_port, named_vllm, serve_command
from workbench.live.engines.collect import collect_arm
from workbench.live.engines.spool import read_stream
from workbench.replay import replay_arm

pytestmark = pytest.mark.engines
SCENARIO = {
    "name": "served", "plant": "live", "level": "full", "seeds": [7], "engine": {"delay_steps": 1},
    "controllers": {"order": {"kind": "entropy-aging"},
                    "temperature": {"kind": "pi", "target_entropy_nats": 1.0, "temperature_start": 0.7}},
}  # fmt: skip
PROMPTS = ["Entropy is", "A short poem about rain:", "def fibonacci(n):", "The capital of France is"]


def write(folder: Path, scenario: dict, name: str = "scenario.toml") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(toml(scenario), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """One server, asked for everything; (folder, answers by name, counters)."""
    folder = tmp_path_factory.mktemp("served")
    write(folder / "laws", {"controllers": {"temperature": {"kind": "fixed", "temperature": 0.3}}}, "cool.toml")
    answers = {}

    def ask(name: str, **body) -> None:
        answers[name] = server.complete(**{"max_tokens": 40, "temperature": 1.0, "ignore_eos": True, **body})

    environ = {
        "ENTROPIC_SCENARIO": write(folder, SCENARIO), "ENTROPIC_SCENARIOS": str(folder / "laws"),
        "ENTROPIC_RECORD": str(folder / "spool"),
    }  # fmt: skip
    with Server(folder, **environ) as server:
        asked = [
            threading.Thread(target=ask, args=(f"steered {i}",), kwargs={"prompt": p}) for i, p in enumerate(PROMPTS)
        ]
        for one in asked:
            one.start()
        for one in asked:
            one.join()
        ask("cool", prompt=PROMPTS[0], vllm_xargs={"entropic_scenario": "cool"})
        ask("seeded", prompt=PROMPTS[0], vllm_xargs={"entropic_seed": 5})
        ask("seeded again", prompt=PROMPTS[0], vllm_xargs={"entropic_seed": 5})
        ask("greedy", prompt=PROMPTS[0], temperature=0.0)
        ask("off", prompt=PROMPTS[0], vllm_xargs={"entropic": "off"}, temperature=0.9)
        ask("misspelt", prompt=PROMPTS[0], vllm_xargs={"entropic_sced": "cool"})
        ask("unknown law", prompt=PROMPTS[0], vllm_xargs={"entropic_scenario": "cold"})
        ask("penalised", prompt=PROMPTS[0], repetition_penalty=1.3)
        ask("afterwards", prompt=PROMPTS[0])
        counters = server.board().counters()
    return folder, answers, counters


def test_requests_over_http_are_steered_recorded_and_replayed(served, tmp_path):
    folder, answers, counters = served
    for i in range(len(PROMPTS)):
        status, answer = answers[f"steered {i}"]
        assert (status, answer["usage"]["completion_tokens"]) == (200, 40)
    assert counters["requests_arrived"] == counters["requests_ended"] + 1 or (
        counters["requests_arrived"] == counters["requests_ended"]
    )  # the last one is let go in the next step
    assert counters["order_decisions"] > 40
    assert counters["measurements_used"] > 40
    assert counters["signal_losses"] == 0
    arm = collect_arm(folder / "spool", tmp_path / "arm")
    result = replay_arm(arm)
    assert result.ok, result.first_difference
    requests = pl.read_parquet(arm / "requests.parquet")
    assert requests["status"].cast(pl.String).to_list() == ["completed"] * len(requests)
    assert len(requests) == counters["requests_arrived"] == 10
    tokens = read_stream(folder / "spool", "tokens")
    steered = tokens["request_id"] < len(PROMPTS)
    assert np.ptp(tokens["temperature_applied"][steered]) > 0.05  # the loop moves it


def test_extra_arguments_of_a_request_are_heeded(served):
    folder, answers, _ = served
    tokens = read_stream(folder / "spool", "tokens")

    def temperatures(number: int) -> np.ndarray:
        return tokens["temperature_applied"][tokens["request_id"] == number]

    assert temperatures(4) == pytest.approx(0.3)  # "cool", the fifth to arrive
    text = {name: answer["choices"][0]["text"] for name, (status, answer) in answers.items() if status == 200}
    assert text["seeded"] == text["seeded again"]
    assert text["seeded"] != text["steered 0"]
    assert set(text) == {
        *(f"steered {i}" for i in range(4)),
        "cool",
        "seeded",
        "seeded again",
        "greedy",
        "off",
        "afterwards",
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [("misspelt", "did you mean"), ("unknown law", "cool"), ("penalised", "repetition_penalty")],
)
def test_a_request_that_cannot_be_honoured_gets_one_line_and_the_server_goes_on(served, name, expected):
    status, answer = served[1][name]
    assert status == 400
    assert expected in answer["error"]["message"]
    assert served[1]["afterwards"][0] == 200


PI = {"kind": "pi", "target_entropy_nats": 1.0}
REFUSED = {
    "unknown controller": ({"controllers": {"temperature": {"kind": "pid2"}}}, (), "pid2"),
    "gain beyond the certificate of this vocabulary": (
        {"controllers": {"temperature": {**PI, "k_i": 0.2}}}, (), "PITemperature.k_i must be in (0,",
    ),
    "no scheduler class": (SCENARIO, None, "without --scheduler-cls"),
}  # fmt: skip


def refused(folder: Path, more, **environ: str) -> subprocess.CompletedProcess[str]:
    port = free_port()
    command = serve_command(port, *(more or ()), scheduler=more is not None)
    return subprocess.run(
        command, env=environment(**{"PYTHONPATH": named_vllm(folder), **environ}), capture_output=True, text=True, check=False, timeout=3000, cwd=folder
    )  # fmt: skip


def one_line_of(done: subprocess.CompletedProcess[str]) -> str:
    """The only complaint; nothing has been started."""
    output = done.stdout + done.stderr
    lines = [line for line in output.splitlines() if line.startswith("error:")]
    assert done.returncode == 2, output[-2000:]
    assert len(lines) == 1, output[-2000:]
    assert "Traceback" not in output
    for started in ("EngineCore", "Loading weights", "Uvicorn", "Application startup"):
        assert started not in output
    return lines[0]


@pytest.mark.parametrize("what", REFUSED)
def test_a_scenario_that_does_not_fit_is_one_line_before_anything_starts(tmp_path, what):
    scenario, more, expected = REFUSED[what]
    assert expected in one_line_of(refused(tmp_path, more, ENTROPIC_SCENARIO=write(tmp_path, scenario)))


def test_another_version_of_vllm_is_one_line(tmp_path):
    """As the plug-in would find it: the metadata of an installed vllm 0.33.1+cpu, earlier on the path."""
    found = named_vllm(tmp_path, "0.33.1+cpu")
    line = one_line_of(refused(tmp_path, (), PYTHONPATH=found, ENTROPIC_SCENARIO=write(tmp_path, SCENARIO)))
    assert line.startswith("error: vLLM 0.33.1+cpu: the plug-in was written for 0.32")


def test_a_killed_worker_ends_the_server_and_the_record_says_what_was_lost(tmp_path):
    """vLLM keeps no request when its worker dies: the server ends by itself, and the record holds all up to then."""
    environ = {"ENTROPIC_SCENARIO": write(tmp_path, SCENARIO), "ENTROPIC_RECORD": str(tmp_path / "spool")}
    with Server(tmp_path, **environ) as server:
        answers = []
        asked = [
            threading.Thread(target=lambda p=p: answers.append(_try(server, p)), daemon=True) for p in PROMPTS
        ]  # fmt: skip
        for one in asked:
            one.start()
        board = server.board()
        while board.sampler_step < 20:
            time.sleep(0.02)
        assert board.state()["sampler_pid"] != board.state()["scheduler_pid"]
        os.kill(board.state()["sampler_pid"], signal.SIGKILL)
        server.process.wait(900)
        for one in asked:
            one.join(300)
    assert len(answers) == len(PROMPTS)
    assert all(status != 200 for status in answers)
    arm = collect_arm(tmp_path / "spool", tmp_path / "arm")
    assert replay_arm(arm).ok
    requests = pl.read_parquet(arm / "requests.parquet")
    assert "completed" not in requests["status"].cast(pl.String).to_list()
    assert requests["output_tokens"].min() > 0


def _try(server: Server, prompt: str) -> int:
    try:
        return server.complete(prompt=prompt, max_tokens=400, temperature=1.0, ignore_eos=True)[0]
    except OSError:
        return 0
