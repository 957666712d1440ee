"""The page shows every row, its pictures and the command that draws each of them."""

import re
from pathlib import Path

from tests.claims.test_authority import held, measured
from tests.claims.test_paired import arms
from workbench.claims.claim import Verdict, decide
from workbench.claims.factorial_chart import effect_cells, factorial_charts
from workbench.claims.ledger import Ledger, Row
from workbench.claims.page import PAPERS, write_page
from workbench.claims.paired import EFFECTS, TOLD, quantities
from workbench.claims.registry import CLAIMS


def ledger() -> Ledger:
    simulated = {f"tight_1.2_{n}": m for n, m in quantities(arms({"STP": 1.6})).items()}
    cells = measured(0.2, 0.01, {"service": -0.2, "kv_read": -0.3}, held(weights_share=0.6), "base/tight_1.3")
    found = {"factorial_azure": simulated, "authority": cells}
    rows = []
    for claim in CLAIMS:
        of = found.get(claim.experiment or "", {})
        mine = {q.name: of[q.name] for q in claim.quantities if q.name in of}
        rows.append(Row(claim, decide(claim, mine), mine))
    return Ledger(rows, found, {"factorial_azure": 12.0})


def test_every_row_and_figure_has_its_command(tmp_path: Path) -> None:
    made = ledger()
    html = " ".join(write_page(made, tmp_path / "claims.html", "workbench claims --seed 0").read_text().split())
    details = re.findall(r'<details class="claim" id="([^"]+)">(.*?)</details>', html)
    assert [id for id, _ in details] == [claim.id for claim in CLAIMS]
    for (id, text), row in zip(details, made.rows, strict=True):
        assert row.verdict.value in text
        assert text.count("<svg") == len(row.found)
        if row.claim.experiment:
            assert f"workbench claims --seed 0 {id}</code>" in text
            assert f"experiments/{row.claim.experiment}.py" in text
        else:
            assert "It would take." in text
            assert row.verdict is Verdict.NOT_TESTABLE
    rest = re.sub(r"<details class=\"claim\".*?</details>", "", html)
    sections = re.split(r"<h2>", rest)
    with_figures = [part for part in sections if "<svg" in part]
    assert [part.split("</h2>")[0] for part in with_figures] == ["Factorial", "Authority map"]
    for part in with_figures:
        commands = re.findall(r"Drawn by <code>workbench claims --seed 0 ([\w-]+)</code>", part)
        assert commands
        assert set(commands) <= {claim.id for claim in CLAIMS}
    assert "src=" not in html
    assert "http" not in html


def test_papers_cover_the_ledger() -> None:
    assert all(any(claim.id.startswith(f"{key}-") for key, _, _ in PAPERS) for claim in CLAIMS)


def test_effects_are_coloured_by_their_interval() -> None:
    found = {f"live_1.2_{n}": m for n, m in quantities(arms({c: 1.5 for c in ("S", "ST", "SP", "STP")})).items()}
    assert effect_cells(found) == ["live_1.2"]
    html = factorial_charts(found, ["live_1.2"])
    assert html.count("<svg") == 3
    shown = [found[f"live_1.2_effect_{effect}_{name}"] for effect in EFFECTS for name in TOLD]
    assert html.count('class="dot better"') == sum(one.low > 0.0 for one in shown) >= 3  # the scheduler, in each chart
    assert html.count('class="dot worse"') == sum(one.high < 0.0 for one in shown)
    assert html.count('class="dot off"') == sum(one.low <= 0.0 <= one.high for one in shown) >= 15
