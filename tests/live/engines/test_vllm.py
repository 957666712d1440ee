"""The plug-in in vLLM on the CPU, on SmolLM2: measurements, laws, order, signal, refusals. Run by `make test-engines`."""

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.live.engines.vllm_env import IN_PROCESS, LAW, SCENARIO, environment, requests_of, serve, vllm_python
from workbench.live.engines.collect import collect_arm
from workbench.live.engines.spool import read_stream
from workbench.protocols import DecisionPoint
from workbench.record import ArmRecorder
from workbench.replay import replay_arm

pytestmark = pytest.mark.engines
NUM_REQUESTS, TOKENS, STEP_TOKEN = 32, 160, 64


@pytest.fixture(scope="module")
def steered(prompts, tmp_path_factory) -> tuple[dict[str, Any], Path]:
    """32 requests under the temperature law and the entropy scheduler: the answer, and the collected arm."""
    folder = tmp_path_factory.mktemp("steered")
    answer = serve(folder, SCENARIO, requests_of(prompts, TOKENS))
    return answer, collect_arm(folder / "spool", folder / "arm")


def tokens_of(arm: Path) -> pl.DataFrame:
    return (
        pl.read_parquet(arm / "sequences.parquet")
        .filter(pl.col("point") == "measure")
        .sort("request_id", "token_index")
    )


def by_request(tokens: pl.DataFrame, name: str) -> np.ndarray:
    return tokens[name].to_numpy().reshape(NUM_REQUESTS, -1)


def test_every_token_is_in_the_record_and_replay_reproduces_every_action(steered):
    answer, arm = steered
    tokens = tokens_of(arm)
    assert by_request(tokens, "token_id").tolist() == answer["rounds"][0]["token_ids"]
    result = replay_arm(arm)
    assert result.ok, result.first_difference
    assert result.num_decisions >= 2 * TOKENS
    requests = pl.read_parquet(arm / "requests.parquet")
    assert requests["status"].cast(pl.String).to_list() == ["completed"] * NUM_REQUESTS
    assert requests["output_tokens"].to_list() == [TOKENS] * NUM_REQUESTS


def test_raw_entropy_is_that_of_our_engine_on_the_same_tokens(steered, smollm2_bf16, prompts):
    """Two bf16 implementations: within what bf16 itself costs against fp32 (0.03 on average, 0.28 at most)."""
    answer, arm = steered
    forced = dict(enumerate(answer["rounds"][0]["token_ids"]))
    made = smollm2_bf16.plant(prompts, TOKENS, forced=forced, ignore_stop=True, measure_mass=False)
    from workbench.live.peers import NoRecord
    from workbench.loop import close_loop

    close_loop(made.plant, {}, NoRecord())
    ours = np.stack([g.entropy_raw_nats for g in smollm2_bf16.generations(made)])
    theirs = by_request(tokens_of(arm), "entropy_raw_nats")
    gap = np.abs(ours - theirs)
    print(f"|H_raw - ours|: mean {gap.mean():.4f}, p99 {np.quantile(gap, 0.99):.3f}, max {gap.max():.3f} nats")
    assert gap.mean() < 0.03
    assert np.quantile(gap, 0.999) < 0.28


def test_tracking_and_settling_overlap_our_live_engine(steered, smollm2_bf16, prompts):
    from workbench.catalog import build_controllers
    from workbench.temper.measures import bootstrap_indices, mean_interval, step_response, whole_interval

    context = {"vocab_size": smollm2_bf16.config.vocab_size, "delay_steps": 1}
    laws = build_controllers({DecisionPoint.TEMPERATURE: LAW}, context)
    recorder = ArmRecorder("summary", 0)
    ours = smollm2_bf16.generate(
        prompts,
        TOKENS,
        controllers=laws,
        recorder=recorder,
        delay_steps=1,
        seed=7,
        ignore_stop=True,
        measure_mass=False,
    )
    runs = {"ours": np.stack([g.entropy_nats for g in ours]), "vllm": by_request(tokens_of(steered[1]), "entropy_nats")}
    target = np.where(np.arange(TOKENS) < STEP_TOKEN, 1.0, 2.0)
    indices = bootstrap_indices(NUM_REQUESTS)

    def settle(entropy: np.ndarray, chosen: np.ndarray) -> float:
        return step_response(entropy[chosen], STEP_TOKEN, 1.0, 2.0).settle_tokens

    tracking = {name: mean_interval(np.abs(h - target).mean(axis=1), indices) for name, h in runs.items()}
    settling = {name: whole_interval(lambda c, h=h: settle(h, c), indices) for name, h in runs.items()}
    print(f"tracking {tracking}\nsettling {settling}")
    for found in (tracking, settling):
        assert found["ours"].low <= found["vllm"].high
        assert found["vllm"].low <= found["ours"].high


def test_asynchronous_scheduling_and_its_placeholders_change_nothing(prompts, tmp_path):
    """At the same declared delay, synchronous scheduling gives the same tokens and temperatures as asynchronous."""
    token_ids, applied = [], []
    for asynchronous in (False, True):
        folder = tmp_path / str(asynchronous)
        answer = serve(
            folder, SCENARIO, requests_of(prompts[:8], 32), engine={"async_scheduling": asynchronous}, environ=IN_PROCESS,
        )  # fmt: skip
        token_ids.append(answer["rounds"][0]["token_ids"])
        tokens = read_stream(folder / "spool", "tokens")
        keys = zip(tokens["request_id"].tolist(), tokens["token_index"].tolist(), strict=True)
        temperatures = tokens["temperature_applied"].tolist()
        # An asynchronous engine draws one token more than it keeps.
        applied.append({key: t for key, t in zip(keys, temperatures, strict=True) if key[1] < 32})
    assert token_ids[0] == token_ids[1]
    assert len(applied[0]) == 8 * 32
    assert applied[0] == applied[1]


FORCED_PREEMPTION = {"num_gpu_blocks_override": 20, "block_size": 32, "max_num_seqs": 16, "max_model_len": 256}


@pytest.mark.parametrize("kind", ["fcfs", "entropy-aging"])
def test_the_scheduler_chooses_victims_as_the_simulator_predicts(prompts, tmp_path, kind):
    """Too few KV blocks: whom vLLM preempts is whom our batcher would, given the recorded order and the blocks held."""
    scenario = {**SCENARIO, "engine": {"delay_steps": 1, "preemption_quantum_tokens": 0},
                "controllers": {"order": {"kind": kind}, "temperature": LAW}}  # fmt: skip
    requests = requests_of([p[:40] for p in prompts[:16]], 64)
    serve(tmp_path, scenario, requests, engine=FORCED_PREEMPTION, environ=IN_PROCESS)
    arm = collect_arm(tmp_path / "spool", tmp_path / "arm")
    assert replay_arm(arm).ok
    lost, order = read_stream(tmp_path / "spool", "preemptions"), read_stream(tmp_path / "spool", "order")
    assert lost["step"].size >= 3
    from tests.live.engines.predicted_victims import predicted_victims

    batches = read_stream(tmp_path / "spool", "batches")
    out_of_order = 0
    for step in np.unique(lost["step"]):
        victims = lost["request_id"][lost["step"] == step].tolist()
        assert victims == predicted_victims(int(step), order, batches, num_blocks=19, block_size=32)
        now = order["step"] == step
        running = order["obs_request_id"][now & order["obs_running"]]
        out_of_order += victims[0] != running.max()
    if kind == "fcfs":
        assert out_of_order == 0
    else:
        assert out_of_order > 0  # not simply the youngest
    finished = pl.read_parquet(arm / "requests.parquet")["status"].cast(pl.String).to_list()
    assert finished == ["completed"] * 16


def test_raw_entropy_does_not_depend_on_temperature_truncation_or_logprobs_mode(prompts, tmp_path):
    """The same first token position of the same prompt, whatever the request and the server do with the logits."""
    free = {**SCENARIO, "controllers": {"order": {"kind": "fcfs"}}}
    found = {}
    for mode in ("raw_logprobs", "processed_logprobs"):
        requests = [
            {"token_ids": prompts[0], "max_tokens": 2, "sampling": {"temperature": t, "top_p": p, "logprobs": 2}}
            for t, p in ((1.0, 1.0), (0.5, 0.9))
        ]
        serve(tmp_path / mode, free, requests, engine={"logprobs_mode": mode}, environ=IN_PROCESS)
        tokens = read_stream(tmp_path / mode / "spool", "tokens")
        first = tokens["token_index"] == 0
        found[mode] = tokens["entropy_raw_nats"][first]
        assert tokens["entropy_nats"][first][1] < tokens["entropy_nats"][first][0]
        assert np.isnan(tokens["surprisal_nats"]).all()  # vLLM draws: what, is not known here
    every = np.concatenate(list(found.values()))
    assert np.ptp(every) < 1e-3


def test_without_a_scenario_nothing_happens():
    assert plugins_loaded().returncode == 0


def plugins_loaded(**environ: str) -> subprocess.CompletedProcess[str]:
    """What the first thing any vLLM process does comes to."""
    return run("from vllm.plugins import load_general_plugins; load_general_plugins()", **environ)


def run(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(vllm_python()), "-c", code],
        env=environment(**environ),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
