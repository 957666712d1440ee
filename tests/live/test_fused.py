"""The one-call forward pass against the op-by-op path: logits, masses, dropped mass, whole generations."""

from pathlib import Path

import numpy as np
import pytest
import torch

from kernels.dispatch import backend
from tests.live.forward import prefill_logits
from tests.live.test_executor import EvictOnce, run
from tests.live.tiny import reference_logits, save, tiny_reference
from workbench.engine.config import EngineConfig
from workbench.live.decoder import Decoder
from workbench.live.session import LiveModel
from workbench.live.weights import load_model
from workbench.protocols import DecisionPoint

IDS = [5, 90, 17, 3, 3, 44, 8, 61, 20, 33, 71, 2, 9, 55, 12, 80, 4, 29, 66, 31]


@pytest.fixture(params=["mistral", "qwen3", "qwen2-wide", "window-wide"])
def pair(request: pytest.FixtureRequest, tmp_path: Path):
    """(reference in float32, one-call decoder, op-by-op decoder), both in bf16."""
    wide = {"hidden_size": 128, "num_attention_heads": 8, "num_key_value_heads": 2}
    reference = {
        "mistral": lambda: tiny_reference("mistral"),
        "qwen3": lambda: tiny_reference("qwen3"),
        "qwen2-wide": lambda: tiny_reference("qwen2", **wide),
        "window-wide": lambda: tiny_reference("mistral-window", **wide),
    }[request.param]()
    model = load_model(save(reference, tmp_path), "bf16")
    fused = Decoder(model, backend("cpu"))
    if "one call" not in fused.implementation:
        pytest.skip("no C++ extension here: the cpu backend runs op by op")
    return reference, fused, Decoder(model, backend("torch"))


def test_logits_are_as_close_to_float32_as_op_by_op(pair) -> None:
    reference, fused, plain = pair
    expected = reference_logits(reference, IDS)
    ours, theirs = (prefill_logits(d, IDS) - expected for d in (fused, plain))
    assert ours.abs().mean() < 1.5 * theirs.abs().mean()
    assert ours.abs().max() < 0.15 * expected.std() + 2.0 * theirs.abs().max()


def test_whole_runs_agree_with_masks_measured(pair) -> None:
    """Decode beside chunked prefill, blocks masked: teacher-forced, so that near-ties cannot make texts part."""
    _, fused, plain = pair
    rng = np.random.default_rng(3)
    prompts = [rng.integers(0, 97, n).tolist() for n in (30, 5, 44)]
    forced = {i: rng.integers(0, 97, 14).tolist() for i in range(3)}
    config = EngineConfig(num_blocks=80, block_size=4, max_running=3, token_budget=32, max_chunk_tokens=16)
    tables = []
    for decoder in (fused, plain):
        made = LiveModel(decoder, None, ()).plant(
            prompts, 14, config=config, controlled=frozenset({DecisionPoint.KEEP}), forced=forced
        )
        run(made, {DecisionPoint.KEEP: EvictOnce([1, 2], at_context=33, evict=False)})
        tokens = made.plant.telemetry.tokens
        keys = np.concatenate([t["request_id"] * 100 + t["token_index"] for t in tokens])
        order = np.argsort(keys)
        named = ("entropy_raw_nats", "surprisal_raw_nats", "dropped_mass")
        tables.append({n: np.concatenate([t[n] for t in tokens])[order] for n in named})
        steps = made.plant.telemetry.step_table()
        tables[-1]["kv_bytes_read"], tables[-1]["kv_bytes_dense"] = steps["kv_bytes_read"], steps["kv_bytes_dense"]
    a, b = tables
    assert np.abs(a["entropy_raw_nats"] - b["entropy_raw_nats"]).mean() < 0.05
    assert np.abs(a["surprisal_raw_nats"] - b["surprisal_raw_nats"]).mean() < 0.1
    windowed = fused.config.windows[0] is not None  # the masked blocks lie outside its window: nothing is lost
    assert (a["dropped_mass"] > 0).any() != windowed
    np.testing.assert_allclose(a["dropped_mass"], b["dropped_mass"], atol=0.05)
    np.testing.assert_allclose(a["kv_bytes_read"], b["kv_bytes_read"], rtol=1e-5)
    np.testing.assert_allclose(a["kv_bytes_dense"], b["kv_bytes_dense"])
    assert (a["kv_bytes_read"] < a["kv_bytes_dense"]).any() != windowed


def test_what_one_call_cannot_do_goes_op_by_op(pair) -> None:
    _, fused, _ = pair
    model = LiveModel(fused, None, ())
    made = model.plant([IDS], 3, controlled=frozenset({DecisionPoint.KEEP}), mass_by_head=True)
    run(made, {DecisionPoint.KEEP: EvictOnce([1], at_context=10**6)})
    by_head = made.plant.telemetry.tokens[1]["block_mass_by_head"]
    np.testing.assert_allclose(by_head.sum(axis=-1), 1.0, atol=1e-2)
    float32 = Decoder(load_model(fused.model.directory, "fp32"), backend("cpu"))
    assert "one call" not in float32.implementation


def test_subnormals_survive_a_step(pair) -> None:
    import threading

    _, fused, _ = pair
    prefill_logits(fused, IDS)
    seen: list[bool] = []

    def check() -> None:
        tiny = np.nextafter(np.float32(0), np.float32(1))
        seen.append(bool(5e-324 > 0.0 and np.nextafter(0, 1) * 1.0 > 0 and tiny * np.float32(1) > 0))
        seen.append(bool((torch.full((64,), 1e-40) * 1.0 > 0).all()))

    check()
    thread = threading.Thread(target=check)
    thread.start()
    thread.join()
    assert all(seen)
