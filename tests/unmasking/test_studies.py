"""Each study end to end at a small size, its statements as they came; the full sizes are `workbench unmask --study NAME`."""

import pytest

from workbench.errors import InputError
from workbench.unmasking.studies import STUDIES, run_study


def quiet(share: float) -> None:
    assert 0.0 <= share <= 1.0 + 1e-9


def test_pairs_small(monkeypatch):
    monkeypatch.setattr("workbench.unmasking.studies.pairs.LENGTHS", {256: 300, 1024: 60})
    study = run_study("pairs", repeats=None, seed=1, tell=quiet)
    assert study.ok, study.statements
    assert study.figures["kl_ordered_1024_nats"] == pytest.approx(4.27)


def test_growth_small(monkeypatch):
    from workbench.unmasking.studies import growth

    monkeypatch.setattr(growth, "LENGTHS", (128, 512))
    monkeypatch.setattr(growth, "FAMILIES", {"mixture": growth.FAMILIES["mixture"]})
    study = run_study("growth", repeats=8, seed=0, tell=quiet)
    assert study.figures["power_mixture_fixed"] <= 0.1
    assert study.figures["power_mixture_proportional"] >= 0.9


def test_an_unknown_study_offers_the_nearest():
    with pytest.raises(InputError, match="did you mean growth"):
        run_study("groth", repeats=2, seed=0, tell=quiet)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(set(STUDIES) - {"speed", "proteins"}))
def test_every_study_in_full_bears_out_what_it_states(name):
    study = run_study(name, repeats=None, seed=0, tell=quiet)
    assert study.ok, [s.text for s in study.statements if not s.holds]
