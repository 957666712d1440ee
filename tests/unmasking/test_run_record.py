"""Decoding runs on real models are recorded, and replay bit for bit from the record alone."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.live.test_masked_text import MASK, dream, llada
from workbench.errors import InputError
from workbench.record import find_arms, read_manifest
from workbench.replay import replay_arm
from workbench.unmasking.policies import named_policy
from workbench.unmasking.text import TextSetting, text_study


def setting(directory: Path, policy: str = "entropy-sum:4", **more) -> TextSetting:
    values = {"prompt": (5, 9, 11), "length": 12, "temperature": 1.0, "repeats": 3, "seed": 7} | more
    return TextSetting(directory, policy=named_policy(policy), **values)


@pytest.mark.parametrize("policy", ["entropy-sum:4", "klass:0.2", "entropy-sum:inf"])
@pytest.mark.parametrize("family", ["dream", "llada"])
def test_text_is_decoded_recorded_and_replayed(family: str, policy: str, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    {"dream": dream, "llada": llada}[family](tmp_path / "model")
    study, pictures = text_study(setting(tmp_path / "model", policy), "made", lambda share: None, tmp_path / "run")
    assert study.ok
    assert {"order.png", "run.gif"} == set(pictures)
    (arm,) = find_arms(tmp_path / "run")
    result = replay_arm(arm)
    assert result.ok, result.first_difference
    requests = pl.read_parquet(arm / "requests.parquet")
    assert requests["output_tokens"].to_list() == [12] * 3
    assert result.num_decisions == requests["passes"].max()
    tokens = pl.read_parquet(arm / "sequences.parquet").filter(pl.col("point") == "measure")
    assert tokens.height == 3 * 12
    assert not (tokens["token_id"] == MASK).any()
    if policy == "entropy-sum:inf":
        assert requests["passes"].to_list() == [1] * 3
        assert read_manifest(arm)["scenario"]["controllers"]["reveal"]["eta_nats"] == "inf"


def test_an_altered_decision_is_found(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    dream(tmp_path / "model")
    text_study(setting(tmp_path / "model"), "made", lambda share: None, tmp_path / "run")
    (arm,) = find_arms(tmp_path / "run")
    table = pq.read_table(arm / "sequences.parquet")
    name = "obs_permutation_rank"
    values = table[name].to_pylist()
    values[0] = values[0][::-1]
    place = table.column_names.index(name)
    altered = table.set_column(place, name, pa.array(values, table.schema.field(name).type))
    pq.write_table(altered, arm / "sequences.parquet")
    assert not replay_arm(arm).ok


def test_nothing_masked_is_one_line(tmp_path: Path) -> None:
    dream(tmp_path)
    with pytest.raises(InputError, match="nothing is masked"):
        text_study(setting(tmp_path, length=0), "made", lambda share: None)
    with pytest.raises(InputError, match="--length"):
        text_study(setting(tmp_path, length=-1), "made", lambda share: None)


@pytest.mark.skipif(find_spec("sapiens") is None, reason="the package sapiens is not installed")
def test_proteins_are_recorded_a_sequence_an_arm(tmp_path: Path) -> None:
    from workbench.unmasking.proteins import ProteinBench

    bench, policy = ProteinBench("sapiens-light"), named_policy("entropy-sum:20")
    names = list(bench.sequences)[:2]
    found = bench.decode(
        policy.policy, 0.5, sequences=names, maskings=2, seed=3, scored=0, temperature=0.7, record=(policy, tmp_path)
    )
    arms = find_arms(tmp_path)
    assert [arm.name for arm in arms] == sorted(names)
    for arm in arms:
        result = replay_arm(arm)
        assert result.ok, result.first_difference
    texts = pl.read_parquet(tmp_path / found.names[0] / "requests.parquet")["output_text"].to_list()
    assert texts == [bench.model.decode(np.asarray(t)) for t in found.tokens[:2]]
