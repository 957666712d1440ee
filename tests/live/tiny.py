"""Tiny random models of every family, saved by transformers, and the same weights as a GGUF file."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

CONFIGS = {"llama": LlamaConfig, "mistral": MistralConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}
SHAPE: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"rope_theta": 5e4}),
    "llama-tied": ("llama", {"tie_word_embeddings": True, "num_key_value_heads": 8}),
    "llama-bias": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "smollm": ("llama", {"hidden_size": 72, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 8}),
    "mistral": ("mistral", {"sliding_window": None, "head_dim": 16}),
    "mistral-window": ("mistral", {"sliding_window": 8}),
    "qwen2": ("qwen2", {}),
    "qwen2-window": ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}),
    "qwen3": ("qwen3", {"head_dim": 32, "num_attention_heads": 4}),
}


def tiny_reference(family: str, **overrides: Any) -> torch.nn.Module:
    """A transformers model in float32 with weights large enough that logits differ, biases and norms included."""
    model_type, shape = FAMILIES[family]
    config = CONFIGS[model_type](**{**SHAPE, **shape, **overrides})
    config._attn_implementation = "eager"
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith("bias"):
                value.normal_(0.0, 0.3)
            elif "norm" in name:
                value.normal_(1.0, 0.2)
            else:
                value.normal_(0.0, 0.15)
    return model


def save(model: torch.nn.Module, directory: Path, **options: Any) -> Path:
    model.save_pretrained(directory, **options)
    return directory


def reference_logits(model: torch.nn.Module, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float()


GGUF_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def llama_cpp_order(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """Rows of q or k as llama.cpp stores them: the two halves of each head interleaved, written out row by row."""
    head = rows.shape[0] // num_heads
    order = [h * head + half * (head // 2) + i for h in range(num_heads) for i in range(head // 2) for half in (0, 1)]
    return rows[order]


def write_gguf(model: torch.nn.Module, path: Path, architecture: str, permute: bool) -> Path:
    config = model.config
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(
        config.head_dim if getattr(config, "head_dim", None) else config.hidden_size // config.num_attention_heads
    )
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_uint32("tokenizer.ggml.eos_token_id", 2)
    for name, value in model.state_dict().items():
        array = value.numpy()
        if permute and "q_proj" in name:
            array = llama_cpp_order(array, config.num_attention_heads)
        if permute and "k_proj" in name:
            array = llama_cpp_order(array, config.num_key_value_heads)
        top = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
        if name in top:
            target = top[name]
        elif name == "lm_head.weight":
            target = "output.weight"
        else:
            _, _, layer, *rest = name.split(".")
            target = f"blk.{layer}.{GGUF_NAMES['.'.join(rest[:-1])]}.{rest[-1]}"
        writer.add_tensor(target, np.ascontiguousarray(array, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
