"""Logits of the decoder against transformers, and what must not change them: batching, chunking, eviction."""

from pathlib import Path

import numpy as np
import pytest
import torch

from kernels.dispatch import backend
from tests.live.forward import prefill_logits
from tests.live.tiny import FAMILIES, reference_logits, save, tiny_reference
from workbench.errors import InputError
from workbench.live.decoder import Decoder
from workbench.live.session import LiveModel
from workbench.live.weights import load_model

IDS = [5, 90, 17, 3, 3, 44, 8, 61, 20, 33, 71, 2, 9, 55, 12, 80, 4, 29, 66, 31]


def decoder_of(reference: torch.nn.Module, directory: Path, dtype: str = "fp32") -> Decoder:
    return Decoder(load_model(save(reference, directory), dtype), backend("torch"))


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_match_transformers(tmp_path: Path, family: str) -> None:
    reference = tiny_reference(family)
    ours = prefill_logits(decoder_of(reference, tmp_path), IDS)
    expected = reference_logits(reference, IDS)
    assert expected.std() > 0.5, "logits that hardly differ would show nothing"
    torch.testing.assert_close(ours, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("spelling", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize("place", [0, 100, 9000])
def test_llama3_rope_scaling_is_honoured(tmp_path: Path, spelling: str, place: int) -> None:
    import json

    rule = {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 256,
    }  # fmt: skip
    scaled = {"max_position_embeddings": 16384, "rope_parameters": {**rule, "rope_theta": 5e4}}
    reference = tiny_reference("llama", rope_theta=5e4, **scaled)
    save(reference, tmp_path)
    if spelling == "rope_scaling":
        config = json.loads((tmp_path / "config.json").read_text())
        del config["rope_parameters"]
        (tmp_path / "config.json").write_text(json.dumps({**config, "rope_theta": 5e4, "rope_scaling": rule}))
    decoder = Decoder(load_model(tmp_path, "fp32"), backend("torch"))
    expected_angle = reference.model.rotary_emb(torch.zeros(1), torch.tensor([[place, place + 7]]))[0][0, :, :4]
    torch.testing.assert_close(decoder.cos[[place, place + 7]], expected_angle, atol=2e-4, rtol=0)
    if place == 0:
        ours = prefill_logits(decoder, IDS)
        torch.testing.assert_close(ours, reference_logits(reference, IDS), atol=1e-4, rtol=0)
        unscaled = tiny_reference("llama", max_position_embeddings=16384)
        assert (reference_logits(unscaled, IDS) - ours).abs().max() > 1e-3, "the scaling must be visible here"


@pytest.mark.parametrize("family", ["llama", "mistral-window", "qwen2", "qwen3"])
def test_greedy_decode_in_a_mixed_batch_equals_transformers(tmp_path: Path, family: str) -> None:
    """64 steps, chunked prefill of one prompt beside decode of others; equal until the top two come close."""
    reference = tiny_reference(family)
    model = LiveModel(decoder_of(reference, tmp_path), None, ())
    rng = np.random.default_rng(4)
    prompts = [rng.integers(0, 97, n).tolist() for n in (1, 3, 17, 60)]
    for batch in (prompts[:1], prompts):
        config = engine(token_budget=24, max_chunk_tokens=16)
        for made in model.generate(batch, max_tokens=64, config=config, ignore_stop=True):
            known = [*made.prompt.token_ids, *made.token_ids.tolist()]
            logits = reference_logits(reference, known)[len(made.prompt.token_ids) - 1 : -1]
            assert_greedy(logits, made.token_ids, slack=2e-3)


def engine(**changes):
    from workbench.engine.config import EngineConfig

    return EngineConfig(**{"num_blocks": 64, "block_size": 4, "max_running": 8, "temperature": 0.0, **changes})


def assert_greedy(logits: torch.Tensor, token_ids: np.ndarray, slack: float) -> int:
    """Teacher-forced: each token is the argmax, or its logit is within `slack` of it. Returns the near-ties."""
    top = logits.max(dim=1).values
    chosen = logits.gather(1, torch.from_numpy(token_ids)[:, None])[:, 0]
    gap = top - chosen
    assert gap.max() <= slack, f"token {int(gap.argmax())} trails the best one by {float(gap.max()):.4f}"
    return int((gap > 0).sum())


def test_rows_of_a_batch_equal_their_solo_runs(tmp_path: Path) -> None:
    """Prompts of 3, 17 and 200 tokens together and alone: H_raw of prefill and 16 decode steps."""
    reference = tiny_reference("llama")
    model = LiveModel(decoder_of(reference, tmp_path), None, (), seed=5)
    rng = np.random.default_rng(1)
    prompts = [rng.integers(0, 97, n).tolist() for n in (3, 17, 200)]
    seen: dict[tuple[int, int], torch.Tensor] = {}

    def keep_logits(request_id, token_index, logits) -> None:
        for row, key in enumerate(zip(request_id.tolist(), token_index.tolist(), strict=True)):
            seen[key] = logits[row].clone()

    together = model.generate(prompts, max_tokens=17, temperature=0.0, on_logits=keep_logits)
    for i, made in enumerate(together):
        known = [*prompts[i], *made.token_ids.tolist()]
        expected = reference_logits(reference, known)[len(prompts[i]) - 1 : -1]
        got = torch.stack([seen[i, k] for k in range(17)])
        assert (got - expected).abs().max() < 1e-3
        alone = model.generate([prompts[i]], max_tokens=17, temperature=0.0)[0]
        np.testing.assert_array_equal(alone.token_ids, made.token_ids)
        np.testing.assert_allclose(alone.entropy_raw_nats, made.entropy_raw_nats, atol=1e-3)
        assert len(made.entropy_raw_nats) == 17, "no pad position is in the record"


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_bidirectional_logits_match_a_full_mask(tmp_path: Path, family: str) -> None:
    """Dream-style: the same weights, every position sees every other."""
    import json

    reference = tiny_reference("qwen2")
    save(reference, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "Dream", "mask_token_id": 96}))
    decoder = Decoder(load_model(tmp_path, "fp32"), backend("torch"))
    everything = torch.zeros((1, 1, len(IDS), len(IDS)))
    with torch.no_grad():
        expected = reference(torch.tensor([IDS]), attention_mask=everything).logits[0]
    torch.testing.assert_close(prefill_logits(decoder, IDS), expected, atol=1e-4, rtol=0)
    assert (expected - reference_logits(reference, IDS)).abs().max() > 0.1
    assert decoder.config.mask_id == 96


def test_smollm2_logits_match_transformers(smollm2_fp32: LiveModel) -> None:
    from transformers import AutoModelForCausalLM

    reference = AutoModelForCausalLM.from_pretrained(smollm2_fp32.decoder.model.directory, dtype=torch.float32).eval()
    assert smollm2_fp32.tokenizer is not None
    ids = smollm2_fp32.tokenizer.chat_prompt("Name three rivers and one mountain.").token_ids
    ours = prefill_logits(smollm2_fp32.decoder, ids, block_size=16)
    expected = reference_logits(reference, ids)
    assert (ours - expected).abs().max() < 1e-3
    made = smollm2_fp32.generate([ids], max_tokens=64, temperature=0.0, ignore_stop=True)[0]
    known = [*ids, *made.token_ids.tolist()]
    assert_greedy(reference_logits(reference, known)[len(ids) - 1 : -1], made.token_ids, slack=2e-3)


def test_bf16_stays_close_to_fp32(smollm2_fp32: LiveModel) -> None:
    bf16 = LiveModel.load("smollm2", dtype="bf16", backend="torch")
    assert bf16.tokenizer is not None
    ids = bf16.tokenizer.chat_prompt("Why is the sky blue?").token_ids
    a, b = prefill_logits(bf16.decoder, ids, 16), prefill_logits(smollm2_fp32.decoder, ids, 16)
    assert a.dtype == torch.float32
    entropy = [-(z.log_softmax(-1).exp() * z.log_softmax(-1)).sum(-1) for z in (a, b)]
    assert (entropy[0] - entropy[1]).abs().mean() < 0.1


def test_a_context_longer_than_the_model_is_refused(tiny_llama: LiveModel) -> None:
    with pytest.raises(InputError, match="513 tokens, the context holds 512"):
        tiny_llama.generate([[1] * 513], max_tokens=1)
