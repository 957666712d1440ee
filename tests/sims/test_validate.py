"""Validation on a record whose truth is known: a simulated run passed off as live is met exactly."""

import json
from dataclasses import replace

import numpy as np
import pytest
import typer

from sims.calibration import builtin_calibration, write_calibration
from sims.models import MODELS
from sims.validate import rank_agreement, setting_of, simulate_again, tau_b, validation_figures
from workbench.arm import run_arm
from workbench.cli.validate import validate
from workbench.errors import InputError
from workbench.scenario import parse_scenario
from workbench.validation_parts import told_parts


@pytest.fixture
def calibration(parts):
    shape = MODELS["SmolLM2-135M"]
    cost = parts.cost(
        dense_flop_per_token=2.0 * shape.num_layers * shape.layer_weights,
        output_flop_per_sample=shape.output_flop_per_sample,
        attention_flop_per_pair=shape.attention_flop_per_pair,
        kv_bytes_per_token=shape.kv_bytes_per_token,
    )
    return replace(builtin_calibration(), step_cost=cost)


@pytest.fixture
def arms(tmp_path, calibration):
    write_calibration(tmp_path / "c.json", calibration)
    made = []
    for name, tables in (
        ("plain", {}),
        ("both", {"order": {"kind": "entropy-aging"}, "keep": {"kind": "least-mass", "mass_budget": 0.05}}),
    ):
        scenario = parse_scenario(
            {
                "hardware": {"gpu": "calibrated", "calibration": str(tmp_path / "c.json")},
                "workload": {"num_requests": 25, "max_tokens": 40, "rate_per_s": 40.0},
                "engine": {"max_running": 8},
                "controllers": tables,
            }
        )
        arm = run_arm(scenario, 3, tmp_path / name)
        manifest = json.loads((arm / "manifest.json").read_text())
        manifest["plant"] = "live"
        (arm / "manifest.json").write_text(json.dumps(manifest))
        made.append(arm)
    return made


def test_a_run_simulated_again_is_the_same_run(arms, calibration):
    pairs = [simulate_again(arm, calibration) for arm in arms]
    figures = validation_figures(pairs)
    assert figures["arms"] == figures["settings"] == 2
    assert figures["step_mape"] == pytest.approx(0.0, abs=1e-9)
    for name in ("throughput_err", "tpot_p50_err", "ttft_mean_err", "e2e_mean_err"):
        assert figures[name] == pytest.approx(0.0, abs=1e-9)
    assert figures["top1_regret"] == 0.0
    assert figures["kendall_tau"] is None, "one seed cannot tell settings apart"
    for pair in pairs:
        assert all(live == simulated for live, simulated in pair.side_by_side.values() if not isinstance(live, str))


def test_a_slower_machine_shows_as_a_signed_error(arms, calibration):
    slow = replace(calibration, step_cost=replace(calibration.step_cost, host_s=calibration.step_cost.host_s + 2e-3))
    figures = validation_figures([simulate_again(arm, slow) for arm in arms])
    assert figures["step_bias"] > 0.1
    assert figures["tpot_p50_bias"] > 0.1
    with pytest.raises(InputError, match="no step cost"):
        simulate_again(arms[0], replace(calibration, step_cost=None))


def test_ranks_count_only_pairs_that_differ_live():
    live = {"a": np.array([1.0, 1.1, 0.9]), "b": np.array([2.0, 2.1, 1.9]), "c": np.array([2.0, 2.3, 1.6])}
    right = {"a": np.array([1.0] * 3), "b": np.array([5.0] * 3), "c": np.array([4.0] * 3)}
    found = rank_agreement(live, right)
    assert (found.resolved_pairs, found.pairs, found.kendall_tau, found.top1_regret) == (2, 3, 1.0, 0.0)
    wrong = {"a": np.array([9.0] * 3), "b": np.array([5.0] * 3), "c": np.array([4.0] * 3)}
    found = rank_agreement(live, wrong)
    assert found.kendall_tau == -1.0
    assert found.top1_regret == pytest.approx(live["c"].mean() / 1.0 - 1.0)


def test_ties_everywhere_are_undefined_with_a_reason():
    tied = {"a": np.ones(3), "b": np.ones(3)}
    assert rank_agreement(tied, tied).kendall_tau is None
    assert "differ" in rank_agreement(tied, tied).reason
    apart = {"a": np.array([1.0, 1.1, 0.9]), "b": np.array([2.0, 2.1, 1.9])}
    assert rank_agreement(apart, tied).reason == "all settings tie in the simulator"
    assert tau_b([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(0.91287, abs=1e-5)
    assert tau_b([1, 1], [1, 2]) is None


def test_a_setting_is_named_by_everything_set():
    plan = parse_scenario({"controllers": {"keep": {"kind": "least-mass", "mass_budget": 0.05}}})
    assert setting_of(plan) == "keep least-mass (mass_budget 0.05)"
    assert setting_of(parse_scenario({})) == "none"


def test_a_record_cut_off_is_one_line(arms, calibration):
    steps = arms[0] / "steps.parquet"
    steps.write_bytes(steps.read_bytes()[:-200])
    with pytest.raises(InputError, match=r"steps.parquet: missing or damaged .* record the arm again"):
        simulate_again(arms[0], calibration)
    manifest = arms[1] / "manifest.json"
    manifest.write_text(manifest.read_text()[:-50])
    with pytest.raises(InputError, match=r"manifest.json: damaged"):
        simulate_again(arms[1], calibration)


def test_parts_of_an_exact_simulation_are_nothing_but_chance(arms, calibration):
    pairs = [simulate_again(arm, calibration) for arm in arms]
    said, figures = told_parts(pairs, calibration)
    assert len(said) == 3
    assert figures["step_part_mape"] == pytest.approx(0.0, abs=1e-9)
    for name in ("throughput", "tpot_p50", "ttft_mean", "e2e_mean"):
        assert figures[f"{name}_err_own_speed"] == pytest.approx(0.0, abs=1e-9)
    # Only the pruned arm's steps depend on what is drawn.
    assert 0.0 <= figures["e2e_mean_draw_sd"] < 0.05


def test_validate_says_strictly_that_tau_is_undefined(arms, calibration, tmp_path, capsys):
    # Arms of one seed cannot be told apart, so there are no pairs to rank.
    with pytest.raises(typer.Exit) as end:
        validate(tmp_path, calibration=tmp_path / "c.json", ranked_by="e2e_mean_s", fit_seed=None, record=None,
                 engine="workbench", vllm=None, parts=True, as_json=True)  # fmt: skip
    body = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    assert end.value.exit_code == 1
    assert body["ok"] is False
    assert body["figures"]["kendall_tau"] is None
    assert body["figures"]["resolved_pairs"] == 0
    assert body["figures"]["step_part_mape"] == pytest.approx(0.0, abs=1e-9)
