"""Trace loading: the same table whatever the encoding, and one clear line for what cannot be read."""

import json
import math

import numpy as np
import polars as pl
import pytest

from sims.traces import read_trace
from workbench.errors import InputError

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
2023-11-16 18:17:04.0781490,110,27
"""


def write(folder, name, data):
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def assert_same(trace, arrival=(0.0, 0.052, 0.098189), prompt=(4808, 3180, 110), output=(10, 8, 27)):
    np.testing.assert_allclose(trace.arrival_s, arrival, atol=2e-7)
    np.testing.assert_array_equal(trace.prompt_tokens, prompt)
    np.testing.assert_array_equal(trace.output_tokens, output)


@pytest.mark.parametrize(
    "data",
    [
        AZURE.encode(),
        b"\xef\xbb\xbf" + AZURE.encode(),
        AZURE.replace("\n", "\r\n").encode(),
        AZURE.replace("\n", "\r").encode(),
        (AZURE + "\n\n").encode(),
        AZURE.rstrip("\n").encode(),
        b'"TIMESTAMP","ContextTokens","GeneratedTokens"\n' + AZURE.split("\n", 1)[1].encode(),
        "\n".join(",".join([*line.split(",")[::-1], "x"]) for line in AZURE.strip().split("\n")).encode(),
    ],
    ids=["lf", "bom", "crlf", "cr", "blank last", "no last newline", "quoted", "reordered and extra column"],
)
def test_byte_order_marks_line_ends_and_column_order_change_nothing(tmp_path, data):
    assert_same(read_trace(write(tmp_path, "t.csv", data)))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (AZURE.encode("utf-16"), "UTF-16"),
        (AZURE.replace(",", ";").encode(), "separated by ';'"),
        (AZURE.split("\n", 1)[1].encode(), "no known header"),
        (AZURE.replace("ContextTokens", "Context").encode(), "column 'ContextTokens' is missing"),
        (AZURE.replace("3180", "many").encode(), "line 3: ContextTokens must be a number, got 'many'"),
        (AZURE.replace("3180", "-1").encode(), "line 3: ContextTokens must be finite and at least 0"),
        (AZURE.replace(",8\n", ",nan\n").encode(), "line 3: GeneratedTokens"),
        (AZURE.replace(",8\n", ",1.5\n").encode(), "line 3: GeneratedTokens must be a whole number"),
        (AZURE.replace(",8\n", "\n").encode(), "line 3: 2 fields, the header has 3"),
        (AZURE.replace("2023-11-16 18:17:04.0319600", "yesterday").encode(), "line 3: TIMESTAMP must be a date"),
        (AZURE.split("\n")[0].encode(), "holds no requests"),
        (b"", "holds no requests"),
        (b"\xff\xff\x80", "UTF-8"),
        (b"TIMESTAMP,TIMESTAMP\n1,2\n", "occurs twice"),
    ],
)
def test_what_cannot_be_read_is_one_line_naming_the_place(tmp_path, data, message):
    path = write(tmp_path, "t.csv", data)
    with pytest.raises(InputError) as error:
        read_trace(path)
    assert message in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_zero_tokens_are_dropped_with_count_and_line(tmp_path):
    trace = read_trace(write(tmp_path, "t.csv", AZURE.replace(",8\n", ",0\n").replace("110", "0")))
    assert_same(trace, (0.0,), (4808,), (10,))
    assert "dropped 2 rows: zero prompt or output tokens (first at line 3)" in trace.notes
    with pytest.raises(InputError, match="no usable requests; dropped 1 rows"):
        read_trace(write(tmp_path, "u.csv", "arrival_s,prompt_tokens,output_tokens\n1,0,3\n"))


def test_unsorted_rows_are_sorted_stably_and_counted(tmp_path):
    lines = AZURE.strip().split("\n")
    swapped = "\n".join([lines[0], lines[2], lines[1], lines[3]])
    trace = read_trace(write(tmp_path, "t.csv", swapped))
    assert_same(trace)
    assert "sorted by time: 1 rows came before their predecessor" in trace.notes


def plain(rows):
    return "arrival_s,prompt_tokens,output_tokens\n" + "\n".join(",".join(map(str, r)) for r in rows)


def test_ties_stay_in_file_order_and_negative_times_are_refused(tmp_path):
    trace = read_trace(write(tmp_path, "t.csv", plain([(1, 5, 1), (0, 6, 1), (1, 7, 1), (1, 8, 1)])))
    assert trace.prompt_tokens.tolist() == [6, 5, 7, 8]
    assert any("2 requests share the time" in note for note in trace.notes)
    with pytest.raises(InputError, match="line 2: arrival_s must be finite and at least 0"):
        read_trace(write(tmp_path, "u.csv", plain([(-1, 5, 1)])))


def test_an_implausible_rate_is_questioned(tmp_path):
    rows = [(i * 1e-4, 5, 1) for i in range(50)]
    assert any("implausible" in note for note in read_trace(write(tmp_path, "t.csv", plain(rows))).notes)
    slow = read_trace(write(tmp_path, "u.csv", plain([(i, 5, 1) for i in range(50)])), time_unit="ms")
    assert slow.span_s == pytest.approx(0.049)


def hashed(*rows):
    return "\n".join(
        json.dumps({"timestamp": t, "input_length": i, "output_length": o} | ({} if h is None else {"hash_ids": h}))
        for t, i, o, h in rows
    )


def test_hash_ids_are_opaque_and_must_fit_the_length(tmp_path):
    text = hashed(
        (0, 600, 2, [-1, 2**63]),
        (300, 40, 6, [7, 8]),
        (301, 1024, 6, [7]),
        (500, 513, 1, [-1, 2**31]),
        (600, 40, 1, None),
    )
    trace = read_trace(write(tmp_path, "t.jsonl", text))
    assert trace.prompt_tokens.tolist() == [600, 513, 40]
    assert trace.arrival_s.tolist() == pytest.approx([0.0, 0.5, 0.6])
    assert trace.hash_offset is not None
    assert trace.hash_id is not None
    assert trace.hash_offset.tolist() == [0, 2, 4, 4]
    first, second, third, fourth = trace.hash_id.tolist()
    assert first == third
    assert len({first, second, fourth}) == 3
    assert "dropped 2 rows: not ceil(input / 512) hash ids (first at line 2)" in trace.notes
    assert "1 rows without hash ids share no prefix" in trace.notes


@pytest.mark.parametrize(("line", "message"), [("{", "line 1: not JSON"), ("[1]", "one JSON object a line")])
def test_broken_json_lines_are_named(tmp_path, line, message):
    with pytest.raises(InputError, match=message):
        read_trace(write(tmp_path, "t.jsonl", line))


def test_parquet_and_vidur_columns(tmp_path):
    pl.DataFrame({"arrived_at": [0.0, 1.5], "num_prefill_tokens": [7, 8], "num_decode_tokens": [1, 2]}).write_parquet(
        tmp_path / "t.parquet"
    )
    assert_same(read_trace(tmp_path / "t.parquet"), (0.0, 1.5), (7, 8), (1, 2))
    with pytest.raises(InputError, match="not a readable Parquet"):
        read_trace(write(tmp_path, "u.parquet", b"PAR1"))


def test_missing_files_and_unknown_formats(tmp_path):
    with pytest.raises(InputError, match="no trace file at"):
        read_trace(tmp_path / "none.csv")
    with pytest.raises(InputError, match="did you mean azure"):
        read_trace(write(tmp_path, "t.csv", AZURE), format="azur")


def test_a_single_request_has_no_rate(tmp_path):
    assert math.isnan(read_trace(write(tmp_path, "t.csv", plain([(3, 5, 1)]))).rate_per_s)


def test_the_published_traces_have_their_published_statistics(shared_data):
    traces = shared_data / "traces"
    code = read_trace(traces / "azure_llm_2023" / "AzureLLMInferenceTrace_code.csv")
    conv = read_trace(traces / "azure_llm_2023" / "AzureLLMInferenceTrace_conv.csv")
    moon = read_trace(traces / "mooncake" / "conversation_trace.jsonl")
    assert (len(code), len(conv), len(moon)) == (8_819, 19_366, 12_031)
    gaps = np.diff(code.arrival_s)
    assert gaps.std() / gaps.mean() == pytest.approx(13.2, abs=0.1)
    assert code.prompt_tokens.mean() == pytest.approx(2048, abs=1)
    assert conv.output_tokens.mean() == pytest.approx(211, abs=0.5)
    assert moon.span_s == pytest.approx(3_537, abs=1)
    assert moon.rate_per_s == pytest.approx(3.40, abs=0.01)
    assert any(note.startswith("10851 requests share the time") for note in moon.notes)
