"""What the live executor measures, against float64 statistics of the same logits and dense masked attention."""

import numpy as np
import pytest
import torch

from workbench.engine.config import EngineConfig
from workbench.live.session import LiveModel
from workbench.protocols import DecisionPoint, KeepAction, KeepObservation, KeepRule, SamplingAction
from workbench.signals import entropy_and_varentropy

PROMPTS = [[5, 90, 17, 3, 3, 44, 8, 61], [20, 33, 71, 2], [9, 55, 12, 80, 4, 29, 66, 31, 7, 7, 1]]


class Logits:
    """Collects the logits of every sampled token."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int], np.ndarray] = {}

    def __call__(self, request_id, token_index, logits) -> None:
        for row, key in enumerate(zip(request_id.tolist(), token_index.tolist(), strict=True)):
            self.rows[key] = logits[row].double().numpy()

    def of(self, request_id: int, count: int) -> np.ndarray:
        return np.stack([self.rows[request_id, k] for k in range(count)])


@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.0])
def test_statistics_are_those_of_the_logits(tiny_llama: LiveModel, temperature: float) -> None:
    logits = Logits()
    for made in tiny_llama.generate(PROMPTS, max_tokens=9, temperature=temperature, on_logits=logits):
        z = logits.of(made.request_id, 9)
        raw, raw_v = entropy_and_varentropy(z)
        hot, hot_v = entropy_and_varentropy(z, temperature)
        np.testing.assert_allclose(made.entropy_raw_nats, raw, atol=1e-5)
        np.testing.assert_allclose(made.varentropy_raw_nats2, raw_v, atol=1e-4)
        np.testing.assert_allclose(made.entropy_nats, hot, atol=1e-5)
        np.testing.assert_allclose(made.varentropy_nats2, hot_v, atol=1e-4)
        log_p = z - np.log(np.exp(z - z.max(1, keepdims=True)).sum(1, keepdims=True)) - z.max(1, keepdims=True)
        np.testing.assert_allclose(made.surprisal_raw_nats, -log_p[np.arange(9), made.token_ids], atol=1e-4)
        np.testing.assert_allclose(made.temperature_applied, temperature)
        if temperature == 0.0:
            np.testing.assert_array_equal(made.token_ids, z.argmax(axis=1))


def test_draws_belong_to_the_request_not_to_slot_batch_or_order(tiny_llama: LiveModel) -> None:
    """Common random numbers: the same request draws the same tokens alone, in a batch, and in few slots."""
    wide = tiny_llama.generate(PROMPTS, max_tokens=20)
    narrow = tiny_llama.generate(
        PROMPTS, max_tokens=20, config=EngineConfig(num_blocks=64, block_size=4, max_running=1)
    )
    for a, b in zip(wide, narrow, strict=True):
        np.testing.assert_array_equal(a.token_ids, b.token_ids)
    again = tiny_llama.generate(PROMPTS, max_tokens=20, seed=99)
    assert any((a.token_ids != b.token_ids).any() for a, b in zip(wide, again, strict=True))


def test_requests_that_share_a_seed_do_not_share_draws(tiny_llama: LiveModel) -> None:
    """64 equal prompts at a temperature that makes 97 tokens nearly equally likely: about 47 distinct first tokens."""
    made = tiny_llama.generate([PROMPTS[0]] * 64, max_tokens=1, temperature=1e4, max_running=64)
    distinct = len({int(g.token_ids[0]) for g in made})
    assert 36 <= distinct <= 58  # 97 (1 - (1 - 1/97)^64) = 47.0


def test_a_request_may_have_a_seed_of_its_own(tiny_llama: LiveModel) -> None:
    from workbench.live.prompts import PromptSpec

    specs = [PromptSpec(token_ids=tuple(p), seed=s) for p, s in zip(PROMPTS, (7, None, 8), strict=True)]
    one = tiny_llama.generate(specs, max_tokens=12, seed=1)
    two = tiny_llama.generate(specs, max_tokens=12, seed=2)
    np.testing.assert_array_equal(one[0].token_ids, two[0].token_ids)
    np.testing.assert_array_equal(one[2].token_ids, two[2].token_ids)
    assert (one[1].token_ids != two[1].token_ids).any()


@pytest.mark.parametrize("stop", [[2], [2, 11], []])
def test_stops_at_the_first_of_the_union_and_says_why(tiny_llama: LiveModel, stop: list[int]) -> None:
    free = tiny_llama.generate(PROMPTS[:1], max_tokens=40, seed=4)[0].token_ids
    likely = int(free[7])
    model = LiveModel(tiny_llama.decoder, None, [*stop, likely] if stop else [])
    made = model.generate(PROMPTS[:1], max_tokens=40, seed=4)[0]
    ends = [i for i, token in enumerate(free) if token in {*stop, likely}] if stop else []
    assert len(made.token_ids) == (ends[0] + 1 if ends else 40)
    assert made.finish_reason == ("stop" if ends else "length")
    assert len(made.entropy_raw_nats) == len(made.token_ids)


def test_forced_tokens_are_judged_as_if_drawn(tiny_llama: LiveModel) -> None:
    made = tiny_llama.generate(PROMPTS, max_tokens=12, temperature=0.7)
    forced = {g.request_id: g.token_ids.tolist() for g in made}
    again = tiny_llama.generate(PROMPTS, max_tokens=12, temperature=0.7, forced=forced, seed=1234)
    for a, b in zip(made, again, strict=True):
        np.testing.assert_array_equal(a.token_ids, b.token_ids)
        np.testing.assert_allclose(a.surprisal_nats, b.surprisal_nats, atol=1e-4)
        np.testing.assert_allclose(a.surprisal_raw_nats, b.surprisal_raw_nats, atol=1e-4)
        score = tiny_llama.score(a.prompt.token_ids, a.token_ids.tolist(), chunk_tokens=7)
        np.testing.assert_allclose(score.surprisal_raw_nats, a.surprisal_raw_nats, atol=1e-3)
        np.testing.assert_allclose(score.entropy_raw_nats, a.entropy_raw_nats, atol=1e-3)


def test_tokens_stream_as_they_are_drawn(tiny_llama: LiveModel) -> None:
    heard: list[tuple[int, int, int]] = []
    made = tiny_llama.generate(PROMPTS, max_tokens=5, on_token=lambda *token: heard.append(token))
    assert len(heard) == 15
    assert [token for request, _, token in heard if request == 1] == made[1].token_ids.tolist()
    assert [index for request, index, _ in heard if request == 1] == list(range(5))


def test_recorded_temperatures_are_those_of_the_same_logits(tiny_llama: LiveModel) -> None:
    logits = Logits()
    made = tiny_llama.plant(PROMPTS, 4, on_logits=logits, calibration_temperatures=(0.5, 1.4))
    run(made)
    for step in made.plant.telemetry.tokens:
        for row in range(step["request_id"].size):
            z = logits.rows[int(step["request_id"][row]), int(step["token_index"][row])]
            for column, t in enumerate((0.5, 1.4)):
                h, v = entropy_and_varentropy(z, t)
                assert abs(step["entropy_at_temperature"][row, column] - h) < 1e-5
                assert abs(step["varentropy_at_temperature"][row, column] - v) < 1e-4


def run(made, controllers=None) -> None:
    from workbench.live.session import _NoRecord
    from workbench.loop import close_loop

    close_loop(made.plant, controllers or {}, _NoRecord())


class EvictOnce:
    """Evicts given logical blocks of every row at one token index, and masks nothing else."""

    point = DecisionPoint.KEEP

    def __init__(self, blocks: list[int], at_context: int, evict: bool = True) -> None:
        self.blocks, self.at_context, self.evict = blocks, at_context, evict
        self.seen: list[np.ndarray] = []

    def init(self, capacity: int) -> None:
        return None

    def step(self, state: None, observation: KeepObservation) -> tuple[None, KeepAction]:
        slots, width = observation.num_slots, observation.block_mass.shape[1]
        self.seen.append(observation.block_mass.copy())
        now = observation.active & (observation.context_tokens >= self.at_context)
        if self.evict:
            now = observation.active & (observation.context_tokens == self.at_context)
        score = np.full((slots, max(width, 1 + max(self.blocks))), 10.0)
        score[:, self.blocks] = 0.0
        count = np.full(slots, len(self.blocks))
        return None, KeepAction(
            rule=np.where(now, int(KeepRule.TOP_BLOCKS), int(KeepRule.ALL)),
            mass_budget=np.zeros(slots),
            block_budget_frac=np.clip(1.0 - count / np.maximum(observation.num_blocks, 1), 0.01, 1.0),
            sink_blocks=np.zeros(slots, np.int64),
            recent_blocks=np.ones(slots, np.int64),
            score=score,
            evict=np.full(slots, self.evict),
        )


@pytest.mark.parametrize("evict", [True, False])
def test_positions_survive_dropping_blocks_from_the_middle(tiny_llama: LiveModel, evict: bool) -> None:
    """Blocks of 5: tokens 10 to 19 of 64 dropped; then 200 more steps equal a dense run with those keys masked."""
    prompt = np.random.default_rng(0).integers(0, 97, 63).tolist()
    logits = Logits()
    controller = EvictOnce([2, 3], at_context=64, evict=evict)
    made = tiny_llama.plant(
        [prompt], 202, temperature=1.0, on_logits=logits,
        config=EngineConfig(num_blocks=60, block_size=5, max_running=1),
        controlled=frozenset({DecisionPoint.KEEP}),
    )  # fmt: skip
    run(made, {DecisionPoint.KEEP: controller})
    answer = made.executor.outputs[0]
    expected = dense_with_masked_keys(tiny_llama, prompt, answer, first_query=63, masked=range(10, 20))
    got = torch.from_numpy(logits.of(0, 202))
    assert (got - expected).abs().max() < 1e-3
    if evict:
        assert made.plant.ledger.num_preempted[0] == 0
        columns = made.plant.telemetry.step_table()
        assert columns["kv_blocks_used"].max() <= 13 + 40 - 2 + 1, "evicted blocks were given back"


def dense_with_masked_keys(model: LiveModel, prompt, answer, first_query: int, masked: range) -> torch.Tensor:
    """An independent dense forward in plain torch: queries from `first_query` on do not see the `masked` keys."""
    decoder, config = model.decoder, model.config
    t = decoder.model.tensors
    ids = torch.tensor([*prompt, *answer])
    n, d = len(ids) - 1, config.head_dim
    x = t["model.embed_tokens.weight"][ids[:n]]
    mask = torch.ones(n, n, dtype=torch.bool).tril()
    mask[first_query:, list(masked)] = False
    angle = torch.arange(n)[:, None] / config.rope_theta ** (torch.arange(0, d, 2) / d)
    cos, sin = torch.cat([angle.cos()] * 2, -1), torch.cat([angle.sin()] * 2, -1)

    def norm(x, w):
        return x / (x.square().mean(-1, keepdim=True) + config.norm_eps).sqrt() * w

    def turn(v):
        return v * cos[:, None] + torch.cat([-v[..., d // 2 :], v[..., : d // 2]], -1) * sin[:, None]

    for i in range(config.num_layers):
        p = f"model.layers.{i}."
        y = norm(x, t[p + "input_layernorm.weight"])
        q, k, v = ((y @ t[f"{p}self_attn.{s}_proj.weight"].T).view(n, -1, d) for s in "qkv")
        q, k = turn(q), turn(k).repeat_interleave(config.group_size, 1)
        v = v.repeat_interleave(config.group_size, 1)
        scores = torch.einsum("qhd,khd->hqk", q, k) / d**0.5
        weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
        x = x + torch.einsum("hqk,khd->qhd", weights, v).reshape(n, -1) @ t[p + "self_attn.o_proj.weight"].T
        y = norm(x, t[p + "post_attention_layernorm.weight"])
        gate, up = (y @ t[f"{p}mlp.{s}_proj.weight"].T for s in ("gate", "up"))
        x = x + (torch.nn.functional.silu(gate) * up) @ t[p + "mlp.down_proj.weight"].T
    out = norm(x, t["model.norm.weight"]) @ t["lm_head.weight"].T
    return out[len(prompt) - 1 :]


def test_masses_sum_to_one_and_what_is_dropped_is_measured(tiny_llama: LiveModel) -> None:
    prompt = np.random.default_rng(2).integers(0, 97, 40).tolist()
    config = EngineConfig(num_blocks=40, block_size=5, max_running=1)

    def masses(controller: EvictOnce):
        made = tiny_llama.plant(
            [prompt], 12, temperature=0.0, config=config, controlled=frozenset({DecisionPoint.KEEP}), mass_by_head=True
        )
        run(made, {DecisionPoint.KEEP: controller})
        return made

    everything = EvictOnce([1], at_context=10**6, evict=False)
    dense = masses(everything)
    for seen in everything.seen[1:]:
        assert abs(np.nansum(seen[0]) - 1.0) < 1e-5
    tokens = dense.plant.telemetry.tokens
    assert all((step["dropped_mass"] == 0.0).all() for step in tokens)
    for step in tokens[1:]:
        by_head = step["block_mass_by_head"][0]
        assert by_head.shape[:2] == (3, 2)
        np.testing.assert_allclose(by_head.sum(axis=2), 1.0, atol=1e-5)
    # One forward pass with blocks masked: what it lost is what the dense pass says those blocks hold at each head.
    masked = masses(EvictOnce([2, 3], at_context=41, evict=False))
    first_masked = masked.plant.telemetry.tokens[1]
    first_dense = tokens[1]["block_mass_by_head"][0]
    # Layer 0 sees the same query in both runs; deeper ones differ a little, since errors compound.
    lost = first_dense[:, :, 2:4].sum(axis=2)
    assert first_masked["dropped_mass"][0] == pytest.approx(lost.mean(), abs=0.05)
    table = masked.plant.telemetry.step_table()
    assert table["kv_bytes_read"][1] == pytest.approx(table["kv_bytes_dense"][1] * (41 - 10) / 41)


def test_a_sampling_law_reaches_the_logits(tiny_llama: LiveModel) -> None:
    class Solve:
        point = DecisionPoint.TEMPERATURE

        def init(self, capacity):
            return None

        def step(self, state, observation):
            slots = observation.num_slots
            return None, SamplingAction(
                temperature=np.ones(slots), target_entropy_nats=np.full(slots, 1.25), temperature_min=0.01,
                temperature_max=10.0,
            )  # fmt: skip

    made = tiny_llama.generate(PROMPTS, max_tokens=6, controllers={DecisionPoint.TEMPERATURE: Solve()})
    for g in made:
        np.testing.assert_allclose(g.entropy_nats, 1.25, atol=1e-3)
        assert (g.temperature_applied != 1.0).all()


def test_preemption_recomputes_and_changes_no_token(tiny_llama: LiveModel) -> None:
    ample = tiny_llama.generate(
        PROMPTS * 2, max_tokens=40, config=EngineConfig(num_blocks=200, block_size=4, max_running=6)
    )
    made = tiny_llama.plant(PROMPTS * 2, 40, config=EngineConfig(num_blocks=24, block_size=4, max_running=6))
    run(made)
    assert made.plant.ledger.num_preempted.sum() > 0, "memory this tight must preempt"
    for g, tokens in zip(ample, made.executor.outputs, strict=True):
        assert g.token_ids.tolist() == tokens


def test_a_row_without_a_distribution_ends_and_leaves_the_others_alone(tiny_llama: LiveModel) -> None:
    """NaN in one row's logits: that request ends with a reason, nobody else changes."""
    ops = tiny_llama.decoder.ops
    calls = {"n": 0}

    def broken(logits, temperature, **options):
        calls["n"] += 1
        if calls["n"] == 4:
            logits = logits.clone()
            logits[1, 5] = float("nan")
        return ops.logit_stats(logits, temperature, **options)

    from dataclasses import replace

    whole = tiny_llama.generate(PROMPTS, max_tokens=8)
    try:
        tiny_llama.decoder.ops = replace(ops, logit_stats=broken)
        hurt = tiny_llama.generate(PROMPTS, max_tokens=8)
    finally:
        tiny_llama.decoder.ops = ops
    assert hurt[1].finish_reason == "no distribution"
    assert len(hurt[1].token_ids) == 4
    for i in (0, 2):
        np.testing.assert_array_equal(hurt[i].token_ids, whole[i].token_ids)
