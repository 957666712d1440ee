"""The live arms a validation rests on: some to calibrate on, and settings x loads x seeds that nobody has fitted.

One TOML file (`workbench/scenarios/validation.toml`) says which. Loads are shares of the machine's capacity, so that a study
puts every machine under the same pressure: capacity is the rate at which the study's requests are served, first come first
served, when all arrive at once. Arms go to

    RUN/capacity/seed0                     role "capacity": tells the capacity, is neither fitted nor judged
    RUN/record/T<x>/seed0                  role "record": entropies and attention masses are fitted to them
    RUN/calibrate/<load>/<setting>/seed<k> role "calibrate": step times are fitted to them
    RUN/judged/<load>/<setting>/seed<k>    compared with their simulation

A finished arm is not run again, so the same command resumes. Settings of one seed follow each other, so that a spell of
a slow machine meets all settings alike.
"""

import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from workbench.arm_task import ArmTask
from workbench.errors import InputError, unknown_name
from workbench.scenario import Scenario, parse_scenario

SECTIONS = ("name", "scenario", "loads", "record", "calibrate", "ranked", "regimes", "settings")
CAPACITY, RECORD, CALIBRATE = "capacity", "record", "calibrate"  # roles; an arm without one is judged
Study = Mapping[str, Any]


def read_study(path: Path) -> Study:
    """The study as written, names and sections checked. Raises `InputError`."""
    try:
        study = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"study {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise InputError(f"study {path}: not valid TOML: {error}") from None
    for key in study:
        if key not in SECTIONS:
            raise unknown_name("section in a validation study", key, SECTIONS)
    missing = [name for name in SECTIONS if name not in study and name != "name"]
    if missing:
        raise InputError(f"study {path}: needs {', '.join(missing)}; see workbench/scenarios/validation.toml")
    prompts = study["scenario"].get("workload", {}).get("prompts")
    if prompts is not None:
        study["scenario"]["workload"]["prompts"] = str((path.parent / prompts).resolve())
    study_tasks(study, path.parent, 1.0)  # every name in it is known before anything runs
    return study


def capacity_task(study: Study, run: Path) -> ArmTask:
    """All requests at once, no controller."""
    scenario = parse_scenario({"name": "capacity", **study["scenario"]}).with_changes(workload__rate_per_s=1e6)
    return ArmTask(scenario, 0, run / CAPACITY / "seed0", None, {"role": CAPACITY})


def capacity_requests_per_s(task: ArmTask) -> float:
    """Requests served a second by an arm that has run."""
    served = pl.read_parquet(task.directory / "requests.parquet")["finished_s"].drop_nulls().drop_nans()
    return len(served) / float(served.max())  # type: ignore[arg-type]


def study_tasks(study: Study, run: Path, capacity_requests_per_s: float) -> list[ArmTask]:
    """Every other arm of the study, in the order in which they are run. Raises `InputError`."""
    rates = {name: share * capacity_requests_per_s for name, share in study["loads"].items()}
    study = {**study, "loads": rates}
    return [*_recorded(study, run), *_calibrated(study, run), *_judged(study, run)]


def warm_up(tasks: Sequence[ArmTask]) -> None:
    """A few requests of the first arm that is due, thrown away: the first steps of a process load and compile."""
    due = [task for task in tasks if not task.finished]
    if due:
        with tempfile.TemporaryDirectory(prefix="warm-up-") as folder:
            short = due[0].scenario.with_changes(workload__num_requests=8, workload__max_tokens=8)
            replace(due[0], scenario=short, directory=Path(folder)).run()


def _recorded(study: Study, run: Path) -> list[ArmTask]:
    tasks = []
    for t in study[RECORD]["temperatures"]:
        base = parse_scenario({"name": f"record at T = {t:g}", **study["scenario"]})
        scenario = base.with_changes(
            level="full", workload__num_requests=study[RECORD]["num_requests"], engine__temperature=float(t),
            controllers={"keep": {"kind": "keep-all"}},
        )  # fmt: skip
        tasks.append(ArmTask(scenario, 0, run / RECORD / f"T{t:g}" / "seed0", None, {"role": RECORD}))
    return tasks


def _calibrated(study: Study, run: Path) -> list[ArmTask]:
    part = study[CALIBRATE]
    return [
        _arm(study, run / CALIBRATE, load, setting, seed, {"role": CALIBRATE})
        for seed in part["seeds"]
        for load in part["loads"]
        for setting in part["settings"]
    ]


def _judged(study: Study, run: Path) -> list[ArmTask]:
    ranked, regimes = study["ranked"], study["regimes"]
    cases = [(seed, ranked["load"], setting) for seed in ranked["seeds"] for setting in study["settings"]]
    cases += [
        (s, load, setting) for s in regimes["seeds"] for load in regimes["loads"] for setting in regimes["settings"]
    ]
    return [_arm(study, run / "judged", load, setting, seed, {}) for seed, load, setting in cases]


def _arm(study: Study, folder: Path, load: str, setting: str, seed: int, extra: dict[str, Any]) -> ArmTask:
    for name, table, what in ((load, study["loads"], "load"), (setting, study["settings"], "setting")):
        if name not in table:
            raise unknown_name(what, name, table)
    scenario: Scenario = parse_scenario({"name": setting, **study["scenario"]}).with_changes(
        workload__rate_per_s=float(study["loads"][load]), controllers=study["settings"][setting]
    )
    extra = {**extra, "load": load, "setting": setting}
    return ArmTask(scenario, seed, folder / load / setting / f"seed{seed}", None, extra)
