"""Routers and unmasking policies in scenarios, both plants: valid actions, one table for one seed, replay = record."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.contracts.table import KNOBS
from tests.contracts.test_real_plants import tiny_model  # noqa: F401  (a fixture)
from workbench.arm import run_arm
from workbench.catalog import CATALOG
from workbench.errors import InputError
from workbench.protocols import DecisionPoint
from workbench.record import read_manifest
from workbench.replay import replay_arm
from workbench.scenario import Scenario, parse_scenario

PROBE = 6
ROUTERS = [
    pytest.param({"kind": kind} | KNOBS.get((DecisionPoint.ROUTE, kind), {}), id=kind)
    for kind in CATALOG[DecisionPoint.ROUTE]
]
POLICIES = [pytest.param({"kind": kind}, id=kind) for kind in CATALOG[DecisionPoint.REVEAL]]
POLICIES.append(
    pytest.param(
        {"kind": "klass", "wrap": [{"kind": "remasking", "threshold": 0.4}, {"kind": "semi-autoregressive"}]},
        id="wrapped",
    )
)


def sim(table: dict[str, Any], point: DecisionPoint, delay_steps: int = 0, **more: Any) -> Scenario:
    return parse_scenario(
        {
            "level": "full",
            "workload": {"num_requests": 12, "arrivals": "poisson", "rate_per_s": 60.0, "max_tokens": 12},
            "engine": {"max_running": 4, "token_budget": 256, "delay_steps": delay_steps},
            "routing": {"probe_tokens": PROBE, "direct_tokens": 3},
            "controllers": {point: table},
        }
        | more
    )


def live(model: tuple[Path, Path], table: dict[str, Any], point: DecisionPoint, **more: Any) -> Scenario:
    return parse_scenario(
        {
            "plant": "live",
            "level": "full",
            "workload": {"num_requests": 6, "prompts": str(model[1]), "max_tokens": 10},
            "live": {"model": str(model[0]), "dtype": "fp32", "backend": "torch"},
            "engine": {"max_running": 3, "token_budget": 64, "block_size": 4},
            "routing": {"probe_tokens": PROBE, "max_direct_tokens": 3, "max_cot_tokens": 14},
            "controllers": {point: table},
        }
        | more
    )


def check(arm: Path) -> pl.DataFrame:
    result = replay_arm(arm)
    assert result.ok, result.first_difference
    assert result.num_decisions >= 1
    requests = pl.read_parquet(arm / "requests.parquet")
    assert (requests["status"].cast(pl.String) == "completed").all()
    return requests


@pytest.mark.parametrize("table", ROUTERS)
@pytest.mark.parametrize("delay_steps", [0, 1])
def test_routers_in_the_simulator(table: dict[str, Any], delay_steps: int, tmp_path: Path) -> None:
    scenario = sim(table, DecisionPoint.ROUTE, delay_steps)
    arms = [run_arm(scenario, 0, tmp_path / name) for name in ("a", "b")]
    assert read_manifest(arms[0])["tables"] == read_manifest(arms[1])["tables"]
    requests = check(arms[0])
    looks = getattr(CATALOG[DecisionPoint.ROUTE][table["kind"]], "needs_probe", True)
    assert requests["probe_tokens"].max() == (PROBE + delay_steps if looks else 0)
    assert not (requests["strategy"] == "undecided").any()


@pytest.mark.parametrize("table", ROUTERS)
def test_routers_on_a_real_model(tiny_model: tuple[Path, Path], table: dict[str, Any], tmp_path: Path) -> None:  # noqa: F811
    requests = check(run_arm(live(tiny_model, table, DecisionPoint.ROUTE), 0, tmp_path / "a"))
    assert {"strategy", "route_reason", "probe_text", "output_text"} <= set(requests.columns)


def test_an_infinite_knob_is_recorded_and_replayed(tmp_path: Path) -> None:
    table = {"kind": "heuristic", "overload_nats": float("inf"), "min_tokens": 4}
    check(run_arm(sim(table, DecisionPoint.ROUTE), 0, tmp_path / "a"))


@pytest.mark.parametrize("table", POLICIES)
def test_policies_in_the_simulator(table: dict[str, Any], tmp_path: Path) -> None:
    scenario = sim(table, DecisionPoint.REVEAL, diffusion={"share_frac": 0.5, "length_tokens": 12, "num_symbols": 4})
    arms = [run_arm(scenario, 0, tmp_path / name) for name in ("a", "b")]
    assert read_manifest(arms[0])["tables"] == read_manifest(arms[1])["tables"]
    requests = check(arms[0])
    masked = requests.filter(pl.col("kind").cast(pl.String) == "diffusion")
    assert 0 < masked.height < requests.height
    assert masked["output_tokens"].to_list() == [12] * masked.height
    assert masked["passes"].is_between(1, 12).all()
    assert requests.filter(pl.col("kind").cast(pl.String) != "diffusion")["passes"].sum() == 0


@pytest.mark.skipif(find_spec("sapiens") is None, reason="the package sapiens is not installed")
def test_masked_proteins_and_text_in_one_live_run(tiny_model: tuple[Path, Path], tmp_path: Path) -> None:  # noqa: F811
    diffusion = {"share_frac": 0.5, "length_tokens": 30, "model": "sapiens-heavy"}
    table = {"kind": "entropy-sum", "eta_nats": 4.0}
    requests = check(run_arm(live(tiny_model, table, DecisionPoint.REVEAL, diffusion=diffusion), 0, tmp_path / "a"))
    masked = requests.filter(pl.col("kind").cast(pl.String) == "diffusion")
    assert 0 < masked.height < requests.height
    assert set(masked["finish_reason"]) == {"revealed"}
    assert all(len(text) == 30 and "*" not in text for text in masked["output_text"])


def test_what_cannot_be_asked_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"diffusion\.share_frac"):
        run_arm(sim({"kind": "entropy-sum"}, DecisionPoint.REVEAL), 0, tmp_path)
    with pytest.raises(InputError, match="not offered"):
        run_arm(sim({"kind": "heuristic"}, DecisionPoint.ROUTE, diffusion={"share_frac": 0.5}), 0, tmp_path)
    with pytest.raises(InputError, match="oracle"):
        run_arm(
            sim({"kind": "uniform"}, DecisionPoint.REVEAL, diffusion={"share_frac": 1, "oracle": "marcov"}), 0, tmp_path
        )
