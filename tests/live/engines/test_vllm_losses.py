"""vLLM with the plug-in when something dies: the signal, the process that samples, the whole engine."""

import os
import signal
import time

import numpy as np
import polars as pl
import pytest

from tests.live.engines.vllm_env import IN_PROCESS, SCENARIO, requests_of, serve
from tests.live.engines.vllm_server import board_of
from workbench.live.engines.collect import collect_arm
from workbench.live.engines.spool import read_stream
from workbench.replay import replay_arm

pytestmark = pytest.mark.engines


@pytest.mark.parametrize("processes", [{}, IN_PROCESS], ids=["worker apart", "one process"])
def test_a_lost_signal_ends_nothing_and_is_counted(prompts, tmp_path, processes):
    """The sampler stops publishing after 10 steps: vLLM's own order from then on, every request to its end.

    With the worker apart, as vLLM does by default, the board is the only path; in one process vLLM runs without an executor
    of several processes.
    """
    answer = serve(
        tmp_path, SCENARIO, requests_of(prompts[:8], 48), environ={"ENTROPIC_TEST_MUTE_AFTER": "10", **processes},
        processors=["tests.live.engines.muted:MutedProcessor"],
    )  # fmt: skip
    assert [len(ids) for ids in answer["rounds"][0]["token_ids"]] == [48] * 8
    counters = answer["counters"]
    assert counters["signal_losses"] == 1
    assert counters["steps_on_own_order"] >= 20
    assert counters["measurements_used"] > 0
    assert counters["requests_ended"] == 8


@pytest.mark.parametrize("side", ["sampler", "scheduler"])
def test_a_killed_process_loses_tokens_not_requests_and_the_loss_is_counted(prompts, tmp_path, side):
    """The worker, or the engine's core, gets SIGKILL mid-run. vLLM ends with it; a new engine serves what had not ended."""

    def kill(pid: int) -> None:
        board = board_of(pid)
        while board.sampler_step < 20:
            time.sleep(0.02)
        assert board.state()["sampler_pid"] != board.state()["scheduler_pid"]
        os.kill(board.state()[f"{side}_pid"], signal.SIGKILL)

    answer = serve(tmp_path, SCENARIO, requests_of(prompts[:8], 64), restarts=1, meanwhile=kill)
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
