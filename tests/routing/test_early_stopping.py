import numpy as np
import polars as pl
import pytest

from controllers.routing.early_stop import EATStop, SlopeStop
from workbench.routing.early_stopping import early_stop_rows, first_stop
from workbench.routing.generation_record import SCHEMA, Settings, slimmed
from workbench.routing.panel import make_panel


def thought(position, after, entropy, likeliest, answer="A", final="B", every=4):
    tokens = [every * (k + 1) for k in range(len(after))]
    blank = {name: None for name in SCHEMA}
    return blank | {
        "task": "t", "question_id": str(position), "position": position, "strategy": "cot", "answer": answer,
        "num_labels": 2, "output_tokens": len(entropy), "entropy_raw_nats": entropy, "likeliest": final,
        "check_tokens": tokens, "check_entropy_nats": after, "check_likeliest": likeliest,
    }  # fmt: skip


SETTLED = thought(0, [2.0, 0.5, 0.5, 0.5, 0.5, 0.5], [1.0] * 30, ["B", "B", "B", "A", "A", "A"])
RESTLESS = thought(1, [2.0, 0.1, 2.0, 0.1, 2.0, 0.1], list(np.linspace(3.0, 0.0, 30)), ["A"] * 6)


def test_the_first_stop_counts_tokens_and_answer():
    rule = EATStop(smoothing=0.5, variance_nats2=0.2, min_checks=2)
    # By hand: m = 2, 1.25, 0.875, 0.6875; v = 0, 0.28125, 0.2109, 0.1230; v^ at n = 2, 3, 4: 0.375, 0.2411, 0.1312.
    assert first_stop([SETTLED, RESTLESS], rule).tolist() == [3, -1]
    table = pl.DataFrame([SETTLED, RESTLESS], schema=SCHEMA)
    row = early_stop_rows(table, "t", {"EAT": rule})[0]
    assert row.stopped_share == 0.5
    assert row.tokens_mean.value == (16 + 30) / 2
    assert row.accuracy.value == 0.5  # the settled one is right where it is cut, its whole thought is not
    assert row.accuracy_vs_whole.value == 0.5
    assert row.tokens_vs_whole.value == -7.0


def test_slope_reads_only_tokens_up_to_the_check():
    rule = SlopeStop(window_tokens=4, slope_nats=0.01, patience=2)
    assert first_stop([SETTLED, RESTLESS], rule).tolist() == [1, -1]


def test_rows_are_left_out_where_there_is_nothing_to_judge():
    table = pl.DataFrame([SETTLED, RESTLESS], schema=SCHEMA)
    rules = {"EAT": EATStop()}
    assert early_stop_rows(table, "other", rules) == []
    assert early_stop_rows(table, "t", rules, first_position=2) == []
    assert early_stop_rows(slimmed(table, 8), "t", rules) == []
    assert early_stop_rows(table.with_columns(pl.lit(None, pl.String).alias("likeliest")), "t", rules) == []


def test_a_slimmed_table_gives_the_same_panel():
    rng = np.random.default_rng(0)
    rows = []
    for strategy in ("standard", "direct", "cot"):
        for position in range(3):
            entropy = np.round(rng.gamma(1.5, 1.0, 20), 3).tolist()
            rows.append(
                thought(position, [], entropy, [])
                | {
                    "strategy": strategy, "prompt_tokens": 9, "text": "long text", "extracted": "A",
                    "correct_extraction": position == 0, "correct_likelihood": position == 1,
                    "surprisal_raw_nats": entropy, "option_nats": [-1.23456, -2.0], "option_tokens": [1, 1],
                }
            )  # fmt: skip
    table = pl.DataFrame(rows, schema=SCHEMA)
    settings = Settings(num_questions=3, num_calibration=0, probe_tokens=8)
    whole, slim = (make_panel(t, "t", settings, "likelihood") for t in (table, slimmed(table, 8)))
    for name, value in vars(whole).items():
        if isinstance(value, np.ndarray):
            assert np.array_equal(value, getattr(slim, name), equal_nan=value.dtype.kind == "f"), name
        else:
            assert value == pytest.approx(getattr(slim, name), nan_ok=True) if isinstance(value, float) else True
    assert slimmed(table, 8)["text"].unique().to_list() == [""]
