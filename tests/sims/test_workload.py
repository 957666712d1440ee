"""What a scenario asks of its requests: arrivals, cancellations, common beginnings, lengths tied to kinds, prefix hashes."""

import json

import numpy as np
import pytest
from scipy.stats import spearmanr

from sims.calibration import builtin_calibration
from sims.plant import build_plant
from sims.traces import read_trace
from sims.workload import build_requests
from tests.engine.test_plant import drive
from tests.fakes import FormulaExecutor
from tests.sims.test_plant import scenario
from workbench.engine.clock import CountedClock
from workbench.engine.config import EngineConfig
from workbench.engine.plant import EnginePlant
from workbench.engine.prompt_blocks import blocks_of_hashes
from workbench.engine.requests import RequestSpec
from workbench.errors import InputError
from workbench.scenario import Workload


def built(caching=None, **keys):
    return build_requests(Workload(**keys), builtin_calibration(), 0, caching)


def test_a_quiet_and_a_busy_rate_alternate_around_the_mean():
    spec, notes = built(num_requests=20_000, rate_per_s=20.0, arrivals="modulated", rate_spread=9.0, dwell_s=5.0)
    assert len(spec) / spec.arrival_s[-1] == pytest.approx(20.0, rel=0.15)
    counts = np.histogram(spec.arrival_s, bins=np.arange(0.0, spec.arrival_s[-1], 1.0))[0]
    assert np.quantile(counts, 0.1) < 8.0
    assert np.quantile(counts, 0.9) > 30.0
    assert "modulated (4 and 36/s" in notes["arrivals"]


def test_gaps_have_the_spread_that_was_asked_for():
    spec, _ = built(num_requests=20_000, rate_per_s=20.0, arrivals="gamma", gap_cv=3.0)
    gaps = np.diff(spec.arrival_s)
    assert gaps.std() / gaps.mean() == pytest.approx(3.0, rel=0.1)


def test_the_asked_share_of_clients_goes_away_after_the_asked_time():
    spec, notes = built(num_requests=20_000, rate_per_s=20.0, cancel_frac=0.3, cancel_mean_s=4.0)
    goes = np.isfinite(spec.cancel_s)
    assert goes.mean() == pytest.approx(0.3, abs=0.01)
    assert (spec.cancel_s - spec.arrival_s)[goes].mean() == pytest.approx(4.0, rel=0.05)
    assert "30% of clients" in notes["cancellations"]
    assert built(num_requests=10)[0].cancel_s is None


@pytest.mark.parametrize("coupling", [0.0, 0.8, -0.8])
def test_long_answers_come_from_the_kinds_they_are_tied_to(coupling):
    spec, _ = built(num_requests=5000, length_coupling=coupling)
    found = spearmanr(spec.kind, spec.output_tokens).statistic
    assert found == pytest.approx(0.0, abs=0.05) if coupling == 0.0 else np.sign(coupling) * found > 0.5


def mooncake(folder, rows):
    path = folder / "t.jsonl"
    names = ("timestamp", "input_length", "output_length", "hash_ids")
    path.write_text("\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in rows))
    return path


def test_a_slice_of_a_hashed_trace_keeps_its_hashes(tmp_path):
    path = mooncake(
        tmp_path, [(0, 600, 2, [1, 2]), (1000, 1100, 2, [1, 2, 3]), (2000, 512, 2, [1]), (3000, 512, 2, [9])]
    )
    config = EngineConfig(num_blocks=1, block_size=256)
    spec, _ = built(config, trace=path, first_request=1, num_requests=3)
    assert spec.prompt_blocks.of(0).tolist()[:2] == spec.prompt_blocks.of(1).tolist()
    assert len(spec.prompt_blocks.of(0)) == 4
    assert not set(spec.prompt_blocks.of(2)) & set(spec.prompt_blocks.of(0))
    with pytest.raises(InputError, match="must divide the 512 tokens"):
        built(EngineConfig(num_blocks=1, block_size=48), trace=path, num_requests=3)


def test_hashed_prompts_hit_in_the_simulated_plant(tmp_path):
    path = mooncake(tmp_path, [(i * 10_000, 1100, 4, [1, 2, 10 + i]) for i in range(5)])
    plan = scenario(
        workload={"trace": str(path), "num_requests": 5, "rate_per_s": None}, engine={"prefix_caching": True},
        controllers={},
    )  # fmt: skip
    plan = plan.with_changes(controllers={})
    plant = build_plant(plan, 0, frozenset(), 0)
    drive(plant)
    assert plant.ledger.prefix_hit_tokens.tolist() == [0, 1024, 1024, 1024, 1024]


def test_the_mooncake_trace_reuses_what_its_hashes_say(shared_data):
    """One request after another, memory without end: hits against a set of the hashes seen, for the first 1,500 requests."""
    trace = read_trace(shared_data / "traces" / "mooncake" / "conversation_trace.jsonl")
    count = 1500
    offset = trace.hash_offset[: count + 1]
    ids, prompt = trace.hash_id[: offset[-1]], trace.prompt_tokens[:count]
    expected, seen = [], set()
    for r in range(count):
        mine = ids[offset[r] : offset[r + 1]]
        most = (prompt[r] - 1) // 512
        hit = 0
        while hit < min(most, prompt[r] // 512) and mine[hit] in seen:
            hit += 1
        expected.append(hit * 512)
        seen |= set(mine[: prompt[r] // 512].tolist())
    blocks = blocks_of_hashes(offset, ids, prompt, 512, 512)
    zeros = np.zeros(count, np.int64)
    spec = RequestSpec(
        arrival_s=np.arange(count) * 10.0, prompt_tokens=prompt, output_tokens=zeros + 1, kind=zeros, priority=zeros,
        prompt_blocks=blocks,
    )  # fmt: skip
    config = EngineConfig(
        num_blocks=60_000, block_size=512, max_context_tokens=140_000, token_budget=200_000, max_chunk_tokens=200_000,
        prefix_caching=True, max_running=1,
    )  # fmt: skip
    plant = drive(EnginePlant(spec, FormulaExecutor(mass=False), CountedClock(), config, frozenset(), 0))
    np.testing.assert_array_equal(plant.ledger.prefix_hit_tokens, expected)
    assert 0.15 < plant.ledger.prefix_hit_tokens.sum() / prompt.sum() < 0.45


def test_times_in_another_unit_are_questioned(shared_data, tmp_path):
    lines = (shared_data / "traces" / "mooncake" / "conversation_trace.jsonl").read_text().splitlines()[:500]
    rows = [json.loads(line) for line in lines]
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(json.dumps({**row, "timestamp": row["timestamp"] / 1000}) for row in rows))
    assert any("implausible" in note and "another unit" in note for note in read_trace(path).notes)


def test_tied_rows_are_served_in_file_order_and_shuffling_them_says_so(tmp_path):
    rows = [(0, 600 + i, 2, [2 * i, 2 * i + 1]) for i in range(6)]
    a = read_trace(mooncake(tmp_path, rows))
    b = read_trace(mooncake(tmp_path, rows[::-1]))
    assert a.prompt_tokens.tolist() == b.prompt_tokens.tolist()[::-1]
    assert all(any("served in file order" in n for n in t.notes) for t in (a, b))
