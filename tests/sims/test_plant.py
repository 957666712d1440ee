"""The simulated plant of a scenario: what serves, what arrives, the clock, equal tables for equal seeds."""

import numpy as np
import pytest

from sims.clock import SimClock
from sims.plant import ample_blocks, build_plant
from workbench.arm import run_arm
from workbench.engine.config import EngineConfig
from workbench.errors import InputError
from workbench.record import read_manifest
from workbench.scenario import parse_scenario


def scenario(**changes):
    data = {
        "workload": {"num_requests": 30, "rate_per_s": 50.0, "max_tokens": 40},
        "engine": {"max_running": 32},
        "controllers": {
            "order": {"kind": "entropy-aging"},
            "temperature": {"kind": "pi", "target_entropy_nats": 1.8},
            "keep": {"kind": "least-mass"},
        },
    }
    for key, value in changes.items():
        data[key] = {**data.get(key, {}), **value} if isinstance(value, dict) else value
    return parse_scenario(data)


def test_equal_seeds_give_equal_tables_and_another_seed_does_not(tmp_path):
    hashes = [read_manifest(run_arm(scenario(), seed, tmp_path / str(i)))["tables"] for i, seed in enumerate((5, 5, 6))]
    assert hashes[0] == hashes[1]
    assert all(hashes[0][name] != hashes[2][name] for name in hashes[0])


def test_the_manifest_says_what_serves_and_where_requests_come_from(tmp_path):
    notes = read_manifest(run_arm(scenario(), 0, tmp_path))["notes"]
    assert "no trace given" in notes["workload"]
    assert "azure-conversation" in notes["workload"]
    assert notes["hardware"].startswith("Llama-3-8B on H100")
    assert "built in" in notes["entropy_process"]
    assert "Vidur" in notes["step_cost"]


def test_a_trace_is_replayed_and_summarised(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{i},{10 + i},5\n" for i in range(8)))
    plant = build_plant(
        scenario(workload={"trace": str(path), "rate_per_s": None, "rate_multiplier": 2.0}), 0, frozenset(), 0
    )
    assert plant.requests.arrival_s.tolist() == [i / 2 for i in range(8)]
    assert "8 requests over 7 s" in plant.notes["workload"]


@pytest.mark.parametrize("arrivals", ["poisson", "gamma"])
def test_made_arrivals_keep_the_rate(arrivals):
    plant = build_plant(
        scenario(workload={"arrivals": arrivals, "num_requests": 3000, "rate_per_s": 20.0}), 0, frozenset(), 0
    )
    assert 3000 / plant.requests.arrival_s[-1] == pytest.approx(20.0, rel=0.12)
    assert arrivals in plant.notes["arrivals"]


def test_memory_decides_the_block_count():
    ample = build_plant(scenario(), 0, frozenset(), 0).config.num_blocks
    tight = build_plant(scenario(hardware={"kv_memory_frac": 0.1}), 0, frozenset(), 0).config.num_blocks
    assert tight == pytest.approx(0.1 * ample, rel=0.01)
    assert ample * 16 * 131_072 < 0.9 * 80 * 2**30 - 16e9


def test_the_context_limit_is_the_models_unless_the_scenario_sets_it():
    assert build_plant(scenario(hardware={"model": "Llama-2-7B"}), 0, frozenset(), 0).config.max_context_tokens == 4096
    assert build_plant(scenario(engine={"max_context_tokens": 500}), 0, frozenset(), 0).config.max_context_tokens == 500


def test_a_large_model_comes_on_its_own_number_of_gpus():
    plant = build_plant(scenario(hardware={"model": "Llama-3-70B"}), 0, frozenset(), 0)
    assert "4 x H100" in plant.notes["hardware"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hardware": {"gpu": "H1000"}}, "did you mean"),
        ({"hardware": {"model": "Llama"}}, "unknown model"),
        ({"hardware": {"gpu": "L4", "model": "Llama-3-70B"}}, "does not fit"),
        ({"hardware": {"gpu": "calibrated"}}, "needs hardware.calibration"),
        ({"workload": {"generator": "azure"}}, "unknown generator"),
    ],
)
def test_what_cannot_be_built_is_refused_in_one_line(changes, message):
    with pytest.raises(InputError, match=message):
        build_plant(scenario(**changes), 0, frozenset(), 0)


def test_the_clock_waits_to_the_exact_time_and_runs_other_processes_on_the_way():
    clock = SimClock()
    seen = []

    def other(env):
        while True:
            yield env.timeout(0.25)
            seen.append(env.now)

    clock.env.process(other(clock.env))
    clock.advance(0.1)
    clock.wait_until(0.7)
    assert clock.now_s == 0.7
    assert seen == [0.25, 0.5]
    clock.wait_until(0.5)
    assert clock.now_s == 0.7


def test_ample_blocks_hold_the_longest_requests_at_once(parts):
    requests = parts.requests(20)
    config = EngineConfig(num_blocks=1, max_running=4)
    lengths = np.sort(-(-(requests.prompt_tokens + requests.output_tokens) // 16))
    assert ample_blocks(requests, config) >= lengths[-4:].sum()
