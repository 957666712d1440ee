"""Prefix caching on a real model: KV that another request computed serves as if it were one's own, and only where it may."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.live.test_executor import Logits
from workbench.engine.config import EngineConfig
from workbench.errors import InputError
from workbench.live.build import refuse_simulated_only
from workbench.live.session import LiveModel
from workbench.loop import close_loop
from workbench.scenario import parse_scenario

CONFIG = EngineConfig(num_blocks=64, block_size=16, max_running=1, prefix_caching=True)
PROMPT = [int(t) for t in np.random.default_rng(0).integers(3, 90, 64)]


class NoRecord:
    def decision(self, observation, action, applied):
        pass


def served(model: LiveModel, prompts, config=CONFIG, max_tokens=8):
    logits = Logits()
    made = model.plant(prompts, max_tokens, config=config, on_logits=logits)
    close_loop(made.plant, {}, NoRecord())
    return made, [logits.of(r, max_tokens) for r in range(len(prompts))]


@pytest.mark.parametrize("others", [[], [[9] * 40]])
def test_the_same_prompt_twice_gives_the_same_logits_from_memory(tiny_llama, others):
    prompts = [PROMPT, *others, PROMPT, [*PROMPT[:40], 5, 6, 7]]
    warm, from_memory = served(tiny_llama, prompts)
    cold, computed = served(tiny_llama, prompts, replace(CONFIG, prefix_caching=False))
    hits = warm.plant.ledger.prefix_hit_tokens
    assert hits.tolist() == [0] * (1 + len(others)) + [48, 32]
    assert cold.plant.ledger.prefix_hit_tokens.sum() == 0
    for a, b in zip(from_memory, computed, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)
    assert warm.executor.outputs == cold.executor.outputs
    assert not warm.plant.index.refs.any()


@pytest.mark.parametrize("shift", [1, 7])
def test_a_prompt_that_differs_in_its_first_token_finds_nothing(tiny_llama, shift):
    other = [PROMPT[0] + shift, *PROMPT[1:]]
    warm, logits = served(tiny_llama, [PROMPT, other])
    _, alone = served(tiny_llama, [other])
    assert warm.plant.ledger.prefix_hit_tokens.tolist() == [0, 0]
    np.testing.assert_allclose(logits[1][0], alone[0][0], atol=1e-4)


def test_another_run_on_the_same_cache_tensor_starts_cold(tiny_llama):
    served(tiny_llama, [PROMPT])
    again, _ = served(tiny_llama, [PROMPT])
    assert again.plant.ledger.prefix_hit_tokens.tolist() == [0]
    assert torch.isfinite(again.executor.cache.keys[0]).all()


def test_what_only_the_simulator_has_is_refused_in_one_line(tiny_llama):
    with pytest.raises(InputError, match="swap is simulated only"):
        served(tiny_llama, [PROMPT], replace(CONFIG, preemption="swap"))
    for changes in (
        {"hardware": {"num_replicas": 2}}, {"faults": {"failure": {"mean_gap_s": 1.0, "repair_s": 1.0}}},
        {"workload": {"prefix_tokens": 64}},
    ):  # fmt: skip
        with pytest.raises(InputError, match="simulated only"):
            refuse_simulated_only(parse_scenario({"plant": "live", **changes}))
