import json
from pathlib import Path

import pytest

from tests.live.tiny import FAMILIES, tiny_reference
from workbench.errors import InputError
from workbench.live.model_config import config_dict_from_gguf, config_from_hf, union_of_ids

LLAMA = {
    "model_type": "llama", "vocab_size": 97, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 8, "num_key_value_heads": 2,
}  # fmt: skip
HERE = Path("model")


@pytest.mark.parametrize("family", FAMILIES)
def test_tensor_shapes_are_those_transformers_has(family: str) -> None:
    model = tiny_reference(family)
    config = config_from_hf(json.loads(model.config.to_json_string()), {}, HERE)
    theirs = {name: tuple(value.shape) for name, value in model.named_parameters()}
    assert config.tensor_shapes() == theirs


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"model_type": "lama"}, "did you mean llama"),
        ({"model_type": "gemma2"}, "gemma2"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"hidden_size": -1}, "hidden_size"),
        ({"vocab_size": "many"}, "vocab_size"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "yarn"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"model_type": "mistral", "sliding_window": 0}, "sliding_window"),
    ],
)
def test_what_would_change_the_logits_is_refused_by_name(change: dict, word: str) -> None:
    with pytest.raises(InputError) as caught:
        config_from_hf({**LLAMA, **change}, {}, HERE)
    assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_end_tokens_are_the_union_of_their_sources() -> None:
    assert union_of_ids(None, 2, [2, 7], []) == (2, 7)
    config = config_from_hf({**LLAMA, "eos_token_id": 5}, {"eos_token_id": [2, 9]}, HERE)
    assert config.eos_ids == (2, 9, 5)
    assert config_from_hf(LLAMA, {"eos_token_id": []}, HERE).eos_ids == ()


def test_windows_follow_the_layer_types() -> None:
    mistral = {**LLAMA, "model_type": "mistral", "sliding_window": 8}
    assert config_from_hf(mistral, {}, HERE).windows == (8, 8)
    qwen = {**LLAMA, "model_type": "qwen2", "sliding_window": 8}
    assert config_from_hf(qwen, {}, HERE).windows == (None, None)
    assert config_from_hf({**qwen, "use_sliding_window": True, "max_window_layers": 1}, {}, HERE).windows == (None, 8)
    typed = {**qwen, "use_sliding_window": True, "layer_types": ["sliding_attention", "full_attention"]}
    assert config_from_hf(typed, {}, HERE).windows == (8, None)


def test_a_gguf_key_that_is_missing_is_named() -> None:
    with pytest.raises(InputError, match=r"llama\.attention\.head_count"):
        config_dict_from_gguf({"general.architecture": "llama"}, {}, HERE)
    partial = {"general.architecture": "llama", "llama.attention.head_count": 8, "llama.embedding_length": 64}
    with pytest.raises(InputError, match=r"rope\.dimension_count"):
        config_dict_from_gguf({**partial, "llama.rope.dimension_count": 4}, {}, HERE)


def test_a_head_of_its_own_size_and_the_kv_it_needs() -> None:
    config = config_from_hf({**LLAMA, "head_dim": 32}, {}, HERE)
    assert (config.head_dim, config.group_size) == (32, 4)
    assert config.kv_bytes_per_token(2) == 2 * 2 * 2 * 32 * 2
