"""Sweeps: distinct keys, resumption after a kill, the same table from any workers, lost workers retried."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from workbench.errors import InputError
from workbench.scenario import parse_scenario
from workbench.search import add_seeds, capacity_search, mark_front, optuna_tasks, parse_until, sensitivity
from workbench.sweep import (
    DaskWorkers,
    LocalWorkers,
    Store,
    content_key,
    grid_points,
    parse_axis,
    random_points,
    results_table,
    run_tasks,
    tasks_of,
)

AXES = [parse_axis("workload.rate_per_s=5,20,80"), parse_axis("engine.max_running=8,64")]


def plan(**workload):
    return parse_scenario({"seeds": [0, 1], "workload": {"num_requests": 25, "max_tokens": 20, **workload}})


def test_axes_take_values_text_and_ranges():
    assert parse_axis("a.b=1,2.5,x,true") == ("a.b", [1, 2.5, "x", True])
    assert parse_axis("a=1..8") == ("a", [1, 8, ...])
    for bad in ("a", "a=", "=1"):
        with pytest.raises(InputError, match="axis reads"):
            parse_axis(bad)
    with pytest.raises(InputError, match="needs --random"):
        grid_points([parse_axis("a=1..8")])


def test_a_repeated_value_and_a_repeated_seed_count_once():
    points = grid_points([parse_axis("engine.max_running=8,8,16")])
    assert len(points) == 2
    assert len(tasks_of(plan(), points, [3, 3, 4])) == 4


def test_keys_are_distinct_and_depend_on_contents_only(tmp_path):
    scenario = plan()
    points = [tasks_of(scenario, grid_points(AXES), range(20))]
    keys = {task.key for tasks in points for task in tasks}
    assert len(keys) == 6 * 20
    one, two = tmp_path / "one.csv", tmp_path / "deep" / "two.csv"
    two.parent.mkdir()
    for path in (one, two):
        path.write_text("arrival_s,prompt_tokens,output_tokens\n0,5,5\n1,5,5\n")
    assert content_key(plan(trace=str(one)), 0) == content_key(plan(trace=str(two)), 0)
    two.write_text("arrival_s,prompt_tokens,output_tokens\n0,5,5\n1,5,6\n")
    assert content_key(plan(trace=str(one)), 0) != content_key(plan(trace=str(two)), 0)


def test_keys_ignore_the_order_of_toml_keys_and_the_folder_asked_from(tmp_path, monkeypatch):
    from workbench.scenario import load_scenario

    one, two = tmp_path / "one.toml", tmp_path / "deep" / "two.toml"
    two.parent.mkdir()
    one.write_text(
        "seeds = [0]\n[workload]\nnum_requests = 5\nmax_tokens = 9\n[engine]\nmax_running = 4\nblock_size = 8\n"
    )
    two.write_text("[engine]\nblock_size = 8\nmax_running = 4\n[workload]\nmax_tokens = 9\nnum_requests = 5\n")
    key = content_key(load_scenario(one), 0)
    monkeypatch.chdir(tmp_path / "deep")
    assert content_key(load_scenario(Path("two.toml")), 0) == key
    assert content_key(load_scenario(one), 1) != key


@pytest.mark.long
def test_fifty_thousand_point_seed_pairs_have_distinct_keys():
    points = grid_points([("workload.rate_per_s", [1.0 + 0.01 * i for i in range(500)])])
    keys = {task.key for task in tasks_of(plan(), points, range(100))}
    assert len(keys) == 50_000


def test_more_random_points_never_change_the_first_ones():
    axes = [parse_axis("workload.rate_per_s=1.0..9.0"), parse_axis("engine.max_running=1..64")]
    few, many = random_points(axes, 20, 7), random_points(axes, 100, 7)
    assert few == many[:20]
    rates = [p.changes["workload.rate_per_s"] for p in many]
    assert min(rates) >= 1.0
    assert max(rates) <= 9.0
    assert {type(p.changes["engine.max_running"]) for p in many} == {int}


def test_a_second_run_computes_nothing_and_gives_the_same_table(tmp_path):
    tasks, store = tasks_of(plan(), grid_points(AXES), [0, 1]), Store(tmp_path)
    first = run_tasks(tasks[:5], store, LocalWorkers(1))
    assert (first.done, first.computed, first.reused) == (5, 5, 0)
    second = run_tasks(tasks, store, LocalWorkers(1))
    assert (second.done, second.computed, second.reused) == (12, 7, 5)
    table = results_table(tasks, store)
    assert table.height == 12
    third = run_tasks(tasks, store, LocalWorkers(1))
    assert third.computed == 0
    assert results_table(tasks, store).equals(table)
    # Common random numbers: one seed has one set of lengths at every setting.
    assert table.filter(pl.col("seed") == 0)["requests"].n_unique() == 1


def test_a_torn_result_is_computed_again(tmp_path):
    tasks, store = tasks_of(plan(), grid_points(AXES[1:]), [0]), Store(tmp_path)
    run_tasks(tasks, store, LocalWorkers(1))
    store.path(tasks[0].key).write_text('{"requests": 25, ')
    assert run_tasks(tasks, store, LocalWorkers(1)).computed == 1


@pytest.mark.long
def test_a_worker_that_is_killed_is_replaced(tmp_path):
    tasks, store = tasks_of(plan(), grid_points(AXES), [0, 1]), Store(tmp_path)
    workers, killed = LocalWorkers(2), []

    def kill_one(share):
        if not killed and share >= 3 / 12:
            import psutil

            children = [c for c in psutil.Process().children() if "spawn" in " ".join(c.cmdline())]
            os.kill(children[0].pid, signal.SIGKILL)
            killed.append(children[0].pid)

    done = run_tasks(tasks, store, workers, kill_one)
    assert killed
    assert done.done == 12
    alone = Store(tmp_path / "alone")
    run_tasks(tasks, alone, LocalWorkers(1))
    assert results_table(tasks, alone).equals(results_table(tasks, store))


@pytest.mark.long
def test_a_sweep_that_is_killed_resumes(tmp_path):
    (tmp_path / "s.toml").write_text("seeds = [0, 1]\n[workload]\nnum_requests = 25\nmax_tokens = 20\n")
    command = [
        sys.executable, "-m", "workbench.cli.app", "sweep", str(tmp_path / "s.toml"), "--grid",
        "workload.rate_per_s=5,20,80", "--grid", "engine.max_running=8,64", "--out", str(tmp_path / "out"), "--json",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.time() + 120
    while len(list((tmp_path / "out" / "points").glob("*.json"))) < 5 and time.time() < deadline:
        time.sleep(0.02)
    process.kill()
    process.wait()
    kept = len(list((tmp_path / "out" / "points").glob("*.json")))
    answer = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    import json

    figures = json.loads(answer.stdout)["figures"]
    assert figures["done"] == 12
    assert figures["reused"] == kept
    assert pl.read_parquet(tmp_path / "out" / "sweep.parquet").height == 12


@pytest.mark.long
def test_a_dask_cluster_gives_the_same_table(tmp_path):
    from dask.distributed import LocalCluster

    tasks = tasks_of(plan(), grid_points(AXES), [0])
    alone, spread = Store(tmp_path / "a"), Store(tmp_path / "b")
    run_tasks(tasks, alone, LocalWorkers(1))
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        run_tasks(tasks, spread, DaskWorkers(cluster.scheduler_address))
    assert results_table(tasks, alone).equals(results_table(tasks, spread))


def test_an_unreachable_cluster_is_one_line(monkeypatch):
    import dask.distributed

    def refuse(*args, **kwargs):
        raise OSError("Timed out trying to connect")

    monkeypatch.setattr(dask.distributed, "Client", refuse)
    with pytest.raises(InputError, match="no Dask scheduler at tcp://nowhere:1"):
        DaskWorkers("tcp://nowhere:1")


def test_optuna_improves_and_resumes(tmp_path):
    axes = [parse_axis("engine.max_running=1..64")]
    scenario, store = plan(rate_per_s=80.0), Store(tmp_path)
    told = []
    tasks, done = optuna_tasks(scenario, axes, 8, "output_tokens_per_s", store, LocalWorkers(1), told.append)
    assert told[-1] == 1.0
    again, resumed = optuna_tasks(scenario, axes, 8, "output_tokens_per_s", store, LocalWorkers(1), told.append)
    assert [t.key for t in again] == [t.key for t in tasks]
    assert resumed.computed == 0
    assert done.computed >= 8


def test_seeds_are_added_until_the_interval_is_narrow(tmp_path):
    scenario, store = plan(rate_per_s=80.0), Store(tmp_path)
    tasks = tasks_of(scenario, grid_points([parse_axis("engine.max_running=8")]), [0, 1])
    done = run_tasks(tasks, store, LocalWorkers(1))
    more, total = add_seeds(scenario, tasks, "output_tokens_per_s", 0.15, store, LocalWorkers(1), done)
    values = np.array([store.get(t.key)["output_tokens_per_s"] for t in more])
    assert len(more) > 2
    assert total.done == len(more) == len({t.seed for t in more})
    assert len(more) == 32 or 1.96 * values.std(ddof=1) / np.sqrt(len(more)) <= 0.15 * values.mean()
    with pytest.raises(InputError, match="--until"):
        parse_until("ttft_p99_s=2")


def test_capacity_is_where_the_slo_is_lost(tmp_path):
    store, lines = Store(tmp_path), []
    scenario = plan(num_requests=60, arrivals="poisson", generator="azure-conversation")
    found = capacity_search(scenario, store, LocalWorkers(1), 0.9, lines.append)
    assert found.met
    assert found.goodput_frac >= 0.9
    assert found.rate_per_s > 0.5
    assert len(lines) > 5


def test_front_and_sensitivity():
    table = pl.DataFrame({
        "point": [0, 1, 2], "a": [1, 2, 3], "b": [0, 0, 0], "ttft_p99_s": [1.0, 2.0, 3.0],
        "goodput_per_s": [5.0, 9.0, 8.0],
    })  # fmt: skip
    assert mark_front(table, "ttft_p99_s,goodput_per_s")["pareto"].to_list() == [True, True, False]
    with pytest.raises(InputError, match="did you mean"):
        mark_front(table, "ttft_p98_s,goodput_per_s")
    grid = pl.DataFrame(
        {"point": range(4), "a": [0, 0, 1, 1], "b": [0, 1, 0, 1], "goodput_per_s": [1.0, 1.1, 3.0, 3.1]}
    )
    lines = sensitivity(grid, ["a", "b"], "goodput_per_s")
    assert lines[0].startswith("a alone explains 100%")
    assert lines[1].startswith("b alone explains 0%")
