"""Verdicts: the whole interval on one side, falsified data changes the verdict, every row of the ledger is well formed."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.claims.claim import (
    Claim,
    Measured,
    Quantity,
    Rule,
    Verdict,
    above,
    at_least,
    decide,
    join_all,
    join_settings,
    never_above,
)  # fmt: skip
from workbench.claims.experiments import EXPERIMENTS, factorial
from workbench.claims.experiments.factorial import ARMS, GAINS, quantities
from workbench.claims.interval import bootstrap, over_seeds
from workbench.claims.picture import interval_picture
from workbench.claims.registry import CELL, CLAIMS, chosen
from workbench.claims.setting import Setting
from workbench.errors import InputError

BY_ID = {claim.id: claim for claim in CLAIMS}


def measured(low: float, high: float) -> Measured:
    return Measured(0.5 * (low + high), low, high, "given")


@pytest.mark.parametrize(
    ("rule", "low", "high", "verdict"),
    [
        (at_least(0.25), 0.26, 0.4, Verdict.REPRODUCED),
        (at_least(0.25), 0.25, 0.25, Verdict.REPRODUCED),
        (at_least(0.25), 0.1, 0.2, Verdict.PARTLY),
        (at_least(0.25), -0.1, 0.02, Verdict.NOT_REPRODUCED),
        (at_least(0.25), 0.2, 0.3, Verdict.INCONCLUSIVE),
        (above(0.0), 0.0, 0.0, Verdict.NOT_REPRODUCED),
        (never_above(), 0.0, 0.0, Verdict.REPRODUCED),
        (never_above(), 0.1, 0.1, Verdict.FALSE),
        (never_above(), -0.1, 0.1, Verdict.INCONCLUSIVE),
    ],
)
def test_whole_interval_decides(rule: Rule, low: float, high: float, verdict: Verdict) -> None:
    assert rule.verdict(measured(low, high)) is verdict


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(0, 1))
def test_a_wider_interval_never_decides_otherwise(center: float, half: float, more: float) -> None:
    rule = at_least(0.25)
    narrow, wide = (rule.verdict(measured(center - h, center + h)) for h in (half, half + more))
    assert wide in (narrow, Verdict.INCONCLUSIVE)


def test_joins() -> None:
    v = Verdict
    assert join_all([v.REPRODUCED, v.INCONCLUSIVE, v.NOT_REPRODUCED]) is v.NOT_REPRODUCED
    assert join_all([v.REPRODUCED, v.PARTLY]) is v.PARTLY
    assert join_settings([v.REPRODUCED, v.NOT_REPRODUCED, v.INCONCLUSIVE]) is v.PARTLY
    assert join_settings([v.REPRODUCED, v.INCONCLUSIVE]) is v.INCONCLUSIVE
    assert join_settings([v.NOT_REPRODUCED, v.NOT_REPRODUCED]) is v.NOT_REPRODUCED


def test_missing_quantity_is_inconclusive() -> None:
    claim = Claim(
        id="x", source="", says="", definition="", experiment="factorial", quantities=(Quantity("a", "a", above(0)),)
    )
    assert decide(claim, {}) is Verdict.INCONCLUSIVE


def arms(gain_of_all: float) -> dict[str, np.ndarray]:
    """Six seeds of positive metrics; all three controllers together gain that share on every metric."""
    generator = np.random.default_rng(3)
    base = np.exp(generator.normal(0.0, 0.3, (6, len(GAINS))))
    signs = np.array([sign for _, sign in GAINS.values()])
    noise = {code: np.exp(generator.normal(0.0, 0.004, base.shape)) for code in ARMS}
    return {code: base * noise[code] * (1.0 + signs * (gain_of_all if code == "STP" else 0.0)) for code in ARMS}


def verdict_of(id: str, values: dict[str, np.ndarray]) -> Verdict:
    prefix = f"{CELL}_"
    return decide(BY_ID[id], {prefix + name: one for name, one in quantities(values).items()})


@pytest.mark.parametrize("id", ["et-latency", "et-throughput"])
def test_falsified_data_changes_the_verdict(id: str) -> None:
    values = arms(0.4)
    assert verdict_of(id, values) is Verdict.REPRODUCED
    swapped = values | {"-": values["STP"], "STP": values["-"]}
    assert verdict_of(id, swapped) is Verdict.NOT_REPRODUCED
    one_seed_turned = {code: x.copy() for code, x in values.items()}
    one_seed_turned["STP"][0] = values["-"][0]
    assert verdict_of(id, one_seed_turned) is Verdict.INCONCLUSIVE


def test_gains_are_shares_of_the_baseline() -> None:
    values = arms(0.4)
    values = {code: np.ones_like(x) for code, x in values.items()} | {"STP": np.full_like(values["-"], 0.75)}
    found = quantities(values)
    assert found["STP_latency"].value == pytest.approx(0.25)
    assert found["STP_throughput"].value == pytest.approx(-0.25)
    assert found["excess_log_latency"].value == pytest.approx(-np.log(0.75))
    assert found["excess_add_throughput"].value == pytest.approx(-0.25)


def test_t_interval_covers_as_it_says() -> None:
    generator = np.random.default_rng(0)
    hits = [m.low <= 0.0 <= m.high for m in (over_seeds(generator.normal(size=5)) for _ in range(4000))]
    assert np.mean(hits) == pytest.approx(0.99, abs=0.006)


def test_bootstrap_of_a_mean_agrees_with_the_normal_law() -> None:
    x = np.random.default_rng(1).normal(size=400)
    found = bootstrap(lambda w: w @ x / 400, 400, 0)
    half = 2.576 * x.std() / 20.0
    assert found.value == pytest.approx(x.mean())
    assert found.high - found.low == pytest.approx(2.0 * half, rel=0.06)


def test_rows_are_well_formed() -> None:
    assert len(BY_ID) == len(CLAIMS)
    for claim in CLAIMS:
        assert claim.says
        assert claim.source
        assert claim.definition
        assert bool(claim.quantities) == (claim.experiment is not None) == (not claim.needs)
        assert claim.experiment is None or claim.experiment in EXPERIMENTS
        for quantity in claim.quantities:
            assert list(quantity.rule.cuts) == sorted(quantity.rule.cuts)
            assert len(quantity.rule.parts) == len(quantity.rule.cuts) + 1
            assert "<svg" in interval_picture(quantity, measured(-1.0, 1.0))


def test_chosen() -> None:
    assert [c.id for c in chosen("et-latency")] == ["et-latency"]
    assert len(chosen(None)) == len(CLAIMS) > len(chosen("et")) > 5
    with pytest.raises(InputError, match="nothing-like-it"):
        chosen("nothing-like-it")


def test_exact_cases() -> None:
    from workbench.claims.experiments.counterexamples import expansion

    assert expansion(3.0) == pytest.approx(1.0, abs=0.02)  # |1 - 3| - 1
    assert expansion(1.5) == pytest.approx(-0.5, abs=0.02)


def test_every_seed_has_a_slice_of_the_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n")
    monkeypatch.setattr(factorial, "find_trace", lambda asked: trace)
    for quick in (True, False):
        setting = Setting(quick=quick, seed=0, directory=tmp_path)
        for seed in (0, 7, 100, 107, 12345):
            workload = factorial.scenario_of(setting, seed, "tight", 1.0, 1.0).workload
            assert workload.first_request + workload.num_requests <= factorial.SLICED_REQUESTS
