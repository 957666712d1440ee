"""vLLM with the plug-in when something dies: the signal, the process that samples, the whole engine."""

import os
import signal
import time

import numpy as np
import polars as pl
import pytest

from tests.live.engines.vllm_env import SCENARIO, requests_of, serve
from tests.live.engines.vllm_server import board_of
from workbench.live.engines.collect import collect_arm
from workbench.live.engines.spool import read_stream
from workbench.replay import replay_arm

pytestmark = pytest.mark.engines


@pytest.mark.parametrize("backend", ["uni", "mp"])
def test_a_lost_signal_ends_nothing_and_is_counted(prompts, tmp_path, backend):
    """The sampler stops publishing after 10 steps: vLLM's own order from then on, every request to its end.

    With `mp` the model runs in a process of its own, so that the board is the only path.
    """
    answer = serve(
        tmp_path, SCENARIO, requests_of(prompts[:8], 48),
        engine={"distributed_executor_backend": backend}, environ={"ENTROPIC_TEST_MUTE_AFTER": "10"},
        processors=["tests.live.engines.muted:MutedProcessor"],
    )  # fmt: skip
    assert [len(ids) for ids in answer["rounds"][0]["token_ids"]] == [48] * 8
    counters = answer["counters"]
    assert counters["signal_losses"] == 1
    assert counters["steps_on_own_order"] >= 20
    assert counters["measurements_used"] > 0
    assert counters["requests_ended"] == 8


def kill_the_sampler(pid: int) -> None:
    board = board_of(pid)
    while board.sampler_step < 20:
        time.sleep(0.02)
    os.kill(board.state()["sampler_pid"], signal.SIGKILL)


@pytest.mark.parametrize("backend", ["uni", "mp"])
def test_a_killed_worker_loses_tokens_not_requests_and_the_loss_is_counted(prompts, tmp_path, backend):
    """The process that samples gets SIGKILL mid-run. vLLM ends with it; a new engine serves what had not ended."""
    answer = serve(
        tmp_path, SCENARIO, requests_of(prompts[:8], 64), restarts=1, meanwhile=kill_the_sampler,
        engine={"distributed_executor_backend": backend},
    )  # fmt: skip
    assert [len(ids) for ids in answer["rounds"][0]["token_ids"]] == [64] * 8
    assert answer["engine_losses"] == 1
    assert answer["requests_resumed"] == 8
    before = read_stream(tmp_path / "spool", "tokens")
    # Tokens the client has seen; the last step's may have been drawn and never told.
    assert before["step"].size - 3 * 8 <= answer["tokens_drawn_again"] <= before["step"].size
    assert answer["counters"]["requests_arrived"] == 16
    assert answer["counters"]["requests_ended"] == 8
    lost, served = (collect_arm(tmp_path / name, tmp_path / f"arm-{name}") for name in ("spool", "spool-1"))
    for arm, status in ((lost, "running"), (served, "completed")):
        assert replay_arm(arm).ok
        assert pl.read_parquet(arm / "requests.parquet")["status"].cast(pl.String).to_list() == [status] * 8
    # They had arrived when they had arrived: what the loss cost is in their latency.
    waited = pl.read_parquet(served / "requests.parquet")
    assert np.ptp(waited["arrival_s"].to_numpy()) < 1.0
    assert (
        read_stream(tmp_path / "spool-1", "requests")["seen_s"].min()
        > read_stream(tmp_path / "spool-1", "requests")["arrival_s"].max()
    )
