"""The page of a pruning study from small tables: what it says is what the tables say, and it stands by itself."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.pruning.test_study import fake_steps
from workbench.errors import InputError
from workbench.pruning.report import report
from workbench.pruning.study import Settings

LAYERS, CONTEXT = 3, 4096
SETTINGS = Settings(contexts=(CONTEXT,), kinds=("code",), texts_per_kind=6, targets=(0.5,))
HOSTILE = "workbench prune --model </script><b>x</b>"


def tables(violations: int = 0, dense_kl: float = 0.0) -> dict[str, pl.DataFrame]:
    """Six texts of `fake_steps`: sketch-mass has half of quest's KL; the certified rule reads 0.6 at a dropped mass of 0.01."""
    head = {"kind": "code", "context": CONTEXT, "seed": 0}
    steps = fake_steps().with_columns(
        kl_nats=pl.when(pl.col("arm") == "none").then(dense_kl).otherwise(pl.col("kl_nats"))
    )
    asked = [("mass", b) for b in (0.003, 0.01, 0.03, 0.1)] + [("output", b) for b in (0.01, 0.03, 0.1, 0.3)]
    curve = [
        {
            **head, "query_context": at, "stops_by": by, "budget": budget, "layer": layer,
            "bytes_frac": 0.6 - (budget - 0.01), "blocks_frac": 0.45, "oracle_blocks_frac": 0.4 if by == "mass" else np.nan,
            "vacuous_frac": 0.67 if layer == 0 else 0.0, "dropped_mass": budget / 3, "dropped_bound": budget,
            "output_change": budget / 4, "output_bound": budget, "violations": 0, "num_claims": 54,
        }
        for at in (1024, 2048, 4064) for by, budget in asked for layer in range(LAYERS)
        if at == 4064 or (by, budget) == ("mass", 0.01)
    ]  # fmt: skip
    certificates = [
        {
            **head, "arm": "certified 0.01", "layer": layer, "num_claims": 100, "violations": violations if layer == 1 else 0,
            "vacuous_frac": 0.0, "bytes_frac": 0.6, "bound_mean": 0.009, "dropped_mean": 0.003, "dropped_max": 0.008,
            "output_bound_mean": 0.2, "output_change_mean": 0.02, "output_norm_mean": 2.0,
        }
        for layer in range(LAYERS)
    ]  # fmt: skip
    predictors = [{**head, "predictor": "last", "error": 0.3, "missed_mass": 0.1, "oracle_missed_mass": 0.05}]
    positions = [{**head, "first_token": 512 * i + 1, "nll_nats": 2.0 - 0.1 * i} for i in range(8)]
    return {
        "steps": steps, "curve": pl.DataFrame(curve), "certificates": pl.DataFrame(certificates),
        "predictors": pl.DataFrame(predictors), "positions": pl.DataFrame(positions),
    }  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory):
    directory = tmp_path_factory.mktemp("page")
    return report(tables(), SETTINGS, directory, HOSTILE, 8192), directory


def test_sentences_say_what_the_tables_say(made) -> None:
    found, _ = made
    told = " ".join(found.lines)
    assert found.ok
    assert "At 50% of bytes and 4,096 tokens our best by KL is sketch-mass" in told
    assert "KL is lower beyond doubt against quest" in told
    assert "code 4,096: 60.0% (blocks 45.0%, oracle 40.0%)" in told
    assert "by layer: 0: 67%; 0 % in all others" in told
    assert "300 heads and steps of the pruned runs: 0 violations" in told
    assert "True dropped mass is 33% of its bound" in told
    assert "by the change of the output, 0.01 at 4,096" in told
    assert "2.00, 1.90, 1.80" in told
    assert "keeps" not in told or "nan" not in told


def test_the_page_stands_by_itself_and_text_stays_text(made) -> None:
    found, directory = made
    html = (directory / "report.html").read_text(encoding="utf-8")
    assert "<b>x</b>" not in html
    assert "&lt;/script&gt;&lt;b&gt;x&lt;/b&gt;" in html
    assert all(at.startswith("data:") for at in re.findall(r'(?:src|href)="([^"]{0,20})', html))
    assert "url(" not in html
    assert set(re.findall(r'alt="(\w+)"', html)) == {"pareto", "retrieval", "certificate", "layers", "regime"}
    for line in found.lines:
        assert line.split(":")[0][:40].replace("'", "&#39;") in html
    for name in ("pareto", "retrieval", "certificate", "layers", "regime"):
        assert (directory / f"{name}.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_figures_are_strict_json_and_name_their_command(made) -> None:
    found, directory = made

    def refuse(word: str) -> None:
        raise AssertionError(word)

    manifest = json.loads((directory / "figures.json").read_text(), parse_constant=refuse)
    assert manifest["command"] == HOSTILE
    figures = manifest["figures"]
    assert figures["violations"] == 0
    assert figures["certified at 0.01, code, 4064: bytes_frac"] == pytest.approx(0.6)
    assert figures["sketch-mass at 50%, 4096: kl_nats"] == pytest.approx(found.arms[2].metrics["kl_nats"].value)
    for name in ("steps", "curve", "certificates", "predictors", "positions"):
        assert pl.read_parquet(directory / f"{name}.parquet").height > 0


def test_kvpress_stands_beside_ours(tmp_path: Path) -> None:
    rows = [
        {"text": "a", "press": "snapkv", "target_frac": 0.5, "kept_frac": 0.5, "kl_nats": 0.03, "nll_loss_nats": 0.002},
        {"text": "a", "press": "tova", "target_frac": 0.5, "error": "refuses this length"},
    ]
    found = report(tables(), SETTINGS, tmp_path, "c", 8192, rows)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "snapkv 0.0300 (+0.0020, keeps 0.500)" in html
    assert "tova refused (refuses this length)" in " ".join(found.lines)
    assert 'alt="kvpress"' in html
    assert (tmp_path / "kvpress.png").stat().st_size > 5000


@pytest.mark.parametrize("code", [0, 3])
def test_a_talkative_peer_is_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """More on stderr than a pipe holds, before the first line on stdout; and what it said last where it fails."""
    from workbench.pruning import kvpress_peer

    worker = tmp_path / "kvpress_worker.py"
    worker.write_text(
        "import sys\n"
        "sys.stderr.write('chatter\\n' * 100_000 + 'the reason\\n')\n"
        "print('1.0', flush=True)\n"
        "open(sys.argv[2], 'w').write('[]')\n"
        f"sys.exit({code})\n"
    )
    monkeypatch.setattr(kvpress_peer, "__file__", str(tmp_path / "kvpress_peer.py"))
    monkeypatch.setattr(kvpress_peer, "load_model", lambda *given: type("M", (), {"directory": tmp_path})())
    monkeypatch.setattr(kvpress_peer, "Tokenizer", lambda given: type("T", (), {"encode": None})())
    monkeypatch.setattr(kvpress_peer, "places", lambda *given: [])
    shares: list[float] = []
    if code:
        with pytest.raises(InputError, match="the reason"):
            kvpress_peer.compare(Path(sys.executable), SETTINGS, tmp_path, None, shares.append)
    else:
        rows, path = kvpress_peer.compare(Path(sys.executable), SETTINGS, tmp_path, None, shares.append)
        assert (rows, path, shares) == ([], tmp_path / "kvpress.json", [1.0])


def test_a_lie_or_a_dense_arm_that_is_not_dense_is_not_ok(tmp_path: Path) -> None:
    lied = report(tables(violations=2), SETTINGS, tmp_path / "a", "c", 8192)
    assert not lied.ok
    assert "2 violations" in " ".join(lied.lines)
    assert not report(tables(dense_kl=1e-3), SETTINGS, tmp_path / "b", "c", 8192).ok


def test_a_study_without_a_finished_text_says_so(tmp_path: Path) -> None:
    empty = {name: pl.DataFrame() for name in tables()}
    with pytest.raises(InputError, match="run it again to resume"):
        report(empty, SETTINGS, tmp_path, "c", 8192)
