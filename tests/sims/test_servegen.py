"""ServeGen client statistics: rates, gap spread and lengths of what is drawn; one line for what cannot be read."""

import json

import numpy as np
import pytest

from sims.servegen import read_servegen
from workbench.errors import InputError


def client(folder, k, rows, lengths=None):
    lengths = lengths or {"0": {"input_tokens": "{100: 0.25, 200: 0.75}", "output_tokens": "{10: 1.0}"}}
    (folder / f"chunk-{k}-trace.csv").write_text("\n".join(",".join(map(str, r)) for r in rows) + "\n")
    (folder / f"chunk-{k}-dataset.json").write_text(json.dumps(lengths))


def test_rate_spread_and_lengths_are_the_clients(tmp_path):
    # Gamma gaps of shape 0.25: coefficient of variation 2. A silent window first.
    client(tmp_path, 0, [(0, 0, 0, "", 0, 0), (600, 20.0, 2.0, "Gamma", 0.25, 0.2), (1200, 0, 0, "", 0, 0)])
    trace = read_servegen(tmp_path, 10_000, 0)
    gaps = np.diff(trace.arrival_s)
    assert gaps.mean() == pytest.approx(0.05, rel=0.06)
    assert gaps.std() / gaps.mean() == pytest.approx(2.0, rel=0.08)
    assert np.mean(trace.prompt_tokens == 200) == pytest.approx(0.75, abs=0.02)
    assert set(trace.output_tokens.tolist()) == {10}
    assert any("12000 requests" in n or "requests, not the" in n or "600 s" in n for n in trace.notes)


def test_weibull_gaps_have_their_spread(tmp_path):
    client(tmp_path, 0, [(0, 20.0, 2.0, "Weibull", 0.5, 0.02), (600, 0, 0, "", 0, 0)])
    gaps = np.diff(read_servegen(tmp_path, 9_000, 1).arrival_s)
    assert gaps.mean() == pytest.approx(0.05, rel=0.08)
    assert gaps.std() / gaps.mean() == pytest.approx(np.sqrt(5.0), rel=0.12)  # Weibull of shape 1/2: cv^2 = 5


def test_clients_are_merged_in_time_and_equal_seeds_agree(tmp_path):
    client(tmp_path, 0, [(0, 5.0, 1.0, "Gamma", 1.0, 0.2), (600, 0, 0, "", 0, 0)])
    client(tmp_path, 1, [(0, 15.0, 1.0, "Gamma", 1.0, 0.1), (600, 0, 0, "", 0, 0)],
           {"0": {"input_tokens": "{7: 1.0}", "output_tokens": "{3: 1.0}"}})  # fmt: skip
    a, b, more = (read_servegen(tmp_path, n, 4) for n in (2000, 2000, 4000))
    assert np.all(np.diff(a.arrival_s) >= 0.0)
    assert np.mean(a.prompt_tokens == 7) == pytest.approx(0.75, abs=0.04)
    np.testing.assert_array_equal(a.arrival_s, b.arrival_s)
    np.testing.assert_array_equal(a.arrival_s, more.arrival_s[:2000])


@pytest.mark.parametrize(
    ("rows", "lengths", "message"),
    [
        ([(0, 1.0, 1.0, "Gamma", 1.0)], None, "line 1: 5 fields"),
        ([(0, "many", 1.0, "Gamma", 1.0, 1.0)], None, "line 1: rate must be a number"),
        ([(0, -1.0, 1.0, "Gamma", 1.0, 1.0)], None, "line 1: rate must be finite and at least 0"),
        ([(0, 1.0, 1.0, "Pareto", 1.0, 1.0)], None, "Gamma or Weibull"),
        ([(0, 1.0, 1.0, "Gamma", 0.0, 1.0)], None, "shape must be above 0"),
        ([(0, 0, 0, "", 0, 0)], None, "every rate is 0"),
        ([(0, 1.0, 1.0, "Gamma", 1.0, 1.0)], {"0": {"input_tokens": "{}", "output_tokens": "{}"}}, "no window has both"),
        ([(0, 1.0, 1.0, "Gamma", 1.0, 1.0)], {"0": {"input_tokens": "import os"}}, "not a ServeGen data set"),
        ([(0, 1.0, 1.0, "Gamma", 1.0, 1.0)], {"0": {"input_tokens": "{-4: 1.0}", "output_tokens": "{1: 1.0}"}},
         "no distribution of token counts"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_line(tmp_path, rows, lengths, message):
    client(tmp_path, 0, rows, lengths)
    with pytest.raises(InputError, match=message) as caught:
        read_servegen(tmp_path, 5, 0)
    assert "\n" not in str(caught.value)


def test_folders_without_clients_and_clients_without_lengths(tmp_path):
    with pytest.raises(InputError, match="no ServeGen client"):
        read_servegen(tmp_path, 5, 0)
    client(tmp_path, 0, [(0, 1.0, 1.0, "Gamma", 1.0, 1.0)])
    (tmp_path / "chunk-0-dataset.json").unlink()
    with pytest.raises(InputError, match="missing beside its trace"):
        read_servegen(tmp_path, 5, 0)


def test_the_published_clients_give_their_rate(shared_data):
    folder = shared_data / "traces" / "servegen" / "deepseek-r1"
    trace = read_servegen(folder, 3000, 0)
    assert len(trace) == 3000
    files = list(folder.glob("chunk-*-trace.csv"))
    whole = [f for f in files if f.with_name(f.name.replace("trace.csv", "dataset.json")).is_file()]
    assert any(f"{len(files) - len(whole)} clients left out" in note for note in trace.notes)
    rows = [line.split(",") for f in whole for line in f.read_text().split()]
    offered = sum(float(r[1]) for r in rows if float(r[0]) == 0.0)
    first_window = trace.arrival_s < 600.0
    assert np.count_nonzero(first_window) / 600.0 == pytest.approx(offered, rel=0.25)
    assert trace.prompt_tokens.min() >= 1
