"""report.html: self-contained, escaped, whole or not at all."""

import ast
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pytest

import workbench.report
from tests.metrics.fake_run import fake_tables, write_leaf, write_run
from workbench.errors import InputError
from workbench.report import write_report
from workbench.report.numbers import THIN
from workbench.scenario import Scenario

EVIL = "</script><b>x</b><img src=x onerror=alert(1)> </style> {{ 7*7 }} "
VOID = {"meta", "br", "img", "link", "input", "hr", "col"}


class Page(HTMLParser):
    """Tags with their attributes, visible text, and whether every tag is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    name = EVIL + "מבחן " + "w" * 10_000
    run = write_run(tmp_path_factory.mktemp("toy") / "run", seeds=(0,), num_requests=24, scenario=name)
    write_report(run)
    return run


@pytest.fixture(scope="module")
def page(run: Path) -> str:
    return (run / "report.html").read_text(encoding="utf-8")


def test_hostile_names_are_text_and_every_tag_closes(page: str) -> None:
    parsed = Page(page)
    assert parsed.open == []
    names = {tag for tag, _ in parsed.tags}
    assert not names & {"script", "img", "iframe", "object", "embed", "link"}
    assert not [a for _, attributes in parsed.tags for a in attributes if a.startswith("on")]
    assert EVIL in "".join(parsed.text)
    heading = page[page.index("<h1") : page.index("</h1>")]
    assert len(heading) < 600  # ten thousand characters do not fill the screen; the whole name stands at the end


def test_nothing_outside_is_loaded(page: str, run: Path) -> None:
    assert not re.findall(r"""(?:https?:)?//[\w.]+""", page.replace("http-equiv", ""))
    assert not re.findall(r"@import|url\(", page)
    for tag, attributes in Page(page).tags:
        for name in ("src", "href", "action", "data", "srcset", "poster"):
            target = attributes.get(name)
            if target is not None:
                assert tag == "a"
                assert target.startswith("#") or (run / target).is_file()
    assert "default-src 'none'" in page


def test_sections_pictures_and_their_descriptions(page: str) -> None:
    parsed = Page(page)
    ids = {attributes["id"] for _, attributes in parsed.tags if "id" in attributes}
    assert {"verdict", "arms", "load", "side", "time", "effects", "cells", "method"} <= ids
    links = [a["href"] for tag, a in parsed.tags if tag == "a" and (a.get("href") or "").startswith("#")]
    assert {link.removeprefix("#") for link in links if link} <= ids
    charts = [a for tag, a in parsed.tags if tag == "svg" and a.get("role") == "img"]
    assert len(charts) > 20
    assert all(a.get("aria-label") for a in charts)
    assert page.count("<desc>") == len(charts)
    assert not re.search(r"\bnan\b|\binf\b", page.lower())


def test_figures_beside_it_are_strict_json(run: Path) -> None:
    def refuse(text: str) -> float:
        raise AssertionError(text)

    figures = json.loads((run / "figures.json").read_text(), parse_constant=refuse)
    assert {cell["key"] for cell in figures["cells"]} >= {"sim-load1.1-tight", "live"}


def test_one_arm_alone_has_a_page_without_a_verdict(tmp_path: Path) -> None:
    write_leaf(tmp_path / "seed0", fake_tables("T", 0), code="T", seed=0, plant="sim", name="alone")
    text = write_report(tmp_path).read_text(encoding="utf-8")
    assert Page(text).open == []
    assert "no baseline to compare with" in text
    assert "The eight arms" not in text


def test_nothing_completed_still_makes_a_page(tmp_path: Path) -> None:
    for code in ("-", "S"):
        tables = fake_tables(code, 0)
        keep = ["request_id", "arrival_s", "output_tokens"]
        tables["requests"] = tables["requests"].select(keep).with_columns(status=pl.lit("waiting"))
        tables["steps"] = tables["steps"].clear()
        write_leaf(tmp_path / code, tables, code=code, seed=0, plant="sim")
    text = write_report(tmp_path).read_text(encoding="utf-8")
    assert "Not every request completed" in text
    assert "nan" not in text.lower().replace("nanos", "")


def test_refusals_and_missing_power_are_said_beside_the_figures(tmp_path: Path) -> None:
    for code in ("-", "S"):
        tables = fake_tables(code, 0, num_requests=100)
        gone = pl.col("request_id") % 10 == 0
        times = ("first_scheduled_s", "first_token_s", "finished_s")
        tables["requests"] = tables["requests"].with_columns(
            pl.when(gone).then(pl.lit("refused")).otherwise(pl.col("status")).alias("status"),
            *(pl.when(gone).then(None).otherwise(pl.col(name)).alias(name) for name in times),
        )
        tables["steps"] = tables["steps"].with_columns(energy_j=pl.lit(None, pl.Float64))
        write_leaf(tmp_path / code, tables, code=code, seed=0, plant="sim")
    text = "".join(Page(write_report(tmp_path).read_text(encoding="utf-8")).text)
    assert f"Completed: 90{THIN}% simulated." in text
    assert "Energy: no power model" in text
    assert "refused 10" in text


def test_the_page_says_what_was_served(tmp_path: Path) -> None:
    """Out of resolved scenarios as the record stores them; a generator instead of a trace is said."""
    for plant in ("sim", "live"):
        scenario = Scenario.model_validate({"plant": plant}).model_dump(mode="json")
        write_leaf(tmp_path / plant, fake_tables("-", 0), code="-", seed=0, plant=plant, scenario=scenario)
    text = "".join(Page(write_report(tmp_path).read_text(encoding="utf-8")).text)
    assert "Llama-3-8B on 1 H100" in text
    assert "no trace was at hand" in text
    live = Scenario().live
    assert f"{live.model} ({live.dtype}, {live.backend} operations)" in text


def test_a_report_that_cannot_be_written_is_one_line_and_leaves_the_rest(tmp_path: Path) -> None:
    write_leaf(tmp_path / "seed0", fake_tables("-", 0), code="-", seed=0, plant="sim")
    (tmp_path / "report.html").mkdir()
    with pytest.raises(InputError, match="cannot write into"):
        write_report(tmp_path)
    assert not list(tmp_path.glob(".report*"))


def test_the_report_computes_nothing() -> None:
    """No array library in the report: numbers come from metrics, which are pure functions of records."""
    for path in Path(workbench.report.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & {"numpy", "polars", "scipy", "pandas"}, path
