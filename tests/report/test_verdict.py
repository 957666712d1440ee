"""The verdict says what was planted, gives the reason where nothing happens, and never contradicts the heat map."""

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.metrics.fake_run import fake_tables, write_leaf, write_run
from workbench.metrics import RunFigures, run_figures
from workbench.report.findings import OUTCOMES, findings
from workbench.report.heat_map import heat_maps
from workbench.report.numbers import THIN
from workbench.report.verdict import Verdict, verdict_of


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> RunFigures:
    return run_figures(write_run(tmp_path_factory.mktemp("toy") / "run", num_requests=80))


@pytest.fixture(scope="module")
def verdicts(found: RunFigures) -> dict[str, Verdict]:
    return {v.code: v for v in verdict_of(found).verdicts}


def test_pruning_cuts_bytes_and_costs_quality(verdicts: dict[str, Verdict]) -> None:
    for part in verdicts["P"].parts:
        assert part.mark == "trade"
        assert f"KV bytes read by −40{THIN}%" in part.summary
        details = dict(part.details)
        assert any(line.startswith(f"NLL of the text +1.1{THIN}%") for line in details["worse"])
        assert any(line.startswith("mean TPOT −5") for line in details["better"])


def test_scheduler_has_its_reason_where_nothing_queues(verdicts: dict[str, Verdict]) -> None:
    simulated = verdicts["S"].parts[0]
    assert any(reason.startswith("In 2 of 4 cells nothing ever queued") for reason in simulated.reasons)
    assert "at load 1.1 with tight memory" in simulated.summary


def test_temperature_moves_its_target_and_no_outcome(verdicts: dict[str, Verdict]) -> None:
    verdict = verdicts["T"]
    assert verdict.headline == "The temperature loop changes no outcome, in simulation and live"
    for part in verdict.parts:
        assert part.mark == "nothing"
        assert f"the tracking error |H − H*| by −60{THIN}%" in part.summary
        assert part.reasons[0].startswith("Latency is identical to the last digit")


def test_verdict_and_heat_map_agree(found: RunFigures) -> None:
    maps = {m.metric.name: m for m in heat_maps(found)}
    columns = sorted(
        found.cells, key=lambda c: (c.cell.plant != "sim", c.cell.plant, c.cell.memory or "", c.cell.order)
    )
    for metric in set(OUTCOMES) & set(maps) - {"nll_nats"}:
        rows = dict(maps[metric].rows)
        for code, label in (("S", "scheduler"), ("P", "pruning")):
            for finding in findings(found.cells, code, [metric]):
                css = rows[label][columns.index(finding.cell)].css
                if finding.state in ("better", "worse"):
                    assert css == finding.state
                elif finding.state == "same":
                    assert css == "same"
                elif css in ("better", "worse"):
                    assert finding.size < 0.01  # coloured faintly, but too small to be called a change


def test_noise_alone_changes_nothing(tmp_path: Path) -> None:
    """Five per cent of noise on every latency, no effect: at most a chance finding among three arms."""
    rng = np.random.default_rng(5)
    for code in ("-", "S", "T", "P"):
        for seed in range(6):
            tables = fake_tables("-", seed, num_requests=60, gap_s=0.3)
            stretch = 1.0 + 0.05 * rng.standard_normal()
            tables["requests"] = tables["requests"].with_columns(
                finished_s=pl.col("first_token_s") + (pl.col("finished_s") - pl.col("first_token_s")) * abs(stretch)
            )
            write_leaf(tmp_path / code / f"seed{seed}", tables, code=code, seed=seed, plant="sim")
    marks = [part.mark for verdict in verdict_of(run_figures(tmp_path)).verdicts for part in verdict.parts]
    assert marks.count("nothing") >= 2


def test_without_a_baseline_there_is_no_verdict(tmp_path: Path) -> None:
    write_leaf(tmp_path / "a", fake_tables("S", 0), code="S", seed=0, plant="sim")
    page = verdict_of(run_figures(tmp_path))
    assert page.verdicts == ()
    assert "no baseline to compare with" in page.remarks[0]


def test_too_few_requests_is_said(tmp_path: Path) -> None:
    for code in ("-", "P"):
        write_leaf(tmp_path / code, fake_tables(code, 0, num_requests=8), code=code, seed=0, plant="live")
    (verdict,) = verdict_of(run_figures(tmp_path)).verdicts
    assert verdict.headline == "Pruning cannot be judged live"
    assert "too few requests" in verdict.parts[0].summary


def test_unfinished_requests_are_said(tmp_path: Path) -> None:
    for code in ("-", "P"):
        tables = fake_tables(code, 0)
        lost = pl.col("request_id") >= 36
        tables["requests"] = tables["requests"].with_columns(
            finished_s=pl.when(lost).then(None).otherwise(pl.col("finished_s"))
        )
        write_leaf(tmp_path / code, tables, code=code, seed=0, plant="sim")
    remarks = verdict_of(run_figures(tmp_path)).remarks
    assert any(f"down to 75{THIN}%" in remark for remark in remarks)


def test_changes_too_long_for_a_cell_are_written_as_factors(found: RunFigures, monkeypatch: pytest.MonkeyPatch) -> None:
    def texts() -> list[str]:
        return [cell.text for one in heat_maps(found) for _, row in one.rows for cell in row if cell.css != "base"]

    plain = texts()
    assert not any("×" in text for text in plain)
    monkeypatch.setattr("workbench.report.heat_map.MANY", 0.1)  # so that the toy run has some
    factors = [(a, b) for a, b in zip(plain, texts(), strict=True) if a != b]
    assert factors
    for percent, factor in factors:
        assert float(factor.removeprefix("×")) == pytest.approx(1.0 + float(percent) / 100.0, abs=0.006)


def test_a_sentence_says_such_changes_as_factors(found: RunFigures, monkeypatch: pytest.MonkeyPatch) -> None:
    def said() -> str:
        return " ".join(part.summary for one in verdict_of(found).verdicts for part in one.parts)

    assert "multipl" not in said()
    for module in ("verdict", "numbers"):
        monkeypatch.setattr(f"workbench.report.{module}.MANY", 0.001)
    factors = re.findall(r"multipl(?:y|ies) [^.;]*? by ([\d.]+) \(([\d.]+) to ([\d.]+)\)", said())
    assert factors
    for value, low, high in factors:
        assert 1.0 <= float(low) <= float(value) <= float(high)
