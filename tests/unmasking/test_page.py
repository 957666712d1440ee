import csv
import json

from workbench.unmasking.estimate import Estimate
from workbench.unmasking.page import write_study
from workbench.unmasking.study import Chart, Series, Study


def test_texts_are_escaped_and_tables_keep_every_digit(tmp_path):
    nasty = "</script><b>x</b><img src=x onerror=alert(1)>"
    study = Study(
        name="s", title=nasty, intro=nasty, command=nasty, columns=("a", "b"), rows=[(nasty, Estimate(1 / 3, 0.1)), ("y", 2)]
    )  # fmt: skip
    study.state(nasty, False)
    study.charts.append(Chart("c", "C", "x", "y", [Series("s", [1, 2], [0.0, 1.0], [0.1, 0.1])]))
    study.figures = {"nothing": float("nan")}
    paths = write_study(study, tmp_path / "out")
    page = paths["report"].read_text()
    assert "<b>x" not in page
    assert "<img src=x" not in page
    assert "http" not in page.split("data:image")[0]
    rows = list(csv.reader(paths["table"].read_text().splitlines()))
    assert rows[0] == ["a", "b", "b half width"]
    assert float(rows[1][1]) == 1 / 3
    assert json.loads((tmp_path / "out" / "figures.json").read_text())["figures"]["nothing"] is None
    assert (tmp_path / "out" / "c.png").read_bytes()[:4] == b"\x89PNG"


def test_equal_studies_give_equal_pictures(tmp_path):
    def picture(name):
        study = Study(name="s", title="t", intro="", command="", columns=("a",))
        study.charts.append(Chart("c", "C", "x", "y", [Series("s", [1, 2], [1.0, 2.0])]))
        return write_study(study, tmp_path / name)["c"].read_bytes()

    assert picture("one") == picture("two")
