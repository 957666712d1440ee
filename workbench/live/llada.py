"""LLaDA checkpoints as the decoder reads them: a Llama that sees both ways, under OLMo's names.

    model.transformer.wte                 embedding
    model.transformer.blocks.I.attn_norm, q_proj, k_proj, v_proj, attn_out, ff_norm, ff_proj (gate), up_proj, ff_out (down)
    model.transformer.ln_f, ff_out        last norm, output layer

`config.json` speaks of d_model, n_heads, n_layers, mlp_hidden_size. What it could ask for and this decoder does not do (ALiBi,
layer norms with biases, norms on q and k, scaled logits) is refused by name. Source: LLaDA (arXiv 2502.09992), its
published configuration.
"""

from pathlib import Path
from typing import Any

from workbench.errors import InputError

# Fields that change the logits, and the only value that is offered. A field that is absent has that value.
OFFERED: dict[str, tuple[Any, ...]] = {
    "block_type": ("llama",),
    "activation_type": ("silu",),
    "layer_norm_type": ("rms",),
    "rope": (True,),
    "alibi": (False,),
    "attention_layer_norm": (False,),
    "bias_for_layer_norm": (False, None),
    "include_bias": (False,),
    "input_emb_norm": (False,),
    "scale_logits": (False,),
    "multi_query_attention": (None, False),
    "clip_qkv": (None,),
    "block_group_size": (1,),
}
FIELDS = {
    "hidden_size": "d_model",
    "num_attention_heads": "n_heads",
    "num_key_value_heads": "n_kv_heads",
    "num_hidden_layers": "n_layers",
    "intermediate_size": "mlp_hidden_size",
    "max_position_embeddings": "max_sequence_length",
    "rms_norm_eps": "rms_norm_eps",
    "rope_theta": "rope_theta",
    "tie_word_embeddings": "weight_tying",
}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "q_proj": "self_attn.q_proj",
    "k_proj": "self_attn.k_proj",
    "v_proj": "self_attn.v_proj",
    "attn_out": "self_attn.o_proj",
    "ff_norm": "post_attention_layernorm",
    "ff_proj": "mlp.gate_proj",
    "up_proj": "mlp.up_proj",
    "ff_out": "mlp.down_proj",
}
TOP_NAMES = {
    "model.transformer.wte.weight": "model.embed_tokens.weight",
    "model.transformer.ln_f.weight": "model.norm.weight",
    "model.transformer.ff_out.weight": "lm_head.weight",
}
BLOCKS = "model.transformer.blocks."


def llama_fields(config: dict[str, Any], where: Path) -> dict[str, Any]:
    """A LLaDA `config.json` in the words of a Llama one. Raises `InputError` naming the field."""
    for field, allowed in OFFERED.items():
        if field in config and config[field] not in allowed:
            raise InputError(f"{where}: {field} = {config[field]!r} is not offered; a LLaDA model has {allowed[0]!r}")
    fields = {name: config[theirs] for name, theirs in FIELDS.items() if config.get(theirs) is not None}
    fields["vocab_size"] = config.get("embedding_size") or config.get("vocab_size")
    same = ("eos_token_id", "bos_token_id", "mask_token_id")
    return {**fields, "qkv_bias": bool(config.get("include_qkv_bias")), **{name: config.get(name) for name in same}}


def llama_name(name: str) -> str:
    """The Hugging Face Llama name of a LLaDA tensor; a name that is none comes back as it is (and is refused later)."""
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    if name.startswith(BLOCKS):
        index, _, rest = name.removeprefix(BLOCKS).partition(".")
        part, _, kind = rest.rpartition(".")
        if index.isdigit() and part in LAYER_NAMES:
            return f"model.layers.{index}.{LAYER_NAMES[part]}.{kind}"
    return name
