"""`workbench prune` from end to end on a tiny random model: nothing dropped means nothing changed, claims are checked."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from kernels.dispatch import backend
from tests.live.tiny import save, tiny_reference
from workbench.errors import InputError
from workbench.live.decoder import Decoder
from workbench.live.weights import load_model
from workbench.pruning.arms import BASELINES, KeptShare, arms, bisect
from workbench.pruning.decode import decode, layer_share, score_keep
from workbench.pruning.figures import arm_figures, duels, entropy_law, interval_of
from workbench.pruning.key_rules import KeyRules
from workbench.pruning.predictors import predictor_errors
from workbench.pruning.prefix import BLOCK_SIZE, PromptMass, dense_queries, prefill
from workbench.pruning.regime import regime, sentences
from workbench.pruning.study import Settings, places
from workbench.pruning.texts import make_text

TOKENS, TAIL = 420, 6


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A prefix of a random text in a random Llama with 8 heads over 2 KV heads, its dense queries and its sketches."""
    directory = save(tiny_reference("llama"), tmp_path_factory.mktemp("tiny"))
    decoder = Decoder(load_model(directory, "fp32"), backend("torch"))
    ids = np.random.default_rng(0).integers(3, 97, TOKENS).tolist()
    prefix = prefill(decoder, ids, TOKENS - TAIL, spare_blocks=200)
    positions = [*range(60, 300, 20), *range(TOKENS - TAIL - 32, TOKENS - TAIL)]
    queries = dense_queries(prefix, positions)
    return {"decoder": decoder, "prefix": prefix, "queries": queries, "rules": KeyRules(prefix, queries), "ids": ids}


def test_prefill_and_queries_are_those_of_the_model(scene: dict[str, Any]) -> None:
    queries, prefix = scene["queries"], scene["prefix"]
    np.testing.assert_allclose(np.nansum(queries.mass, axis=3), 1.0, atol=1e-5)
    assert queries.last(32).position[-1] == TOKENS - TAIL - 1
    assert prefix.surprisal_nats.mean() == pytest.approx(np.log(97), abs=1.0)


def test_every_policy_decodes_and_what_reads_everything_changes_nothing(scene: dict[str, Any]) -> None:
    prefix, rules = scene["prefix"], scene["rules"]
    warmup = scene["queries"].last(32)
    uncovered = -(-prefix.num_tokens // BLOCK_SIZE) - rules.covered + 1
    every = arms((0.5,), warmup, scene["decoder"].config.head_dim, uncovered)
    found = decode(prefix, warmup, every, rules, lambda share: None)
    assert found.kl_nats.shape == (TAIL - 1, len(every))
    assert np.all(found.kl_nats[:, 0] == 0.0)
    assert np.all(found.bytes_frac[:, 0] == 1.0)
    assert np.all(found.kl_nats >= 0.0)
    assert np.all(found.blocks_frac[:, 1:] <= 1.0)
    names = [arm.name for arm in every]
    for r, name in enumerate(names):
        claims = [step[r] for step in found.touched]
        assert (claims[0] is not None) == name.startswith("certified")
        for claim in filter(None, claims):
            assert np.all(claim.dropped <= claim.bound * (1 + 1e-6) + 1e-9)
            assert np.all(claim.output_change <= claim.output_bound * (1 + 1e-6) + 1e-6)
            budget = float(name.split()[-1])
            if "output" in name:
                size = claim.output_norm + claim.output_change  # of the pruned output, at most
                assert np.all(claim.output_bound <= budget * size * (1 + 1e-5))
            else:
                assert np.all(claim.bound <= budget + 1e-9)
    streaming = found.blocks_frac[:, names.index("streaming-llm")]
    assert np.all(np.abs(streaming - 0.5) < 0.05)


def test_short_prompts_drop_nothing() -> None:
    """Four sinks and 64 recent tokens on 68 tokens: the share is what it is, not what was asked for."""
    from controllers.pruning.streaming_llm import StreamingLLM
    from tests.controllers.pruning.test_least_mass import observation

    policy = StreamingLLM(sink_blocks=1, window_blocks=4)
    for tokens, expected in ((68, 1.0), (100, 5 / 7), (128, 5 / 8)):
        blocks = -(-tokens // BLOCK_SIZE)
        _, action = policy.step(None, observation(0, [[1.0 / blocks] * blocks]))
        assert score_keep(action, blocks, 1).mean() == pytest.approx(expected)


def test_layer_taper_keeps_the_mean_share(scene: dict[str, Any]) -> None:
    from controllers.pruning.pyramid import Pyramid
    from tests.controllers.pruning.test_least_mass import observation

    policy = Pyramid(block_budget_frac=0.4, taper=0.5)
    _, action = policy.step(policy.init(6), observation(0, [[0.5, 0.5]] * 6))
    np.testing.assert_allclose(layer_share(action, 3), [0.6, 0.6, 0.4, 0.4, 0.2, 0.2])


def test_certified_choice_of_other_queries_is_true_and_the_plan_is_remembered(scene: dict[str, Any]) -> None:
    from workbench.pruning.curve import certificate_curve

    rules = scene["rules"]
    rows = certificate_curve(rules, np.random.default_rng(1))
    assert sum(row["violations"] for row in rows) == 0
    for row in rows:
        assert 0.0 <= row["vacuous_frac"] <= 1.0
        if row["stops_by"] == "mass":
            assert row["oracle_blocks_frac"] <= row["blocks_frac"] + 1e-9
            assert row["dropped_mass"] <= row["dropped_bound"] * (1 + 1e-6) + 1e-9
            assert row["dropped_bound"] <= row["budget"] * (1 + 1e-5)
        else:
            assert row["output_change"] <= row["output_bound"] * (1 + 1e-6) + 1e-6
            assert row["output_bound"] <= row["budget"] * (1 + 1e-5)
    assert {row["stops_by"] for row in rows} == {"mass", "output"}
    before = {key: plan.clone() for key, plan in rules.sketch._plans.items()}
    certificate_curve(rules, np.random.default_rng(2))
    assert all((rules.sketch._plans[key] == plan).all() for key, plan in before.items())


def test_the_prompts_sum_is_that_of_dense_attention(scene: dict[str, Any]) -> None:
    """Every fourth query stands for its neighbours: the sum over them, times four, of masses seen one by one."""
    prefix = scene["prefix"]
    some = dense_queries(prefix, range(0, prefix.num_tokens, PromptMass.EVERY))
    expected = PromptMass.EVERY * np.nansum(some.mass, axis=1)
    np.testing.assert_allclose(prefix.summed_mass[:, :, : expected.shape[2]], expected, rtol=1e-4, atol=1e-4)


def test_predictors_are_judged_against_the_oracle(scene: dict[str, Any]) -> None:
    rows = predictor_errors(scene["rules"], scene["queries"].last(32))
    for row in rows:
        assert 0.0 <= row["error"] <= 1.0
        assert row["missed_mass"] >= row["oracle_missed_mass"] - 1e-12


def test_budgets_of_mass_are_found_by_bisection(scene: dict[str, Any]) -> None:
    share = KeptShare(scene["queries"].last(32), 2)
    budget = bisect(share.of, 0.5)
    assert share.of(budget) == pytest.approx(0.5, abs=0.05)
    assert share.of(1e-6) >= share.of(0.1) >= share.of(0.9)
    with pytest.raises(InputError, match="share of bytes"):
        arms((0.01,), scene["queries"].last(32), 8, 2)


def encode(text: str) -> list[int]:
    """A stand-in tokenizer: words and marks."""
    import re

    return [hash(part) % 9973 for part in re.findall(r"\d|\w+|[^\w\s]|\n", text)]


@pytest.mark.parametrize("kind", ["code", "keyvalue", "needles"])
def test_texts_are_functions_of_seed_and_length(kind: str) -> None:
    one, same, other = (make_text(kind, seed, 1500, 8, encode, None) for seed in (1, 1, 3))
    assert one == same
    assert one.ids != other.ids
    assert abs(len(one.ids) - 1500) < 30
    for first, end in one.answers:
        assert len(one.ids) - one.num_tail < first < end <= len(one.ids)
        assert list(one.ids[first:end]) == encode("1234")[:0] + list(one.ids[first:end])
        body = list(one.ids[: len(one.ids) - one.num_tail])
        answer = list(one.ids[first:end])
        assert any(body[i : i + len(answer)] == answer for i in range(len(body))), "the answer stands in the text"


def test_bad_studies_are_refused() -> None:
    with pytest.raises(InputError, match="text kind"):
        make_text("poems", 0, 1000, 8, encode, None)
    with pytest.raises(InputError, match="continuation"):
        make_text("code", 0, 1000, 1000, encode, None)
    for bad in (Settings(contexts=(100,)), Settings(contexts=(4096,), tail_tokens=2000), Settings(texts_per_kind=0)):
        with pytest.raises(InputError):
            bad.check(8192)


def test_a_text_has_one_place_whatever_else_is_in_the_study(tmp_path: Path) -> None:
    few, many = Settings(texts_per_kind=1), Settings(texts_per_kind=2)
    assert {p.folder for p in places(few, tmp_path)} < {p.folder for p in places(many, tmp_path)}
    assert not {p.folder for p in places(few, tmp_path)} & {p.folder for p in places(Settings(tail_tokens=9), tmp_path)}


def fake_steps() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    rows = []
    for seed in range(6):
        for arm, target, kl in (("none", np.nan, 0.0), ("quest", 0.5, 0.02), ("sketch-mass", 0.5, 0.01)):
            for position in range(20):
                rows.append(
                    {
                        "context": 4096, "kind": "code", "seed": seed, "arm": arm, "target_frac": target,
                        "position": position, "answer": 1 + position // 10, "kl_nats": kl * rng.uniform(0.9, 1.1),
                        "nll_nats": 1.0 + seed + kl, "entropy_nats": 2.0 + kl, "right": arm == "none" or position > 3,
                        "blocks_frac": 1.0 if arm == "none" else 0.4, "sketch_frac": 0.0 if arm == "none" else 0.05,
                        "dropped_mass": np.nan if position % 2 else 2.0 * kl,
                    }
                )  # fmt: skip
    return pl.DataFrame(rows)


def test_figures_are_paired() -> None:
    figures = arm_figures(fake_steps())
    dense, quest, ours = figures
    assert dense.metrics["bytes_frac"].value == 1.0
    assert quest.metrics["nll_loss_nats"].value == pytest.approx(0.02)
    assert quest.metrics["nll_loss_nats"].high - quest.metrics["nll_loss_nats"].low < 1e-9, "levels of texts cancel"
    assert dense.metrics["accuracy"].value == 1.0
    assert ours.metrics["accuracy"].value == 0.5
    (duel,) = duels(figures)
    assert (duel.ours, duel.baseline) == ("sketch-mass", "quest")
    assert duel.kl_nats.high < 0.0
    law, texts = entropy_law(figures)
    assert texts == 6
    assert law.value == pytest.approx(0.5)
    assert np.isnan(interval_of(np.array([np.nan])).value)
    assert "quest" in BASELINES


def test_regime_names_where_nothing_changes() -> None:
    found = regime(0.25, 0.25)
    assert found.mask[0, 0] == pytest.approx(1.0, abs=0.02), "batch 1 at 1,024 tokens is bound by the weights"
    assert np.nanmax(found.mask) > 1.5
    assert np.all(found.evict[~np.isnan(found.evict)] >= 1.0)
    assert regime(1.0, 1.0).mask[0, 0] == 1.0
    assert len(sentences(found)) == 2


def test_command_refuses_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    from workbench.cli.app import build_app

    for words, told in (
        (["--budget", "0"], "--budget"), (["--budget", "1.5"], "--budget"), (["--window", "9000"], "--window"),
        (["--sinks", "99999"], "--sinks"), (["--policy", "snapkvv"], "snapkv"), (["--text", "poem"], "text kind"),
        (["--context", "64"], "--context"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=told):
            build_app(["prune"])(["prune", *words], standalone_mode=False)


def test_kvpress_sentences_tell_refusals() -> None:
    from workbench.pruning.kvpress_peer import sentences as told

    rows = json.loads(
        '[{"text": "a", "press": "snapkv", "target_frac": 0.5, "kept_frac": 0.5, "kl_nats": 0.01, "nll_loss_nats": 0.002},'
        ' {"text": "a", "press": "tova", "target_frac": 0.5, "error": "no"}]'
    )
    (line,) = told(rows)
    assert "snapkv 0.0100 (+0.0020, keeps 0.500)" in line
    assert "tova refused (no)" in line
