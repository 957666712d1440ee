"""Experiments from data that is known: what they measure is what was put in."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from workbench.claims.claim import Verdict, decide
from workbench.claims.experiments import factorial_vllm, quality, routing, temper
from workbench.claims.experiments.max_entropy import ETAS, at_budget, best, entropy_sum_ladder
from workbench.claims.experiments.probe import quantities as probe_quantities
from workbench.claims.experiments.probe import shortened
from workbench.claims.experiments.routing import against_cot, auroc, sarle
from workbench.claims.not_at_hand import NotAtHand
from workbench.claims.registry import CLAIMS
from workbench.claims.setting import Setting
from workbench.protocols import Strategy
from workbench.routing.panel import Panel
from workbench.signals import FloatArray
from workbench.strict_json import strict_json

BY_ID = {claim.id: claim for claim in CLAIMS}


def arm(folder: Path, switches: dict[str, bool], seed: int, latency_s: float, engine: str) -> None:
    """A record of ten requests that take `latency_s` each."""

    folder.mkdir(parents=True)
    start = np.arange(10.0)
    pl.DataFrame(
        {"request_id": np.arange(10), "arrival_s": start, "first_scheduled_s": start, "first_token_s": start + 0.1,
         "finished_s": start + latency_s, "output_tokens": np.full(10, 20)}
    ).write_parquet(folder / "requests.parquet")  # fmt: skip
    pl.DataFrame({"step": np.arange(10), "start_s": start, "elapsed_s": np.full(10, 0.5)}).write_parquet(
        folder / "steps.parquet"
    )
    manifest = {"arm": switches, "seed": seed, "plant": "live", "notes": {"engine": engine}}
    (folder / "manifest.json").write_text(strict_json(manifest))


def test_vllm_records_pair_by_seed(tmp_path: Path) -> None:
    both = {"scheduler": True, "temperature": True}
    for seed in range(4):
        arm(tmp_path / f"none/seed{seed}", {}, seed, 2.0 + 0.1 * seed, "vllm")
        arm(tmp_path / f"ST/seed{seed}", both, seed, 1.0 + 0.05 * seed, "vllm")
        arm(tmp_path / f"other/seed{seed}", both, seed, 9.0, "")  # not served by vLLM: left out
    found = factorial_vllm.measure(Setting(True, 0, tmp_path, vllm=tmp_path))
    assert found["vllm_ST_latency"].value == pytest.approx(0.5)
    assert found["vllm_ST_latency"].num_replicates == 4
    assert BY_ID["et-system-vllm"].quantities[0].rule.verdict(found["vllm_ST_latency"]) is Verdict.REPRODUCED
    with pytest.raises(NotAtHand, match="--vllm"):
        factorial_vllm.measure(Setting(True, 0, tmp_path))
    with pytest.raises(NotAtHand, match="no vLLM arm"):
        factorial_vllm.measure(Setting(True, 0, tmp_path, vllm=tmp_path / "none"))


def test_quality_counts_what_is_lost() -> None:
    right = {name: np.zeros(200, dtype=bool) for name in ("greedy", "pruned", "constant", "steered", "steered_pruned")}
    right["greedy"][:60] = right["constant"][:60] = right["steered"][:60] = right["steered_pruned"][:60] = True
    right["pruned"][:20] = True
    rouge = dict.fromkeys((*right, "rounding"), np.full(200, 0.95))
    rouge["steered"] = np.full(200, 0.5)
    found = quality.quantities(right, rouge)
    assert found["match_lost_pruned"].value == pytest.approx(0.2)
    assert found["match_lost_steered"].value == 0.0
    assert found["rouge_lost_steered"].value == pytest.approx(0.45)
    assert decide(BY_ID["et-quality-match"], found) is Verdict.NOT_REPRODUCED
    assert decide(BY_ID["et-quality-rouge"], found) is Verdict.NOT_REPRODUCED
    kept = {name: right["greedy"] for name in right}
    level = dict.fromkeys(rouge, np.full(200, 0.95))
    assert decide(BY_ID["et-quality-rouge"], quality.quantities(kept, level)) is Verdict.REPRODUCED


def fake_study(law_distance: float):
    """Constants whose distance from H* is 1 at every T, and a law at `law_distance` with the same mean entropy as T = 1."""
    from workbench.temper.study import GRID, Run, Study

    tokens = np.arange(40)

    def run(mean: float, distance: float) -> Run:
        h = np.stack([mean + distance * (-1.0) ** (tokens + i) for i in range(8)])
        return Run(h, h, h, h, np.ones_like(h), np.zeros(h.shape, np.int64))

    grid = {t: run(1.5 + 0.1 * np.log(t), 1.0) for t in GRID}
    law = run(1.5, law_distance)
    return Study(1.5, (1.0, 2.0), 20, 100, (), {"pi": law}, {}, grid)


def test_oscillation_against_the_matched_constant() -> None:
    found = temper.quantities(fake_study(0.8))
    assert found["tracking_saved"].value == pytest.approx(0.2, abs=1e-3)
    assert found["variation_saved"].value == pytest.approx(0.2, abs=1e-3)
    assert decide(BY_ID["et-oscillation-live"], found) is Verdict.REPRODUCED
    assert decide(BY_ID["et-oscillation-live"], temper.quantities(fake_study(1.2))) is Verdict.NOT_REPRODUCED


def panel(entropy: FloatArray, cot_only: Sequence[bool]) -> Panel:
    n, width = entropy.shape
    correct = np.zeros((n, 3), dtype=bool)
    correct[:, Strategy.COT] = cot_only
    tokens = np.full((n, 3), width)
    tokens[:, Strategy.COT] = 200
    return Panel(
        task="t", scoring="extraction", position=np.arange(n), correct=correct, answered=np.ones_like(correct),
        output_tokens=tokens, prompt_tokens=tokens, probe_tokens=np.full(n, width), probe_entropy_nats=entropy,
        probe_surprisal_nats=entropy, chance=float("nan"),
    )  # fmt: skip


def test_a_trend_that_turns_after_64_tokens_changes_decisions() -> None:
    generator = np.random.default_rng(0)
    noise = 0.01 * generator.normal(size=(40, 128))
    fall, turn = np.linspace(2.0, 1.0, 128), np.concatenate([np.linspace(2.0, 1.0, 64), np.linspace(1.0, 4.0, 64)])
    same = probe_quantities([panel(fall + noise, [True, False] * 20)], 0)
    turned = probe_quantities([panel(turn + noise, [True, False] * 20)], 0)
    assert same["decision_changes"].high == 0.0
    assert turned["decision_changes"].low == 1.0
    assert decide(BY_ID["edrm-probe-length"], turned) is Verdict.NOT_REPRODUCED
    short = shortened(panel(turn + noise, [True, False] * 20), 64)
    assert short.probe_entropy_nats.shape == (40, 64)
    assert (short.probe_tokens == 64).all()


def test_auroc_and_sarle_of_known_samples() -> None:
    helped = np.array([True] * 5 + [False] * 15)
    trend = np.where(helped, -1.0, 1.0) + np.linspace(0.0, 0.1, 20)
    one = np.ones((1, 20))
    assert auroc(trend, helped, np.zeros(20, np.int64))(one)[0] == 1.0
    assert auroc(-trend, helped, np.zeros(20, np.int64))(one)[0] == 0.0
    x = np.random.default_rng(0).normal(size=5000)
    assert sarle(x)(np.ones((1, 5000)))[0] == pytest.approx(1 / 3, abs=0.02)  # a normal law
    assert sarle(np.sign(x))(np.ones((1, 5000)))[0] == pytest.approx(1.0, abs=0.01)  # two points
    weights = np.random.default_rng(1).multinomial(200, np.full(200, 1 / 200), 3).astype(float)
    y = x[:200]
    for w, got in zip(weights, sarle(y)(weights), strict=True):
        z = np.repeat(y, w.astype(int))
        m2, m3, m4 = (((z - z.mean()) ** p).mean() for p in (2, 3, 4))
        assert got == pytest.approx((m3**2 / m2**3 + 1.0) / (m4 / m2**2))


def test_data_set_level_pays_for_no_probe() -> None:
    flat = panel(np.ones((30, 64)), [False] * 30)
    standard = np.full(30, int(Strategy.STANDARD))
    found = against_cot(flat, standard, False, 0)
    assert found["saved"].value == pytest.approx(1.0 - 64 / 200)
    direct = np.full(30, int(Strategy.DIRECT))
    assert against_cot(flat, direct, True, 0)["saved"].value == pytest.approx(1.0 - (64 + 64) / 200)


def test_the_record_is_at_hand() -> None:
    assert set(routing.TASKS) <= set(routing.recorded()["task"].unique().to_list())


def test_bisection_finds_the_rung_that_a_walk_finds() -> None:
    from controllers.unmasking.entropy_sum import EntropySum
    from sims.oracles.markov import Markov
    from workbench.claims.experiments.max_entropy import EPS_NATS
    from workbench.unmasking.accounts import account

    oracle = Markov.sticky(64, 8, 10.0)
    found = best(oracle, entropy_sum_ladder(), 8, 0)
    walked = [
        account(oracle, EntropySum(eta_nats=eta), repeats=8, seed=0, sampled_path=False) for eta in ETAS
    ]  # fmt: skip
    within = [a for a in walked if a.kl_nats.mean <= EPS_NATS]
    assert found.policy.eta_nats == ETAS[len(within) - 1]  # type: ignore[attr-defined]
    assert walked[len(within)].iterations.mean <= found.iterations <= within[-1].iterations.mean
    assert at_budget(oracle, [EntropySum(eta_nats=50.0)], 8, 0) is None
