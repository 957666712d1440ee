"""`workbench route` on a scripted model: every mode, one JSON object, resume, and one line for each bad input."""

import json
import sys

import pytest

from tests.routing.scripted_model import ScriptedModel
from tests.routing.test_evaluate import CHOICES, NUMBERS
from workbench.cli import route as route_verb
from workbench.cli.app import main


@pytest.fixture
def scripted(monkeypatch, tmp_path):
    monkeypatch.setattr(route_verb, "_loader", lambda model, dtype, backend, out: ScriptedModel)
    monkeypatch.chdir(tmp_path)
    for name, questions in (("sums", NUMBERS), ("picks", CHOICES)):
        rows = [
            {"question": q.text, "answer": q.answer, **({"options": list(q.options)} if q.options else {})}
            for q in questions
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return tmp_path


def run(capsys, monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["workbench", "route", *words, "--json"])
    with pytest.raises(SystemExit) as left:
        main()
    captured = capsys.readouterr()
    body = json.loads(captured.out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    return left.value.code, body, captured.err


EVALUATE = ("--evaluate", "--num-questions", "40", "--num-calibration", "24", "--check-every", "8")


def test_evaluate_interrupted_and_resumed_gives_the_same_figures(capsys, monkeypatch, scripted):
    words = ("--task", "sums.jsonl,picks.jsonl", *EVALUATE)
    words = (*words, "--load", "5")
    code, whole, _ = run(capsys, monkeypatch, *words, "--out", "whole")
    assert code == 0
    assert whole["ok"] is True
    assert {"accuracy", "tokens_mean", "share_direct", "share_standard", "share_cot"} <= set(whole["figures"])
    assert whole["figures"]["sums.extraction.heuristic.accuracy"] == 1.0
    assert whole["figures"]["sums.extraction.always-cot.accuracy"] < 1.0
    report = (scripted / whole["paths"]["report"]).read_text()
    assert "always-direct" in report
    assert 'src="http' not in report
    results = json.loads((scripted / whole["paths"]["results"]).read_text())
    assert {row["router"] for row in results["routers"]} >= {
        "heuristic",
        "surrogate",
        "mlp",
        "dataset-level",
        "always-cot",
    }
    assert {row["router"] for row in results["load"]} >= {"heuristic", "always-cot"}
    assert {row["rule"] for row in results["early_stops"]} == {"EAT", "entropy slope"}

    code, part, err = run(capsys, monkeypatch, *words, "--out", "part", "--stop-after", "0")
    assert code == 1
    assert part["ok"] is False
    assert part["figures"]["recorded"] < part["figures"]["expected"]
    assert "resumes" in err
    code, resumed, _ = run(capsys, monkeypatch, *words, "--out", "part")
    assert code == 0
    assert resumed["figures"] == whole["figures"]
    whole_table, part_table = ((scripted / d / "results.md").read_text() for d in ("whole", "part"))
    assert whole_table == part_table


def test_calibrate_then_route_with_it(capsys, monkeypatch, scripted):
    code, body, _ = run(
        capsys, monkeypatch, "--task", "sums.jsonl", "--calibrate", "--num-calibration", "50", "--out", "c"
    )
    assert code == 0
    assert 0.0 <= body["figures"]["calibration_error"] <= 1.0
    path = body["paths"]["calibration"]
    routed = ("--task", "sums.jsonl", "--num-questions", "30", "--out", "r")
    code, learned, _ = run(capsys, monkeypatch, *routed, "--router", "mlp", "--calibration", path)
    assert code == 0
    assert learned["figures"]["accuracy"] == 1.0
    assert learned["figures"]["share_standard"] > 0.2  # Standard is right too, and cheaper than a thought
    code, direct, _ = run(capsys, monkeypatch, *routed, "--router", "always-direct")
    assert direct["figures"]["share_direct"] == 1.0
    assert direct["figures"]["tokens_mean"] < learned["figures"]["tokens_mean"]


def test_one_question_shows_its_numbers_and_the_reason(capsys, monkeypatch, scripted):
    code, body, _ = run(capsys, monkeypatch, "--question", "What is 20 + 22?", "--out", "q")
    assert code == 0
    figures = body["figures"]
    assert figures["share_direct"] + figures["share_standard"] + figures["share_cot"] == 1.0
    assert figures["accuracy"] is None
    assert -1.0 <= figures["trend"] <= 1.0
    assert "What is 20 + 22?" in (scripted / body["paths"]["report"]).read_text()
    monkeypatch.setattr(sys, "argv", ["workbench", "route", "--question", "What is 20 + 22?"])
    with pytest.raises(SystemExit):
        main()
    shown = capsys.readouterr().out
    for word in ("probe", "S_H", "V_sp", "avnr", "decision", "entropy", "answer"):
        assert word in shown


def test_a_question_cannot_break_the_page(capsys, monkeypatch, scripted):
    text = "</script><b>x</b><img src=x onerror=alert(1)>"
    _, body, _ = run(capsys, monkeypatch, "--question", text, "--out", "q")
    page = (scripted / body["paths"]["report"]).read_text()
    assert "<b>x</b>" not in page
    assert "<img src=x" not in page
    assert "&lt;b&gt;x" in page


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "either --question TEXT or --task"),
        (("--question", "  "), "empty"),
        (("--question", "a?", "--task", "sums.jsonl"), "either"),
        (("--question", "a?", "--option", "only one"), "two different"),
        (("--task", "sums.jsonl", "--router", "heurstic"), "did you mean heuristic"),
        (("--task", "sums.jsonl", "--router", "mlp"), "--calibration"),
        (("--task", "sums.jsonl", "--num-questions", "71"), "70 questions"),
        (("--task", "sums.jsonl", "--k", "nan"), "HeuristicRouter.k"),
        (("--task", "sums.jsonl", "--overload", "0"), "overload_nats"),
        (("--task", "nosuch"), "unknown task"),
        (("--task", "broken.jsonl"), "line 1"),
        (("--task", "sums.jsonl", "--max-standard-tokens", "5"), "probe_tokens"),
        (("--task", "sums.jsonl", *EVALUATE, "--scoring", "guess"), "scoring"),
        (("--task", "sums.jsonl", *EVALUATE, "--load", "fast"), "--load"),
        (("--task", "sums.jsonl", "--calibrate", "--num-calibration", "0"), "num-calibration"),
        (("--task", "sums.jsonl", "--calibration", "absent.json"), "absent.json"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(capsys, monkeypatch, scripted, words, says):
    (scripted / "broken.jsonl").write_text('{"question": "no answer here"}')
    code, body, err = run(capsys, monkeypatch, *words)
    assert code == 2
    assert body["ok"] is False
    assert says in err
    assert err.count("\n") == 1


def test_one_class_calibration_says_so_and_fails(capsys, monkeypatch, scripted):
    rows = [{"question": f"What is {i}?", "answer": "123456"} for i in range(60)]  # nothing is ever right
    (scripted / "hopeless.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    code, body, err = run(capsys, monkeypatch, "--task", "hopeless.jsonl", "--calibrate")
    assert code == 1
    assert "nothing to learn" in err
    assert body["ok"] is False
