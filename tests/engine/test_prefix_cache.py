"""Prefix caching in the engine: hits are real, random prompts have none, what is recomputed stands apart."""

import numpy as np
import pytest

from tests.engine.test_plant import drive, spec
from tests.fakes import FormulaExecutor
from workbench.engine.clock import CountedClock
from workbench.engine.config import EngineConfig
from workbench.engine.plant import EnginePlant
from workbench.engine.prompt_blocks import blocks_of_tokens
from workbench.engine.requests import RequestStatus
from workbench.errors import InputError


def served(prompts, output=4, *, arrival_s=None, per_token_s=0.01, **config):
    arrival = np.arange(len(prompts)) * 100.0 if arrival_s is None else arrival_s
    requests = spec(arrival, [len(p) for p in prompts], output)
    blocks = blocks_of_tokens(prompts, 16, model="m", policy="p")
    requests = type(requests)(**{**vars(requests), "prompt_blocks": blocks})
    executor = FormulaExecutor(per_token_s=per_token_s, mass=False)
    plant = EnginePlant(
        requests, executor, CountedClock(), EngineConfig(**{"num_blocks": 100, "prefix_caching": True, **config})
    )
    drive(plant)
    assert plant.pool.num_free[0] == plant.config.num_blocks, "blocks leak"
    assert not plant.index.refs.any()
    return plant


def test_a_prompt_wholly_in_memory_still_computes_one_token():
    prompt = list(range(64))
    plant = served([prompt, prompt])
    assert plant.ledger.prefix_hit_tokens.tolist() == [0, 48]
    ttft = plant.ledger.first_token_s - plant.requests.arrival_s
    assert ttft[1] == pytest.approx(1.0 + 0.01 * 16)
    assert 0.0 < ttft[1] < ttft[0]
    assert np.all(plant.ledger.status == RequestStatus.COMPLETED)


def test_a_longer_prompt_adopts_what_it_shares():
    first = list(range(64))
    plant = served([first, [*first, *range(500, 540)], [*first[:32], *range(700, 740)], [9] * 70])
    assert plant.ledger.prefix_hit_tokens.tolist() == [0, 64, 32, 0]


def test_a_thousand_random_prompts_on_a_tight_cache_hit_nothing_and_recompute_stands_apart():
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, 50_000, rng.integers(20, 120)).tolist() for _ in range(1000)]
    plant = served(prompts, 30, arrival_s=np.arange(1000) * 0.5, num_blocks=40, max_running=16)
    assert plant.ledger.num_preempted.sum() > 100, "the cache is not tight"
    assert plant.ledger.prefix_hit_tokens.sum() == 0
    assert plant.ledger.recomputed_tokens.sum() > 0


def test_whoever_is_preempted_finds_its_own_blocks_without_counting_them_as_hits():
    prompts = [list(range(i * 1000, i * 1000 + 64)) for i in range(4)]
    plant = served(prompts, 60, arrival_s=np.zeros(4), num_blocks=16, preemption_quantum_tokens=0)
    cold = served(prompts, 60, arrival_s=np.zeros(4), num_blocks=16, preemption_quantum_tokens=0)
    assert plant.ledger.num_preempted.sum() > 0
    assert plant.ledger.prefix_hit_tokens.sum() == 0
    assert plant.ledger.recomputed_tokens.sum() == cold.ledger.recomputed_tokens.sum()


def test_the_least_recently_used_content_goes_first_and_a_prompt_loses_its_end_before_its_beginning():
    a, b = list(range(64)), list(range(1000, 1064))
    filler = list(range(5000, 5064))
    # 10 blocks: a and b take 5 each while they run; the filler needs 5, so a's tail goes and its head stays.
    plant = served([a, b, filler, b, a], 1, num_blocks=10)
    hits = plant.ledger.prefix_hit_tokens.tolist()
    assert hits[:3] == [0, 0, 0]
    assert hits[3] == 48
    assert 0 <= hits[4] < 48


def test_it_needs_to_know_how_prompts_begin():
    with pytest.raises(InputError, match="needs to know how prompts begin"):
        EnginePlant(
            spec([0.0], 4, 4), FormulaExecutor(), CountedClock(), EngineConfig(num_blocks=4, prefix_caching=True)
        )
