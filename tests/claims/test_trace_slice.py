"""A slice is served as the same rows of the whole trace are."""

from pathlib import Path

import numpy as np
import pytest

from sims.traces import read_trace
from workbench.claims.trace_slice import trace_rows
from workbench.errors import InputError


def test_rows_of_a_csv(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    rows = [f"{0.5 * i:.3f},{10 + i},{3 + i}" for i in range(9)]
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n" + "\n".join(rows) + "\n")
    whole, part = read_trace(trace), read_trace(trace_rows(trace, 4, 3, tmp_path / "slices"))
    np.testing.assert_array_equal(part.prompt_tokens, whole.prompt_tokens[4:7])
    np.testing.assert_allclose(np.diff(part.arrival_s), np.diff(whole.arrival_s[4:7]))
    with pytest.raises(InputError, match="9 rows"):
        trace_rows(trace, 7, 3, tmp_path / "slices")


def test_rows_of_a_jsonl_keep_their_hashes(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    line = '{{"timestamp": {0}, "input_length": 600, "output_length": 5, "hash_ids": [0, {0}]}}'
    trace.write_text("\n".join(line.format(i) for i in range(5)) + "\n")
    part = read_trace(trace_rows(trace, 1, 2, tmp_path))
    assert len(part) == 2
    assert part.hash_id is not None
    assert part.hash_id.tolist() == [0, 1, 0, 2]
