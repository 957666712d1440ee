import math

import numpy as np
import pytest

from workbench.errors import InputError
from workbench.unmasking.estimate import Estimate
from workbench.unmasking.page import write_page, write_study
from workbench.unmasking.study import Chart, Series, Study
from workbench.unmasking.study_file import STUDY, load_study


def made() -> Study:
    study = Study(
        name="s", title="T & <b>", intro="i", command="c", columns=("a", "b"),
        rows=[("x", Estimate(1 / 3, float("nan"))), (None, float("inf")), (True, 3)],
    )  # fmt: skip
    study.state("one", True)
    study.charts.append(
        Chart("k", "K", "x", "y", [Series("s", np.array([1.0, 2.0]), [0.5, 1.0], [0.1, 0.2])], floor=1e-4)
    )
    study.panels.append([Chart("p", "P", "x", "y", [Series("g", [1, 2], [1.0, 2.0], guide=True)], log_y=False)])
    study.figures = {"f": 2.5, "none": None}
    study.notes.append("n")
    return study


def test_the_page_made_again_is_the_page(tmp_path):
    write_study(made(), tmp_path, {"order.png": ("Order", b"\x89PNG")})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    (tmp_path / "report.html").unlink()
    (tmp_path / "k.png").unlink()
    study, pictures = load_study(tmp_path)
    write_page(study, tmp_path, pictures)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert study.rows[1][1] == math.inf
    assert study.ok


def test_a_picture_that_is_gone_or_elsewhere_is_left_out(tmp_path):
    write_study(made(), tmp_path / "run", {"order.png": ("Order", b"x"), "run.gif": ("Run", b"y")})
    (tmp_path / "run/order.png").unlink()
    (tmp_path / "secret.png").write_bytes(b"z")
    path = tmp_path / "run" / STUDY
    path.write_text(path.read_text().replace('"order.png"', '"../secret.png"'))
    assert list(load_study(tmp_path / "run")[1]) == ["run.gif"]


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"name": "s"}'])
def test_a_damaged_file_is_one_line(tmp_path, damage):
    write_study(made(), tmp_path)
    (tmp_path / STUDY).write_text(damage)
    with pytest.raises(InputError, match=r"study\.json: damaged or unreadable") as caught:
        load_study(tmp_path)
    assert "\n" not in str(caught.value)
    (tmp_path / STUDY).unlink()
    with pytest.raises(InputError, match=r"no study\.json"):
        load_study(tmp_path)
