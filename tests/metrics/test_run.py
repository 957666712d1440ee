"""From a run directory to figures: planted effects are found, torn arms are left out and named."""

import json
from pathlib import Path

import polars as pl
import pytest

from tests.metrics.fake_run import fake_tables, write_leaf, write_run
from workbench.errors import InputError
from workbench.metrics import ARM_CODES, NAMES, figures_object, run_figures, summarise
from workbench.strict_json import strict_json


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("toy") / "run")


def test_planted_effects(run: Path) -> None:
    found = run_figures(run)
    assert [cell.cell.key for cell in found.cells] == [
        "sim-load0.5-ample",
        "sim-load0.5-tight",
        "sim-load1.1-ample",
        "sim-load1.1-tight",
        "live",
    ]
    ample, tight = found.cells[2], found.cells[3]
    assert tuple(tight.arms) == ARM_CODES
    bytes_read = tight.change("P", "kv_read_frac")
    assert bytes_read is not None
    assert bytes_read.relative.value == pytest.approx(-0.4)
    # With forty slots nothing waits: the order cannot matter, and the figures are equal to the last bit.
    assert ample.value("-", "waiting_share") == 0.0
    idle, busy = ample.change("S", "e2e_mean_s"), tight.change("S", "e2e_mean_s")
    assert idle is not None
    assert idle.identical
    assert busy is not None
    assert busy.relative.value is not None
    assert busy.relative.value < -0.05
    assert set(tight.effects) == {"S", "T", "P", "ST", "SP", "TP", "STP"}
    assert tight.arms["-"].figures["ttft_p50_s"].method == "t, 3 seeds"
    assert found.cells[4].arms["-"].figures["ttft_p50_s"].method == "batch means, 12 batches"
    assert found.cells[4].arms["-"].figures["itl_p50_s"].value is not None


def test_json_is_strict_and_repeatable(tmp_path: Path) -> None:
    for code in ("-", "P"):
        write_leaf(tmp_path / code, fake_tables(code, 0), code=code, seed=0, plant="sim")
    first = strict_json(figures_object(run_figures(tmp_path)))
    assert first == strict_json(figures_object(run_figures(tmp_path)))

    def refuse(text: str) -> float:
        raise AssertionError(text)

    assert len(json.loads(first, parse_constant=refuse)["cells"]) == 1


def test_torn_arms_are_left_out_and_named(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for code in ("-", "S", "T"):
        write_leaf(run / code / "seed0", fake_tables(code, 0), code=code, seed=0, plant="sim")
    (run / "S" / "seed0" / "steps.parquet").write_bytes(b"PAR1 torn")
    (run / "T" / "seed0" / "requests.parquet").unlink()
    (run / "half").mkdir()
    (run / "half" / "manifest.json").write_text('{"arm": {"sched', encoding="utf-8")
    found = run_figures(run)
    assert list(found.cells[0].arms) == ["-"]
    assert len(found.skipped) == 3
    assert found.cells[0].changes == {}


def test_nothing_to_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no finished arm"):
        run_figures(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        run_figures(tmp_path / "nowhere")


def test_two_seeds_fall_back_on_batches(tmp_path: Path) -> None:
    for code in ("-", "P"):
        for seed in (0, 1):
            write_leaf(tmp_path / code / f"seed{seed}", fake_tables(code, seed), code=code, seed=seed, plant="sim")
    figure = run_figures(tmp_path).cells[0].arms["P"].figures["e2e_mean_s"]
    assert figure.method == "batch means, 24 batches"


def test_summary_is_every_figure_and_count_by_name(tmp_path: Path) -> None:
    tables = fake_tables("-", 0)
    tables["requests"] = tables["requests"].with_columns(status=pl.lit("refused"), finished_s=pl.lit(None, pl.Float64))
    write_leaf(tmp_path / "seed0", tables, code="-", seed=0)
    manifest = json.loads((tmp_path / "seed0" / "manifest.json").read_text())
    figures = summarise([manifest], [tmp_path / "seed0"])
    assert (figures["completed"], figures["refused"], figures["ttft_p99_s"]) == (0, 48, None)
    assert set(NAMES) < set(figures)


def test_target_and_slo_come_from_the_manifest(tmp_path: Path) -> None:
    scenario = {"name": "x", "engine": {"entropy_target_nats": 2.5}}
    write_leaf(tmp_path / "a", fake_tables("-", 0), code="-", seed=0, scenario=scenario, slo={"ttft_s": 0.5})
    text = (tmp_path / "a" / "manifest.json").read_text()
    (tmp_path / "a" / "manifest.json").write_text(text.replace('"entropy_target_nats": 1.5, ', ""))
    cell = run_figures(tmp_path).cells[0]
    assert cell.target_entropy_nats == 2.5
    assert (cell.slo.ttft_s, cell.slo.tpot_s) == (0.5, 0.1)
