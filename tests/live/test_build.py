"""A scenario's live plant: prompts, arrivals, records and replay of what was recorded."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from workbench.arm import run_arm
from workbench.errors import InputError
from workbench.live.build import build_plant, loaded_model
from workbench.protocols import DecisionPoint
from workbench.record import read_manifest
from workbench.replay import replay_arm
from workbench.scenario import parse_scenario


@pytest.fixture
def scenario(tiny_llama_directory: Path, tmp_path: Path):
    prompts = tmp_path / "prompts.jsonl"
    rng = np.random.default_rng(0)
    rows = [{"token_ids": rng.integers(0, 97, 20 + i).tolist(), "kind": "ab"[i % 2]} for i in range(5)]
    prompts.write_text("\n".join(json.dumps(row) for row in rows))
    loaded_model.cache_clear()

    def make(**changes):
        return parse_scenario(
            {
                "plant": "live",
                "level": "full",
                "workload": {"prompts": prompts, "num_requests": 7, "max_tokens": 12, "rate_per_s": 50.0},
                "engine": {"max_running": 3, "block_size": 4},
                "live": {"model": str(tiny_llama_directory), "dtype": "fp32", "backend": "torch"},
                **changes,
            }
        )

    return make


ALL = {
    "order": {"kind": "entropy-aging"},
    "temperature": {"kind": "pi", "target_entropy_nats": 2.0},
    "keep": {"kind": "least-mass", "mass_budget": 0.1, "recent_blocks": 1},
}


def test_an_arm_is_recorded_and_replays_bit_for_bit(scenario, tmp_path: Path) -> None:
    arm = run_arm(scenario(controllers=ALL), 3, tmp_path / "arm")
    requests = pl.read_parquet(arm / "requests.parquet")
    assert (requests["status"].cast(pl.String) == "completed").all()
    assert requests["output_tokens"].to_list() == [12] * 7
    assert requests["finish_reason"].to_list() == ["length"] * 7
    assert (np.diff(requests["arrival_s"]) >= 0).all()
    assert requests["arrival_s"].max() > 0.0
    table = pl.read_parquet(arm / "sequences.parquet")
    tokens = table.filter(pl.col("point") == "measure")
    assert len(tokens) == 84
    assert (tokens["dropped_mass"] > 0.0).any()
    np.testing.assert_allclose(
        np.array(tokens["entropy_at_temperature"].to_list())[:, 2], tokens["entropy_raw_nats"], atol=1e-6
    )
    manifest = read_manifest(arm)
    assert manifest["notes"]["model_shape"]["num_kv_heads"] == 2
    assert manifest["notes"]["calibration_temperatures"] == [0.5, 0.7, 1.0, 1.4]
    assert replay_arm(arm).ok


def test_quality_of_a_pruned_answer_is_judged_by_the_whole_model(scenario, tmp_path: Path) -> None:
    pruned = {"keep": {"kind": "least-mass", "mass_budget": 0.6, "recent_blocks": 1}}
    plan = scenario(controllers=pruned)
    arm = run_arm(plan, 0, tmp_path / "arm")
    table = pl.read_parquet(arm / "sequences.parquet").filter(pl.col("point") == "measure")
    own = table.group_by("request_id").agg(pl.col("surprisal_raw_nats").sum(), pl.col("token_id")).sort("request_id")
    requests = pl.read_parquet(arm / "requests.parquet")
    assert np.abs(requests["nll_raw_nats"].to_numpy() - own["surprisal_raw_nats"].to_numpy()).max() > 0.1
    model = loaded_model(plan.live.model, "fp32", "torch")
    prompt = json.loads(plan.workload.prompts.read_text().splitlines()[1])["token_ids"]
    order = table.sort(["request_id", "token_index"]).filter(pl.col("request_id") == 1)
    expected = model.score(prompt, order["token_id"].to_list()).surprisal_raw_nats.sum()
    assert requests["nll_raw_nats"][1] == pytest.approx(expected, abs=1e-6)


def test_bad_input_is_one_line(scenario, tmp_path: Path) -> None:
    none = frozenset[DecisionPoint]()
    with pytest.raises(InputError, match="no such file"):
        build_plant(scenario(live={"model": str(tmp_path / "nowhere")}), 0, none, None)
    long = tmp_path / "long.jsonl"
    long.write_text(json.dumps({"token_ids": [1] * 600}))
    plan = scenario(workload={"prompts": long, "num_requests": 1})
    with pytest.raises(InputError, match="600 tokens, the context holds 512"):
        build_plant(plan, 0, none, None)
    huge = scenario(engine={"num_blocks": 2**40, "block_size": 4})
    with pytest.raises(InputError, match="GB are free"):
        build_plant(huge, 0, none, None)


def test_a_cap_beyond_the_context_is_lowered(scenario, tmp_path: Path) -> None:
    path = tmp_path / "near.jsonl"
    path.write_text(json.dumps({"token_ids": [1] * 508, "max_tokens": 50}))
    plant = build_plant(scenario(workload={"prompts": path, "num_requests": 1}), 0, frozenset(), None)
    assert plant.requests.output_tokens.tolist() == [4]
