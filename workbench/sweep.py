"""Many simulated scenarios from one: points, their content keys, a store that can be resumed, workers that may die.

    grid | random | optuna -> points -> (content key, seed) -> store: one file a result -> one Parquet table

A point is a set of changes to scenario keys; with a seed it has a content key, the SHA-256 of everything that decides its
result: the resolved scenario (order of keys and place of files do not matter, contents of files do), the seed and the
version. A result is written under its key when it is done, so that a killed sweep loses only what was running, and nothing is
computed twice. Seeds are the scenario's own, so all points share their random numbers.
"""

import hashlib
import itertools
import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl

from kernels.philox import uniform
from workbench.errors import InputError
from workbench.record import write_atomically
from workbench.scenario import Scenario
from workbench.strict_json import strict_json

RETRIES = 3  # of a point whose worker died
STREAM = 101  # Philox stream of random points, apart from those of `sims.streams`
FORMAT = 1


@dataclass(frozen=True)
class Point:
    """One setting: its place in the table, and the dotted scenario keys it changes."""

    index: int
    changes: Mapping[str, Any]


@dataclass(frozen=True)
class Task:
    """One simulation: a point with a seed, resolved. `key` names its result in the store."""

    point: Point
    seed: int
    scenario: Mapping[str, Any]
    key: str


def parse_axis(text: str) -> tuple[str, list[Any]]:
    """`key=a,b,c` with TOML values (bare words are text), or `key=low..high` for random and Optuna search."""
    key, equals, values = text.partition("=")
    if not equals or not key.strip() or not values.strip():
        raise InputError(f"an axis reads key=a,b,c or key=low..high, got {text!r}")
    if ".." in values:
        low, _, high = values.partition("..")
        return key.strip(), [_value(low), _value(high), ...]
    return key.strip(), [_value(v) for v in values.split(",")]


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"v = {text.strip()}")["v"]
    except tomllib.TOMLDecodeError:
        return text.strip()


def grid_points(axes: Sequence[tuple[str, list[Any]]]) -> list[Point]:
    """Every combination, the last axis fastest; a value given twice counts once."""
    for key, values in axes:
        if values[-1] is ...:
            raise InputError(f"axis {key} is a range; a grid needs values, a range needs --random or --optuna")
    unique = [(key, list(dict.fromkeys(values))) for key, values in axes]
    combinations = itertools.product(*(values for _, values in unique))
    return [Point(i, dict(zip((k for k, _ in unique), c, strict=True))) for i, c in enumerate(combinations)]


def random_points(axes: Sequence[tuple[str, list[Any]]], count: int, seed: int) -> list[Point]:
    """`count` draws, each axis evenly from its values or its range. More draws never change the first ones."""
    points = []
    for i in range(count):
        u = uniform(seed, STREAM, i, 0, np.arange(len(axes)))
        points.append(Point(i, {key: at_share(values, float(u[j])) for j, (key, values) in enumerate(axes)}))
    return points


def at_share(values: list[Any], share: float) -> Any:
    """The value at a share in (0, 1) of an axis; a range of whole numbers gives whole numbers."""
    if values[-1] is not ...:
        return values[int(share * len(values))]
    low, high = values[0], values[1]
    if isinstance(low, int) and isinstance(high, int):
        return low + int(share * (high - low + 1))
    return low + share * (high - low)


def resolve(scenario: Scenario, changes: Mapping[str, Any]) -> Scenario:
    """The scenario with a point's keys set, at summary level. Raises `InputError` naming a key that does not exist."""
    data = {key.replace(".", "__"): value for key, value in changes.items()}
    return scenario.with_changes(level="summary", **data)


def content_key(scenario: Scenario, seed: int) -> str:
    data = scenario.model_dump(mode="json")
    for name in ("name", "seeds", "level", "window_steps"):
        data.pop(name)
    for section, key in (("workload", "trace"), ("workload", "prompts"), ("hardware", "calibration")):
        if data[section][key] is not None:
            data[section][key] = hashlib.sha256(Path(data[section][key]).read_bytes()).hexdigest()
    body = json.dumps({"format": FORMAT, "scenario": data, "seed": seed}, sort_keys=True)
    return hashlib.sha256(body.encode()).hexdigest()


def tasks_of(scenario: Scenario, points: Iterable[Point], seeds: Sequence[int]) -> list[Task]:
    """A task for every point and seed; each distinct seed once."""
    tasks = []
    for point in points:
        resolved = resolve(scenario, point.changes)
        body = resolved.model_dump(mode="json")
        tasks += [Task(point, s, body, content_key(resolved, s)) for s in dict.fromkeys(seeds)]
    return tasks


def simulate_task(scenario: Mapping[str, Any], seed: int) -> dict[str, float | int | None]:
    """Figures of one simulation; the same on any worker."""
    from sims.plant import build_plant
    from workbench.catalog import build_controllers
    from workbench.loop import close_loop
    from workbench.metrics import METRICS, Undefined, records_of
    from workbench.record import request_table
    from workbench.scenario import parse_scenario

    plan = parse_scenario(dict(scenario))
    plant = build_plant(plan, seed, frozenset(plan.controllers), 0)
    context = {"vocab_size": plant.executor.vocab_size, "delay_steps": plant.config.delay_steps}
    close_loop(plant, build_controllers(plan.controllers, context), _NoRecord())
    requests = pl.from_arrow(request_table(plant, {}))
    assert isinstance(requests, pl.DataFrame)
    steps = pl.DataFrame(plant.telemetry.step_table())
    records = records_of(
        requests,
        steps,
        num_replicas=plan.hardware.num_replicas,
        step_cost_max_tokens=plant.notes["step_cost_max_tokens"],
    )
    values = {metric.name: metric.compute(records) for metric in METRICS}
    return {
        "requests": len(plant.requests),
        "steps": plant.step_index,
        **{name: None if isinstance(v, Undefined) else v for name, v in values.items()},
    }


class _NoRecord:
    def decision(self, observation: object, action: object, applied: object) -> None:
        pass


class Store:
    """Results by content key, a file each, written whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot write {folder}: {error.strerror or error}") from None

    def path(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def get(self, key: str) -> dict[str, Any] | None:
        try:
            return json.loads(self.path(key).read_text())
        except (OSError, ValueError):
            return None

    def put(self, key: str, figures: Mapping[str, Any]) -> None:
        write_atomically(self.path(key), strict_json(dict(figures)).encode())


class Workers(Protocol):
    """The one executor interface: gives back (task, figures) as they are done, in any order."""

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, dict[str, Any]]]: ...


class LocalWorkers:
    """`jobs` processes on this machine (1: in this process). A worker that dies is replaced and its task tried again."""

    def __init__(self, jobs: int) -> None:
        if jobs < 1:
            raise InputError(f"jobs must be at least 1, got {jobs}")
        self.jobs = jobs

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, dict[str, Any]]]:
        if self.jobs == 1:
            for task in tasks:
                yield task, simulate_task(task.scenario, task.seed)
            return
        left = {task.key: task for task in tasks}
        tries = dict.fromkeys(left, 0)
        while left:
            with ProcessPoolExecutor(self.jobs, mp_context=get_context("spawn")) as pool:
                futures = {pool.submit(simulate_task, t.scenario, t.seed): t for t in left.values()}
                pending = set(futures)
                try:
                    while pending:
                        done, pending = wait(pending, return_when=FIRST_COMPLETED)
                        for future in done:
                            task = futures[future]
                            figures = future.result()
                            del left[task.key]
                            yield task, figures
                except BrokenProcessPool:
                    for key in left:
                        tries[key] += 1
                    if max(tries[key] for key in left) > RETRIES:
                        raise InputError(f"workers died {RETRIES + 1} times; {len(left)} points are left") from None
                except BaseException:
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise


class DaskWorkers:
    """A Dask cluster; a task whose worker dies is tried again by the scheduler."""

    def __init__(self, address: str) -> None:
        from dask.distributed import Client

        try:
            self.client = Client(address, timeout="10s", set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            raise InputError(f"no Dask scheduler at {address}: {str(error) or type(error).__name__}") from None

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, dict[str, Any]]]:
        from dask.distributed import as_completed

        submit = self.client.submit
        futures = {
            submit(simulate_task, t.scenario, t.seed, key=f"sweep-{t.key}", retries=RETRIES, pure=True): t
            for t in tasks
        }
        for future in as_completed(list(futures), loop=self.client.loop):
            yield futures[future], future.result()


@dataclass(frozen=True)
class Done:
    """Counts of one call: `done` distinct results at hand, of which `computed` now and `reused` from before."""

    done: int
    computed: int
    reused: int


def run_tasks(
    tasks: Sequence[Task], store: Store, workers: Workers, on_progress: Callable[[float], None] = lambda share: None
) -> Done:
    """Bring every task's result into the store; a task that occurs twice is computed once."""
    distinct = {task.key: task for task in tasks}
    missing = [task for task in distinct.values() if store.get(task.key) is None]
    reused = len(distinct) - len(missing)
    computed = 0
    for task, figures in workers.run(missing):
        store.put(task.key, figures)
        computed += 1
        on_progress((reused + computed) / len(distinct))
    return Done(len(distinct), computed, reused)


def results_table(tasks: Sequence[Task], store: Store) -> pl.DataFrame:
    """A row for every task: its point, its keys, its seed, its figures. Same bytes whoever computed them."""
    rows = []
    for task in tasks:
        figures = store.get(task.key)
        if figures is not None:
            rows.append(
                {"point": task.point.index, "seed": task.seed, **task.point.changes, **figures, "key": task.key}
            )
    return pl.DataFrame(rows, infer_schema_length=None)
