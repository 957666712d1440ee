"""With a delay the forward pass runs while temperatures are decided; what comes out does not depend on it."""

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.live.tiny import save, tiny_reference
from workbench.catalog import build_controllers
from workbench.engine.config import EngineConfig
from workbench.live.executor import LiveExecutor
from workbench.live.session import LiveModel
from workbench.protocols import DecisionPoint

PROMPTS = [[5, 90, 17, 3, 3, 44, 8, 61], [20, 33, 71, 2], [9, 55, 12, 80, 4, 29, 66, 31, 7, 7, 1]]
TABLES = {
    DecisionPoint.ORDER: {"kind": "entropy-aging"},
    DecisionPoint.TEMPERATURE: {"kind": "pi", "target_entropy_nats": 2.0},
    DecisionPoint.KEEP: {"kind": "least-mass", "mass_budget": 0.5, "sink_blocks": 0, "recent_blocks": 1},
}
ENGINE = EngineConfig(num_blocks=32, block_size=4, max_running=3, token_budget=6, delay_steps=1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LiveModel:
    directory: Path = save(tiny_reference("llama", num_hidden_layers=2), tmp_path_factory.mktemp("two-layers"))
    return LiveModel.load(directory, dtype="fp32", backend="torch")


def generate(model: LiveModel, config: EngineConfig):
    controllers = build_controllers(TABLES, {"vocab_size": 97, "delay_steps": config.delay_steps})
    return model.generate(PROMPTS, max_tokens=8, config=config, seed=5, controllers=controllers)


def test_a_pass_begun_early_gives_the_same_run(model: LiveModel, monkeypatch: pytest.MonkeyPatch) -> None:
    early = generate(model, ENGINE)
    monkeypatch.setattr(LiveExecutor, "begin", lambda *_: None)  # then `execute` does the whole
    for a, b in zip(early, generate(model, ENGINE), strict=True):
        np.testing.assert_array_equal(a.token_ids, b.token_ids)
        # Not bit for bit: the last bit of a float32 product may depend on where its operands lie, early or not.
        for name in ("entropy_raw_nats", "temperature_applied", "dropped_mass"):
            np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=2e-6, atol=1e-6, err_msg=name)


def test_temperatures_are_decided_while_the_pass_runs(model: LiveModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pass waits for a decision: were it asked for after the pass, it would wait for ever (here: 10 s)."""
    decided, came = threading.Semaphore(0), []
    forward = LiveExecutor._forward

    def patient(self: LiveExecutor, batch, keep):
        came.append(decided.acquire(timeout=10.0))
        return forward(self, batch, keep)

    class Tells:
        def decision(self, observation, action, applied) -> None:
            assert threading.current_thread() is threading.main_thread()
            decided.release()

    monkeypatch.setattr(LiveExecutor, "_forward", patient)
    controllers = build_controllers(
        {DecisionPoint.TEMPERATURE: TABLES[DecisionPoint.TEMPERATURE]}, {"vocab_size": 97, "delay_steps": 1}
    )
    model.generate(
        PROMPTS,
        max_tokens=3,
        config=replace(ENGINE, token_budget=64, max_chunk_tokens=64),
        controllers=controllers,
        recorder=Tells(),
    )
    assert came == [True] * 3


def test_an_error_inside_the_pass_comes_out(model: LiveModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: LiveExecutor, batch, keep):
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(LiveExecutor, "_forward", broken)
    with pytest.raises(RuntimeError, match="the device is gone"):
        generate(model, ENGINE)
