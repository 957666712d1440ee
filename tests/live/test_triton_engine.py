"""The Triton path drives a whole two-layer model under the interpreter: engine, paged cache, controllers, sampling.

Runs as `TRITON_INTERPRET=1 pytest -m interpreter`; the torch path in the same process is the reference.
"""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.live.tiny import save, tiny_reference
from workbench.catalog import build_controllers
from workbench.engine.config import EngineConfig
from workbench.live.session import Generation, LiveModel

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]
PROMPTS = [[5, 90, 17, 3, 3, 44, 8, 61], [20, 33, 71, 2], [9, 55, 12, 80, 4, 29, 66, 31, 7, 7, 1]]
# Chunks of four tokens: prefill runs in pieces beside the decoding of the others.
TABLES = {
    "temperature": {"kind": "pi", "target_entropy_nats": 2.0},
    "keep": {"kind": "least-mass", "mass_budget": 0.5, "sink_blocks": 0, "recent_blocks": 1},
}
ENGINE = EngineConfig(num_blocks=32, block_size=4, max_running=3, token_budget=6)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LiveModel]:
    directory: Path = save(tiny_reference("llama", num_hidden_layers=2), tmp_path_factory.mktemp("two-layers"))
    return {name: LiveModel.load(directory, dtype="fp32", backend=name) for name in ("torch", "triton")}


def same_run(ours: list[Generation], twin: list[Generation]) -> None:
    for a, b in zip(ours, twin, strict=True):
        np.testing.assert_array_equal(a.token_ids, b.token_ids)
        for name in ("entropy_raw_nats", "varentropy_raw_nats2", "entropy_nats", "surprisal_raw_nats"):
            np.testing.assert_allclose(getattr(a, name), getattr(b, name), atol=2e-4)
        np.testing.assert_allclose(a.temperature_applied, b.temperature_applied, atol=1e-5)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_tokens_are_those_of_the_torch_path(both: dict[str, LiveModel], temperature: float) -> None:
    assert both["triton"].decoder.ops.implementation == "triton interpreter"
    made = {
        name: model.generate(PROMPTS, max_tokens=6, config=replace(ENGINE, temperature=temperature), seed=11)
        for name, model in both.items()
    }
    assert sum(len(g.token_ids) for g in made["triton"]) >= 12
    same_run(made["triton"], made["torch"])


def test_the_same_controllers_decide_the_same_on_both(both: dict[str, LiveModel]) -> None:
    """PI temperature and pruning in the loop: entropies, block masses and keep-lists come from the Triton kernels."""
    made = {}
    for name, model in both.items():
        controllers = build_controllers(TABLES, {"vocab_size": 97, "delay_steps": 0})
        made[name] = model.generate(PROMPTS, max_tokens=8, config=ENGINE, seed=5, controllers=controllers)
    same_run(made["triton"], made["torch"])
    dropped = {name: np.concatenate([g.dropped_mass for g in runs]) for name, runs in made.items()}
    assert np.nanmax(dropped["triton"]) > 0.0  # pruning did act
    np.testing.assert_allclose(dropped["triton"], dropped["torch"], atol=1e-5)
