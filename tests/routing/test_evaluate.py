import numpy as np
import polars as pl
import pytest

from controllers.routing.dataset_level import DatasetRouter
from controllers.routing.fixed import FixedRouter
from controllers.routing.heuristic import HeuristicRouter
from tests.routing.scripted_model import ScriptedModel
from workbench.errors import InputError
from workbench.protocols import Strategy
from workbench.routing.comparison import compare, descriptor_rows, oracle_row
from workbench.routing.evaluate import evaluate
from workbench.routing.generation_record import Settings, read_generations
from workbench.routing.panel import make_panel, split
from workbench.routing.prompts import load_prompts
from workbench.routing.question import AnswerKind, Question

SETTINGS = Settings(num_questions=40, num_calibration=24, chunk_questions=8, check_every_tokens=8)
NUMBERS = [
    Question(task="sums", question_id=str(i), text=f"What is {i} + {42 - i}?", kind=AnswerKind.NUMBER, answer="42")
    for i in range(70)
]
CHOICES = [
    Question(
        task="picks",
        question_id=str(i),
        text=f"Pick number {i}",
        kind=AnswerKind.CHOICE,
        answer="AB"[i % 2],
        labels=("A", "B"),
        options=(f"left {i}", f"right {i}"),
    )
    for i in range(70)
]


def run(directory, model=None, settings=SETTINGS, tasks=None, **kwargs):
    tasks = tasks or {"sums": NUMBERS, "picks": CHOICES}
    return evaluate(model or ScriptedModel(), tasks, load_prompts(), settings, directory, **kwargs)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    directory = tmp_path_factory.mktemp("whole")
    run(directory)
    return directory


def test_interrupted_and_resumed_gives_the_same_table(tmp_path, whole):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, ScriptedModel(fail_after=7))
    assert len(list(tmp_path.glob("*.parquet"))) == 7
    (tmp_path / "sums.cot.0003.part").write_bytes(b"torn")  # what a kill while writing leaves
    run(tmp_path, stop_after_s=0.0)
    assert len(list(tmp_path.glob("*.parquet"))) == 8
    second = ScriptedModel()
    run(tmp_path, second)
    assert second.calls == 48 - 8
    assert read_generations(tmp_path).equals(read_generations(whole))
    third = ScriptedModel()
    run(tmp_path, third)
    assert third.calls == 0


def test_another_evaluation_is_not_mixed_in(tmp_path):
    run(tmp_path, tasks={"sums": NUMBERS})
    other = Settings(num_questions=40, num_calibration=24, chunk_questions=8, check_every_tokens=8, max_cot_tokens=99)
    with pytest.raises(InputError, match=r"settings\.max_cot_tokens"):
        run(tmp_path, settings=other, tasks={"sums": NUMBERS})
    with pytest.raises(InputError, match=r"questions\.picks"):
        run(tmp_path, tasks={"sums": NUMBERS, "picks": CHOICES})


def test_token_accounts_include_the_probe(whole):
    panel = make_panel(read_generations(whole), "sums", SETTINGS)
    n = len(panel)
    assert n == 64
    for strategy in Strategy:
        chosen = np.full(n, int(strategy))
        _, alone = panel.outcome(chosen, probed=False)
        _, probed = panel.outcome(chosen, probed=True)
        extra = 0 if strategy is Strategy.STANDARD else panel.probe_tokens
        assert np.array_equal(probed, alone + extra)
    assert panel.probe_tokens.max() == 64


def test_comparison_by_hand(whole):
    table = read_generations(whole)
    calibration, panel = split(make_panel(table, "sums", SETTINGS), SETTINGS)
    assert (len(calibration), len(panel)) == (24, 40)
    routers = {
        "always-direct": FixedRouter(strategy=Strategy.DIRECT),
        "heuristic": HeuristicRouter(),
        "dataset-level": DatasetRouter(strategy=Strategy.DIRECT),
    }
    direct, row, level = compare(panel, routers)
    assert level.tokens_mean == direct.tokens_mean  # decided once for the data set: no probe to pay for
    rows = {
        (r["position"], r["strategy"]): r
        for r in table.filter((pl.col("task") == "sums") & (pl.col("position") >= 24)).iter_rows(named=True)
    }
    right = [rows[p, "direct"]["extracted"] == "42" for p in range(24, 64)]
    assert direct.accuracy.value == pytest.approx(np.mean(right))
    assert direct.tokens_mean.value == pytest.approx(
        np.mean([rows[p, "direct"]["output_tokens"] for p in range(24, 64)])
    )
    assert direct.accuracy_vs_direct.value == 0.0
    # Falling questions are right by CoT only, rising ones by Direct only: the rule is right wherever it decides.
    action = panel.route(HeuristicRouter())
    assert set(action.strategy.tolist()) == {int(Strategy.DIRECT), int(Strategy.COT)}
    assert row.accuracy.value == 1.0
    share = np.bincount(action.strategy, minlength=3) / 40
    mix = sum(share[s] * panel.correct[:, s].mean() for s in Strategy)
    assert row.accuracy_vs_mix.value == pytest.approx(1.0 - mix)
    assert row.beats_mix
    assert row.shares["cot"] == share[Strategy.COT]
    best, _ = oracle_row(panel)
    assert best.value == 1.0
    aurocs = {d.descriptor: d.auroc.value for d in descriptor_rows(panel)}
    assert aurocs["-V_sp"] == 1.0


def test_likelihood_scores_are_those_of_the_model(whole):
    row = (
        read_generations(whole)
        .filter((pl.col("task") == "picks") & (pl.col("strategy") == "direct"))
        .row(0, named=True)
    )
    model, prompts = ScriptedModel(), load_prompts()
    question = next(q for q in CHOICES if q.question_id == row["question_id"])
    prompt, _ = model.prompt(prompts.messages(question, Strategy.DIRECT))
    at = len(prompt) + row["output_tokens"] - 1
    cue = model.encode(prompts.cue)
    for k, option in enumerate(question.options):
        ids = [*cue, *model.encode(f" {option}")]
        expected = -sum((token * 7 + at) % 13 / 4.0 for token in ids[len(cue) :])
        assert row["option_nats"][k] == pytest.approx(expected)
        assert row["option_tokens"][k] == len(option) + 1
    per_token = np.array(row["option_nats"]) / np.array(row["option_tokens"])
    assert row["likeliest"] == "AB"[int(per_token.argmax())]
    panel = make_panel(read_generations(whole), "picks", SETTINGS, "likelihood")
    assert panel.answered.all()
    assert panel.chance == 0.5
    assert make_panel(read_generations(whole), "sums", SETTINGS, "likelihood").scoring == "extraction"


def test_checks_of_a_running_thought(whole):
    table = read_generations(whole).filter(pl.col("strategy") == "cot")
    assert table.filter(pl.col("task") == "sums")["check_tokens"].list.len().max() == 0
    row = table.filter(pl.col("task") == "picks").sort("output_tokens").row(-1, named=True)
    assert row["check_tokens"] == list(range(8, row["output_tokens"] - 1, 8))
    model, prompts = ScriptedModel(), load_prompts()
    question = next(q for q in CHOICES if q.question_id == row["question_id"])
    prompt, _ = model.prompt(prompts.messages(question, Strategy.COT))
    cue = model.encode(prompts.cue)
    for k, tokens in enumerate(row["check_tokens"]):
        at = len(prompt) + tokens
        nats = [np.mean([(t * 7 + at) % 13 / 4.0 for t in model.encode(f" {option}")]) for option in question.options]
        assert row["check_likeliest"][k] == "AB"[int(np.argmin(nats))]
        first = model.encode(" ")[0]
        assert row["check_entropy_nats"][k] == pytest.approx((first * 7 + at) % 13 / 8.0)
    assert len(cue) > 0


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"num_questions": 0}, "num_questions"),
        ({"probe_tokens": 64, "max_standard_tokens": 32}, "max_standard_tokens"),
        ({"temperature": -1.0}, "temperature"),
    ],
)
def test_bad_settings_are_refused(bad, says):
    with pytest.raises(InputError, match=says):
        Settings(**bad)
    with pytest.raises(InputError, match=r"1 \.\. 70"):
        run("unused", settings=Settings(num_questions=71, num_calibration=0))
