"""Dream, LLaDA, BERT and RoBERTa directories as predictors of masked text, beside transformers seeing both ways."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoModelForMaskedLM, BertConfig, RobertaConfig

from tests.live.test_encoder import SHAPE
from tests.live.tiny import save, tiny_reference
from workbench.errors import InputError
from workbench.live.llada import BLOCKS, LAYER_NAMES, TOP_NAMES
from workbench.live.masked_text import MaskedTextModel

MASK = 96


def both_ways(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """Reference logits with no causal mask: every position sees every other."""
    rows, length = ids.shape
    with torch.no_grad():
        return model(ids, attention_mask=torch.zeros(rows, 1, length, length)).logits.float()


def edit_config(directory: Path, **changes: object) -> Path:
    file = directory / "config.json"
    config = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({name: value for name, value in config.items() if value is not None}))
    return directory


def dream(directory: Path) -> torch.nn.Module:
    reference = tiny_reference("qwen2")
    edit_config(save(reference, directory), model_type="Dream", mask_token_id=MASK, architectures=["DreamModel"])
    return reference


def llada(directory: Path, **changes: object) -> torch.nn.Module:
    """A tiny Llama under LLaDA's names and fields."""
    reference = tiny_reference("llama", num_key_value_heads=8)
    save(reference, directory)
    top = {ours: theirs for theirs, ours in TOP_NAMES.items()}
    inner = {ours: theirs for theirs, ours in LAYER_NAMES.items()}
    renamed = {}
    for name, tensor in load_file(directory / "model.safetensors").items():
        if name in top:
            renamed[top[name]] = tensor.clone()
            continue
        index, rest = name.removeprefix("model.layers.").split(".", 1)
        part, kind = rest.rsplit(".", 1)
        renamed[f"{BLOCKS}{index}.{inner[part]}.{kind}"] = tensor.clone()
    save_file(renamed, directory / "model.safetensors")
    c = reference.config
    config = {
        "model_type": "llada", "block_type": "llama", "activation_type": "silu", "layer_norm_type": "rms", "rope": True,
        "alibi": False, "attention_layer_norm": False, "bias_for_layer_norm": False, "include_bias": False,
        "include_qkv_bias": False, "input_emb_norm": False, "scale_logits": False, "weight_tying": False,
        "d_model": c.hidden_size, "n_heads": c.num_attention_heads, "n_kv_heads": c.num_key_value_heads,
        "n_layers": c.num_hidden_layers, "mlp_hidden_size": c.intermediate_size, "embedding_size": c.vocab_size,
        "vocab_size": c.vocab_size, "max_sequence_length": c.max_position_embeddings, "rms_norm_eps": c.rms_norm_eps,
        "rope_theta": c.rope_parameters["rope_theta"], "mask_token_id": MASK, "eos_token_id": 2,
    }  # fmt: skip
    (directory / "config.json").write_text(json.dumps(config | changes))
    return reference


def tokens(rows: int = 3, length: int = 21) -> np.ndarray:
    rng = np.random.default_rng(5)
    made = rng.integers(3, MASK, (rows, length))
    made[rng.random((rows, length)) < 0.4] = -1
    return made


@pytest.mark.parametrize("family", ["dream", "llada"])
def test_masked_diffusion_directories_match_transformers_seeing_both_ways(family: str, tmp_path: Path) -> None:
    reference = {"dream": dream, "llada": llada}[family](tmp_path)
    model = MaskedTextModel.load(tmp_path)
    made = tokens()
    ids = torch.from_numpy(np.where(made < 0, MASK, made))
    expected = both_ways(reference, ids)
    if family == "dream":  # position i speaks of i + 1
        expected = torch.cat([expected[:, :1], expected[:, :-1]], dim=1)
    torch.testing.assert_close(model.raw_logits(made), expected, atol=1e-4, rtol=0)
    # Seeing both ways matters: a later token changes an earlier row.
    other = made.copy()
    other[:, -1] = 4
    assert not np.allclose(model.logits(other)[:, 0], model.logits(made)[:, 0])
    assert np.isneginf(model.logits(made)[..., MASK]).all(), "the mask token is never a prediction"
    alone = np.concatenate([model.logits(row[None]) for row in made])
    np.testing.assert_allclose(model.logits(made), alone, atol=1e-4)


@pytest.mark.parametrize(
    "config", [BertConfig(**SHAPE), RobertaConfig(**SHAPE, type_vocab_size=1)], ids=["bert", "roberta"]
)
def test_encoder_directories_are_models_of_text_as_well(config: object, tmp_path: Path) -> None:
    torch.manual_seed(3)
    reference = AutoModelForMaskedLM.from_config(config).eval()
    reference.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="mask_token"):
        MaskedTextModel.load(tmp_path)
    edit_config(tmp_path, mask_token_id=4)
    model = MaskedTextModel.load(tmp_path)
    made = np.array([[5, -1, 7, 8, -1, 9]])
    with torch.no_grad():
        expected = reference(torch.from_numpy(np.where(made < 0, 4, made))).logits
    torch.testing.assert_close(model.raw_logits(made), expected, atol=1e-4, rtol=0)


def word_tokenizer(directory: Path) -> None:
    words = {w: i for i, w in enumerate(["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", "a", "b", "c"])}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    made.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"mask_token": "[MASK]"}))


def test_a_prompt_is_kept_and_its_mask_tokens_are_positions(tmp_path: Path) -> None:
    AutoModelForMaskedLM.from_config(BertConfig(**SHAPE)).save_pretrained(tmp_path)
    word_tokenizer(tmp_path)
    model = MaskedTextModel.load(tmp_path)
    assert model.mask_id == 4
    assert model.given("a [MASK] b", 2).tokens.tolist() == [1, 5, -1, 6, -1, -1, 2]
    assert model.given([5, 4], 1).tokens.tolist() == [1, 5, -1, -1, 2]
    with pytest.raises(InputError, match="lower --length"):
        model.given("a", 60)


def test_what_is_not_offered_is_refused_by_name(tmp_path: Path) -> None:
    llada(tmp_path, alibi=True)
    with pytest.raises(InputError, match="alibi"):
        MaskedTextModel.load(tmp_path)
    save(tiny_reference("llama"), tmp_path / "causal")
    with pytest.raises(InputError, match="no masked model"):
        MaskedTextModel.load(tmp_path / "causal")
    with pytest.raises(InputError, match=r"config\.json"):
        MaskedTextModel.load(tmp_path / "nowhere")
