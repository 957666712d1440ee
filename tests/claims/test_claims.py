"""Verdicts: the whole interval on one side, falsified data changes the verdict, every row of the ledger is well formed."""

from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.claims import simulated
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
from workbench.claims.experiments import EXPERIMENTS, experiment, factorial_azure, factorial_mooncake
from workbench.claims.not_at_hand import NotAtHand
from workbench.claims.picture import interval_picture
from workbench.claims.registry import CLAIMS, chosen
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
        id="x",
        source="",
        says="",
        definition="",
        experiment="factorial_azure",
        quantities=(Quantity("a", "a", above(0)),),
    )
    assert decide(claim, {}) is Verdict.INCONCLUSIVE


def test_rows_are_well_formed() -> None:
    assert len(BY_ID) == len(CLAIMS)
    for claim in CLAIMS:
        assert claim.says
        assert claim.source
        assert claim.definition
        assert bool(claim.quantities) == (claim.experiment is not None) == (not claim.needs)
        assert claim.experiment is None or claim.experiment in EXPERIMENTS
        # Sentences and marks are the page's.
        assert not any(text.endswith(".") for text in (claim.says, claim.definition, claim.needs, claim.caution))
        for quantity in claim.quantities:
            assert list(quantity.rule.cuts) == sorted(quantity.rule.cuts)
            assert len(quantity.rule.parts) == len(quantity.rule.cuts) + 1
            assert "<svg" in interval_picture(quantity, measured(-1.0, 1.0))


def test_every_experiment_can_be_called_and_is_used() -> None:
    used = {claim.experiment for claim in CLAIMS}
    for name in EXPERIMENTS:
        assert callable(experiment(name))
        assert name in used


def test_chosen() -> None:
    assert [c.id for c in chosen("et-latency")] == ["et-latency"]
    assert len(chosen(None)) == len(CLAIMS) > len(chosen("et")) > 5
    with pytest.raises(InputError, match="nothing-like-it"):
        chosen("nothing-like-it")


def test_exact_cases() -> None:
    from workbench.claims.experiments.counterexamples import expansion

    assert expansion(3.0) == pytest.approx(1.0, abs=0.02)  # |1 - 3| - 1
    assert expansion(1.5) == pytest.approx(-0.5, abs=0.02)


@pytest.mark.parametrize("module", [factorial_azure, factorial_mooncake])
def test_every_seed_has_a_slice_of_the_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType
) -> None:
    for name in ("find_trace", "find_data"):
        monkeypatch.setattr(module, name, lambda asked: tmp_path / "trace.csv", raising=False)
    case = module.case()
    asked: list[tuple[int, int]] = []

    def rows(trace: Path, first: int, count: int, folder: Path) -> Path:
        asked.append((first, count))
        trace.touch()
        return trace

    monkeypatch.setattr(simulated, "trace_rows", rows)
    for quick in (True, False):
        for seed in (0, 7, 100, 107, 12345):
            case.scenario(Setting(quick=quick, seed=0, directory=tmp_path), seed, "tight", 1.0, 1.0)
    assert all(first >= 0 and first + count <= case.num_rows for first, count in asked)


def test_a_missing_trace_is_not_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factorial_mooncake, "find_data", lambda path: None)
    with pytest.raises(NotAtHand, match="Mooncake"):
        factorial_mooncake.case()
