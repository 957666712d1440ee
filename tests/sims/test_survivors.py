"""Figures when few or none survive: one full object, refusals and timeouts as misses, nothing invented."""

import json

import pytest
from typer.testing import CliRunner

from workbench.cli.app import build_app


def simulate(tmp_path, rows, extra=""):
    trace = tmp_path / "t.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n" + "\n".join(",".join(map(str, r)) for r in rows) + "\n")
    plan = tmp_path / "s.toml"
    plan.write_text(f'[workload]\ntrace = "t.csv"\nnum_requests = {len(rows)}\n{extra}')
    done = CliRunner().invoke(
        build_app(["simulate"]), ["simulate", str(plan), "--out", str(tmp_path / "run"), "--json"]
    )
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout.splitlines()[-1] if done.stdout.startswith("simulate") else done.stdout)["figures"]


def test_with_nothing_completed_the_object_is_still_whole(tmp_path):
    figures = simulate(tmp_path, [(i, 200_000, 5) for i in range(100)])
    assert (figures["completed"], figures["refused"], figures["arrived"]) == (0, 100, 100)
    assert figures["ttft_p50_s"] is None
    assert figures["e2e_p99_s"] is None
    assert figures["goodput_frac"] == 0.0


def test_refusals_among_good_rows_are_misses(tmp_path):
    figures = simulate(tmp_path, [(i, 200_000 if i % 10 == 0 else 50, 5) for i in range(100)])
    assert figures["refused"] == 10
    assert figures["completed_frac"] == pytest.approx(0.9)
    assert figures["goodput_frac"] == pytest.approx(0.9)
    assert figures["e2e_p90_s"] > 0.0


def test_timeouts_are_misses_and_their_tokens_wasted(tmp_path):
    figures = simulate(tmp_path, [(i * 10, 50, 5 if i % 2 else 400) for i in range(20)], "[engine]\ntimeout_s = 1.0\n")
    assert figures["timed_out"] == 10
    assert figures["goodput_frac"] == pytest.approx(0.5)
    assert 0.5 < figures["wasted_tokens_frac"] < 1.0


def test_a_replica_that_never_served_counts_as_idle(tmp_path):
    extra = '[hardware]\nnum_replicas = 3\ndispatcher = "least-loaded"\n'
    figures = simulate(tmp_path, [(0, 50, 5), (30, 50, 5)], extra)
    assert figures["busy_least_frac"] == 0.0
    assert figures["busy_frac_replica2"] == 0.0
    assert figures["busy_most_frac"] > 0.0
