"""A validation study is read into arms: roles, loads, settings; what is wrong with one is said in one line."""

from pathlib import Path

import polars as pl
import pytest

from workbench.errors import InputError
from workbench.validation_study import capacity_requests_per_s, capacity_task, read_study, study_tasks

STUDY = Path(__file__).resolve().parents[1] / "workbench" / "scenarios" / "validation.toml"


def test_the_study_that_comes_with_the_project(tmp_path):
    tasks = study_tasks(read_study(STUDY), tmp_path, 8.0)
    roles = [task.extra.get("role") for task in tasks]
    assert roles == sorted(roles, key=lambda role: {"record": 0, "calibrate": 1, None: 2}[role])
    ranked = [t for t in tasks if t.extra.get("role") is None and t.extra["load"] == "overload"]
    settings = {t.extra["setting"] for t in ranked}
    assert len(settings) >= 12
    assert all(sum(t.extra["setting"] == s for t in ranked) >= 2 for s in settings), "intervals need seeds"
    fitted = {t.seed for t in tasks if t.extra.get("role") == "calibrate"}
    assert not fitted & {t.seed for t in ranked}
    assert len({t.directory for t in tasks}) == len(tasks)
    rates = {t.extra["load"]: t.scenario.workload.rate_per_s for t in tasks if "load" in t.extra}
    assert rates == {"idle": 2.0, "busy": 6.0, "overload": 15.2}, "shares of the capacity"
    by_seed = [t.seed for t in ranked]
    assert by_seed == sorted(by_seed), "settings of one seed follow each other"


def test_capacity_is_what_was_served_over_the_time_it_took(tmp_path):
    task = capacity_task(read_study(STUDY), tmp_path)
    assert not task.scenario.controllers
    task.directory.mkdir(parents=True)
    pl.DataFrame({"finished_s": [1.0, 4.0, None, 2.5]}).write_parquet(task.directory / "requests.parquet")
    assert capacity_requests_per_s(task) == 3 / 4.0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[loads]", "[leads]", "did you mean loads"),
        ('load = "overload"', 'load = "overlode"', "did you mean overload"),
        ('settings = ["fcfs", "mlfq"', 'settings = ["fcfs", "mlfg"', "did you mean mlfq"),
        ("[ranked]", "[ranked", "not valid TOML"),
    ],
)
def test_a_broken_study_is_one_line(tmp_path, old, new, message):
    text = STUDY.read_text().replace("validation_prompts.jsonl", str(STUDY.with_name("validation_prompts.jsonl")))
    path = tmp_path / "study.toml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InputError, match=message):
        read_study(path)
