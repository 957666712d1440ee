"""The study of real models at its smallest; interrupted, it goes on from what it has."""

from dataclasses import replace
from importlib.util import find_spec

import pytest

from workbench.errors import InputError
from workbench.unmasking.studies import proteins, run_study

pytestmark = pytest.mark.skipif(find_spec("sapiens") is None, reason="the package sapiens is not installed")
PLAN = proteins.Plan(
    "sapiens-light",
    3,
    2,
    shares=(0.5,),
    settings=("entropy-sum:10", "entropy-sum:inf", "eb-sampler:10", "eb-sampler:inf", "confidence-threshold:0.3",
              "confidence-threshold:0.01", "uniform:4"),
)  # fmt: skip


def quiet(share: float) -> None:
    assert 0.0 <= share <= 1.0 + 1e-9


def test_an_interrupted_study_goes_on_and_ends_as_an_undisturbed_one(tmp_path, monkeypatch):
    monkeypatch.setattr(proteins, "PLANS", (PLAN,))
    undisturbed = run_study("proteins", repeats=None, seed=3, tell=quiet)
    one, computed = proteins._one, []

    def dies_at_the_third(bench, plan, name, share):
        if len(computed) == 2:
            raise KeyboardInterrupt
        computed.append(name)
        return one(bench, plan, name, share)

    monkeypatch.setattr(proteins, "_one", dies_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        run_study("proteins", repeats=None, seed=3, tell=quiet, directory=tmp_path)
    monkeypatch.setattr(proteins, "_one", lambda *words: (computed.append(words[2]), one(*words))[1])
    resumed = run_study("proteins", repeats=None, seed=3, tell=quiet, directory=tmp_path)
    assert computed == ["trastuzumab", "adalimumab", "bevacizumab"]
    assert resumed.rows == undisturbed.rows
    assert resumed.figures == undisturbed.figures
    again = run_study("proteins", repeats=2, seed=3, tell=quiet, directory=tmp_path)
    assert len(computed) == 3, "fewer sequences need nothing new"
    assert {row[-1] for row in again.rows} == {2}
    run_study("proteins", repeats=1, seed=4, tell=quiet, directory=tmp_path)
    assert len(computed) == 4, "another seed takes none of these rows"


def test_another_plan_has_a_table_of_its_own_and_a_damaged_one_is_one_line(tmp_path):
    path = proteins.table_path(tmp_path, PLAN)
    assert proteins.table_path(tmp_path, replace(PLAN, sequences=1)) == path
    for other in (replace(PLAN, seed=1), replace(PLAN, scored=3), replace(PLAN, settings=PLAN.settings[:2])):
        assert proteins.table_path(tmp_path, other) != path
    path.write_bytes(b"torn")
    with pytest.raises(InputError, match="damaged or unreadable") as caught:
        proteins.decoded(PLAN, quiet, path)
    assert "\n" not in str(caught.value)
