"""Laws, pruning and masked models in transformers: against our own engine, dense attention, and the model run alone."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from kernels.dispatch import backend
from tests.live.tiny import tiny_reference
from tests.readme_tree import ROOT
from workbench.catalog import build_controllers
from workbench.errors import InputError
from workbench.live.engines.transformers_masked import fill_masks
from workbench.live.engines.transformers_processor import LogitsSteering
from workbench.live.engines.transformers_pruning import Pruner, pruning
from workbench.live.engines.transformers_run import steered
from workbench.protocols import DecisionPoint
from workbench.replay import replay_arm

PI = {"kind": "pi", "target_entropy_nats": 2.0}


@pytest.fixture(scope="module")
def model():
    made = tiny_reference("llama")
    made.generation_config.eos_token_id = None
    made.generation_config.pad_token_id = 0
    return made


def padded(prompts):
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    return {"input_ids": ids, "attention_mask": mask}


PROMPTS = [[5 + (7 * i + j) % 90 for j in range(n)] for i, n in enumerate((3, 17, 200))]


def entropies(recorded):
    return {k: v["entropy_raw_nats"] for k, v in recorded.items()}


def collect(into):
    def on_measured(m):
        for i, (r, t) in enumerate(zip(m.rows.request_id.tolist(), m.rows.token_index.tolist(), strict=True)):
            into[r, t] = {"token": int(m.token_id[i]), **{name: v[i] for name, v in m.values.items()}}

    return on_measured


@pytest.mark.parametrize(
    "table", [PI, {"kind": "mirostat", "target_surprisal_nats": 2.0}, {"kind": "edt"}], ids=lambda t: t["kind"]
)
def test_one_seed_gives_the_tokens_of_our_engine(tiny_llama_directory, tiny_llama, model, table):
    """fp32, greedy search over logits that our noise has decided."""
    steering = LogitsSteering.for_model(model, {"controllers": {"temperature": table}}, seed=3)
    try:
        out = model.generate(**padded(PROMPTS[:2]), logits_processor=[steering], do_sample=False, max_new_tokens=24)
    finally:
        steering.close()
    context = {"vocab_size": 97, "delay_steps": 0}
    laws = build_controllers({DecisionPoint.TEMPERATURE: table}, context)
    ours = tiny_llama.generate(PROMPTS[:2], 24, controllers=laws, seed=3, ignore_stop=True)
    assert out[:, 17:].tolist() == [g.token_ids.tolist() for g in ours]


@pytest.mark.engines
def test_one_seed_gives_the_tokens_of_our_engine_on_smollm2(smollm2_fp32):
    from transformers import AutoModelForCausalLM

    made = AutoModelForCausalLM.from_pretrained(smollm2_fp32.decoder.model.directory, dtype=torch.float32).eval()
    prompts = [
        smollm2_fp32.tokenizer.chat_prompt(t).token_ids for t in ("What is entropy?", "Write a poem about rain.")
    ]
    steering = LogitsSteering.for_model(
        made, {"controllers": {"temperature": {**PI, "temperature_start": 0.7}}}, seed=3
    )
    out = made.generate(
        **padded(prompts),
        logits_processor=[steering],
        do_sample=False,
        max_new_tokens=32,
        eos_token_id=None,
        pad_token_id=0,
    )
    steering.close()
    context = {"vocab_size": made.config.vocab_size, "delay_steps": 0}
    laws = build_controllers({DecisionPoint.TEMPERATURE: {**PI, "temperature_start": 0.7}}, context)
    ours = smollm2_fp32.generate(prompts, 32, controllers=laws, seed=3, ignore_stop=True)
    assert out[:, -32:].tolist() == [g.token_ids.tolist() for g in ours]


def test_rows_of_a_padded_batch_are_as_if_alone(model):
    """Prompts of 3, 17 and 200 tokens together and one by one: H_raw of prefill and 16 steps within 1e-3."""
    together, alone = {}, {}
    steering = LogitsSteering.for_model(model, {}, seed=3, on_measured=collect(together))
    model.generate(**padded(PROMPTS), logits_processor=[steering], do_sample=False, max_new_tokens=17)
    steering.close()
    for r, prompt in enumerate(PROMPTS):
        steering = LogitsSteering.for_model(model, {}, seed=3, request_id=[r], on_measured=collect(alone))
        model.generate(**padded([prompt]), logits_processor=[steering], do_sample=False, max_new_tokens=17)
        steering.close()
    assert together.keys() == alone.keys() == {(r, t) for r in range(3) for t in range(17)}
    for key, row in together.items():
        assert row["token"] == alone[key]["token"]
        assert row["entropy_raw_nats"] == pytest.approx(alone[key]["entropy_raw_nats"], abs=1e-3)


def test_what_follows_an_end_token_is_not_measured(model):
    ends, seen = [11, 30, 52, 73, 82], {}
    steering = LogitsSteering.for_model(model, {}, seed=5, on_measured=collect(seen))
    steering.end_ids = torch.tensor(ends)
    inputs = padded(PROMPTS[:2] * 3)
    out = model.generate(**inputs, logits_processor=[steering], do_sample=False, max_new_tokens=30, eos_token_id=ends)
    steering.close()
    for r, answer in enumerate(out[:, inputs["input_ids"].shape[1] :].tolist()):
        stop = next((i for i, token in enumerate(answer) if token in ends), len(answer) - 1)
        assert [t for row, t in seen if row == r] == list(range(stop + 1))


@pytest.mark.parametrize(
    "changed", [{"repetition_penalty": 1.3}, {"suppress_tokens": [5, 6]}, {"min_new_tokens": 4, "eos_token_id": 2}]
)
def test_processed_logits_are_not_called_raw(model, changed):
    steering = LogitsSteering.for_model(model, {})
    try:
        with pytest.raises(InputError, match="not H_raw"):
            model.generate(
                **padded(PROMPTS[:1]), logits_processor=[steering], do_sample=False, max_new_tokens=4, **changed
            )
    finally:
        steering.close()


def keep_rule(**table):
    return build_controllers({DecisionPoint.KEEP: table}, {})[DecisionPoint.KEEP]


def generate_pruned(model, inputs, rule, tokens=48, block_size=8):
    pruner = Pruner(model, rule, inputs["attention_mask"], backend("torch"), block_size=block_size)
    with pruning(model, pruner):
        out = model.generate(
            **inputs, cache=pruner.cache, do_sample=False, max_new_tokens=tokens, output_scores=True,
            return_dict_in_generate=True,
        )  # fmt: skip
    return out, pruner


@pytest.mark.parametrize("family", ["llama", "mistral-window", "qwen3"])
def test_keeping_every_block_is_dense_attention(family):
    made = tiny_reference(family)
    made.generation_config.eos_token_id, made.generation_config.pad_token_id = None, 0
    inputs = padded(PROMPTS[:2])
    dense = made.generate(
        **inputs, do_sample=False, max_new_tokens=24, output_scores=True, return_dict_in_generate=True
    )
    out, pruner = generate_pruned(made, inputs, keep_rule(kind="keep-all"), 24)
    assert out.sequences.tolist() == dense.sequences.tolist()
    for a, b in zip(out.scores, dense.scores, strict=True):
        assert torch.allclose(a, b, atol=1e-3)
    assert sum(pruner.read_tokens) == sum(pruner.dense_tokens)


class DropBlocks:
    """Evicts given blocks of every row at the third step, whatever they weigh."""

    point = DecisionPoint.KEEP

    def __init__(self, blocks, evict):
        self.inner, self.blocks, self.evict = keep_rule(kind="least-mass", mass_budget=0.9, evict=evict), blocks, evict

    def init(self, capacity):
        return 0

    def step(self, state, observation):
        from dataclasses import replace

        _, action = self.inner.step(self.inner.init(observation.num_slots), observation)
        score = np.full(observation.block_mass.shape, np.nan)
        score[:, self.blocks] = 1e-6
        return state + 1, replace(
            action, score=score, mass_budget=np.full(observation.num_slots, 0.5 if state >= 2 else 0.0)
        )


def test_evicted_blocks_leave_the_tensors_and_positions_stand(model):
    """Evicting and masking the same blocks give the same logits; the memory falls by what was evicted."""
    inputs = padded([PROMPTS[2][:64], PROMPTS[2][10:60]])
    masked, _ = generate_pruned(model, inputs, DropBlocks([2, 3], evict=False), 80)
    evicted, pruner = generate_pruned(model, inputs, DropBlocks([2, 3], evict=True), 80)
    assert evicted.sequences.tolist() == masked.sequences.tolist()
    for a, b in zip(evicted.scores, masked.scores, strict=True):
        assert torch.allclose(a, b, atol=1e-3)
    assert pruner.evicted[:, 2:4].all()
    assert pruner.evicted.sum() == 4
    held = 64 + 79 - 16
    assert all(layer.keys.shape[2] == held for layer in pruner.cache.layers)
    assert (
        pruner.cache.nbytes == 2 * 3 * 2 * 2 * held * 8 * 4
    )  # K and V, layers, rows, KV heads, tokens, head size, fp32
    assert pruner.cache.get_seq_length() == 64 + 79
    dense = model.generate(
        **inputs, do_sample=False, max_new_tokens=80, output_scores=True, return_dict_in_generate=True
    )
    assert not torch.allclose(dense.scores[5], evicted.scores[5], atol=1e-3)


@pytest.mark.engines
def test_memory_of_the_process_falls_by_what_the_cache_gave_up():
    """Two processes, the same prompt: their resident memory differs as their caches do."""
    found = {}
    for rule in ("keep-all", "evict"):
        done = subprocess.run(
            [sys.executable, "-m", "tests.live.engines.cache_memory", rule], cwd=ROOT, check=True, capture_output=True,
            text=True, env=os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        found[rule] = json.loads(done.stdout)
    cache = {rule: f["cache"] for rule, f in found.items()}
    resident = {rule: f["after"] - f["before"] for rule, f in found.items()}
    print(f"cache {cache}, resident {resident}")
    assert cache["keep-all"] == 46080 * (1536 + 23)
    assert cache["evict"] < 0.8 * cache["keep-all"]
    fell = cache["keep-all"] - cache["evict"]
    assert resident["keep-all"] - resident["evict"] == pytest.approx(fell, rel=0.25)


def test_block_mass_is_that_of_eager_attention(model):
    inputs = padded(PROMPTS[1:2])
    _, pruner = generate_pruned(model, inputs, keep_rule(kind="keep-all"), 6)
    model.set_attn_implementation("eager")
    out = model.generate(
        **inputs, do_sample=False, max_new_tokens=6, output_attentions=True, return_dict_in_generate=True
    )
    weights = torch.stack([layer[0, :, 0] for layer in out.attentions[-2]]).mean(dim=(0, 1))
    blocks = [float(part.sum()) for part in weights.split(8)]
    assert pruner.block_mass[0].tolist() == pytest.approx(blocks, abs=1e-5)


def test_a_scenario_runs_and_its_record_replays(model, tmp_path):
    scenario = {
        "engine": {"block_size": 8, "delay_steps": 1},
        "controllers": {
            "temperature": PI,
            "keep": {"kind": "least-mass", "mass_budget": 0.3, "evict": True, "sink_blocks": 1, "recent_blocks": 1},
        },
    }
    inputs = padded([PROMPTS[2][:64], PROMPTS[2][10:60]])
    with steered(model, scenario, inputs["attention_mask"], seed=3) as run:
        model.generate(**inputs, **run.options, max_new_tokens=60)
    arm = run.record(tmp_path / "arm")
    result = replay_arm(arm)
    assert result.ok, result.first_difference
    assert result.num_decisions == 60 + 59
    assert run.bytes_frac < 0.95
    assert run.pruner.cache.nbytes < 2 * 3 * 2 * 2 * (64 + 59) * 8 * 4
    assert model.config._attn_implementation != "entropic_pruned"


@pytest.mark.parametrize(("scenario", "message"), [
    ({"controllers": {"order": {"kind": "fcfs"}}}, "controllers.order is not offered by transformers"),
    ({"controllers": {"temperature": {"kind": "pi", "target_entropy_nats": 9.0}}}, "target"),
])  # fmt: skip
def test_what_cannot_run_is_refused(model, scenario, message):
    with pytest.raises(InputError, match=message):
        LogitsSteering.for_model(model, scenario)


def test_masked_models_fill_every_position_once():
    torch.manual_seed(1)
    config = BertConfig(vocab_size=33, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    bert = BertForMaskedLM(config).eval()
    ids = torch.full((2, 14), 4)
    ids[:, 0], ids[:, -1], ids[1, 5] = 2, 3, 20
    passes = []
    for eta in (0.0, 6.0, float("inf")):
        done = fill_masks(bert, ids, 4, {"controllers": {"reveal": {"kind": "entropy-sum", "eta_nats": eta}}}, seed=2)
        assert (done.token_ids != 4).all()
        assert done.token_ids[:, [0, -1]].tolist() == [[2, 3]] * 2
        assert int(done.token_ids[1, 5]) == 20
        passes.append(done.passes)
    assert passes[0] == 12
    assert 1 < passes[1] < 12
    assert passes[2] == 1
    with pytest.raises(InputError, match="reveal"):
        fill_masks(bert, ids, 4, {})
