"""The shape of a decoder, read from a Hugging Face `config.json` or GGUF metadata.

A field that would change the logits is either honoured or refused by name; none is read and dropped.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.errors import InputError, unknown_name
from workbench.live.llada import llama_fields

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "dream", "llada")
MASKED_FAMILIES = ("dream", "llada")  # masked diffusion: every position sees every other
# Fields of relatives that scale or cap something this decoder does not; the value that means "not used" is fine.
UNUSED_VALUES: dict[str, tuple[Any, ...]] = {
    "partial_rotary_factor": (None, 1.0),
    "attn_logit_softcapping": (None,),
    "final_logit_softcapping": (None,),
    "query_pre_attn_scalar": (None,),
    "attention_multiplier": (None, 1.0),
    "embedding_multiplier": (None, 1.0),
    "residual_multiplier": (None, 1.0),
    "logits_scaling": (None, 1.0),
    "no_rope_layers": (None, []),
    "rope_interleaved": (None, False),
    "quantization_config": (None,),
    "num_experts": (None, 0),
    "pretraining_tp": (None, 1),
}
GGUF_FAMILIES = ("llama", "qwen2", "qwen3")


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """The `llama3` rule: long wavelengths divided by `factor`, short ones kept, a linear ramp between."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_positions: int


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A Llama-family decoder. Query head h reads KV head h // (num_heads / num_kv_heads)."""

    family: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    rope_linear_factor: float
    max_context_tokens: int  # positions the model was made for
    windows: tuple[int | None, ...]  # per layer: with w, query i sees keys i - w + 1 to i
    tied_embeddings: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    causal: bool
    eos_ids: tuple[int, ...]
    bos_id: int | None
    mask_id: int | None = None  # masked diffusion only

    @property
    def group_size(self) -> int:
        return self.num_heads // self.num_kv_heads

    def num_parameters(self) -> int:
        """Weights that a decoded token multiplies with (the embedding is a lookup; the output layer counts)."""
        qkv = self.hidden_size * self.head_dim * (self.num_heads + 2 * self.num_kv_heads)
        layer = qkv + self.num_heads * self.head_dim * self.hidden_size + 3 * self.hidden_size * self.intermediate_size
        return self.num_layers * layer + self.vocab_size * self.hidden_size

    def kv_bytes_per_token(self, element_bytes: int) -> int:
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * element_bytes

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor the decoder needs, by its Hugging Face name."""
        h, d = self.hidden_size, self.head_dim
        q, kv, m = self.num_heads * d, self.num_kv_heads * d, self.intermediate_size
        shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab_size, h)}
        for layer in range(self.num_layers):
            p = f"model.layers.{layer}."
            shapes[p + "input_layernorm.weight"] = shapes[p + "post_attention_layernorm.weight"] = (h,)
            for name, rows in (("q_proj", q), ("k_proj", kv), ("v_proj", kv)):
                shapes[f"{p}self_attn.{name}.weight"] = (rows, h)
                if self.qkv_bias:
                    shapes[f"{p}self_attn.{name}.bias"] = (rows,)
            shapes[p + "self_attn.o_proj.weight"] = (h, q)
            if self.output_bias:
                shapes[p + "self_attn.o_proj.bias"] = (h,)
            if self.qk_norm:
                shapes[p + "self_attn.q_norm.weight"] = shapes[p + "self_attn.k_norm.weight"] = (d,)
            for name, shape in (("gate_proj", (m, h)), ("up_proj", (m, h)), ("down_proj", (h, m))):
                shapes[f"{p}mlp.{name}.weight"] = shape
                if self.mlp_bias:
                    shapes[f"{p}mlp.{name}.bias"] = shape[:1]
        shapes["model.norm.weight"] = (h,)
        if not self.tied_embeddings:
            shapes["lm_head.weight"] = (self.vocab_size, h)
        return shapes


def config_from_hf(config: dict[str, Any], generation: dict[str, Any], where: Path) -> ModelConfig:
    """From `config.json` and `generation_config.json` (may be empty). Raises `InputError` naming the field."""
    family = str(config.get("model_type", "")).lower()
    if family not in FAMILIES:
        raise InputError(f"{where}: {unknown_name('model_type', family, FAMILIES)}")
    if family == "llada":
        config = llama_fields(config, where)
    for field, allowed in UNUSED_VALUES.items():
        if field in config and config[field] not in allowed:
            raise InputError(f"{where}: {field} = {config[field]!r} is not offered")
    if (act := config.get("hidden_act", "silu")) != "silu":
        raise InputError(f"{where}: hidden_act must be silu, got {act!r}")

    def number(name: str, default: int | None = None) -> int:
        value = config.get(name, default)
        if value is None:
            value = default
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**31:
            raise InputError(f"{where}: {name} must be a positive whole number, got {value!r}")
        return value

    heads, hidden = number("num_attention_heads"), number("hidden_size")
    kv_heads = number("num_key_value_heads", heads)
    if heads % kv_heads:
        raise InputError(f"{where}: num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}")
    rope_theta, scaling, linear = _rope(config, where)
    bias = bool(config.get("attention_bias", False))
    head_dim = number("head_dim", hidden // heads)
    if head_dim % 2:
        raise InputError(f"{where}: head_dim must be even, got {head_dim}")
    return ModelConfig(
        family=family,
        vocab_size=number("vocab_size"),
        hidden_size=hidden,
        intermediate_size=number("intermediate_size"),
        num_layers=number("num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        rope_theta=rope_theta,
        rope_scaling=scaling,
        rope_linear_factor=linear,
        max_context_tokens=number("max_position_embeddings", 2048),
        windows=_windows(config, family, number("num_hidden_layers"), where),
        tied_embeddings=bool(config.get("tie_word_embeddings", False)),
        qkv_bias=family in ("qwen2", "dream") or bias or bool(config.get("qkv_bias", False)),
        output_bias=bias and family in ("llama", "qwen3"),
        mlp_bias=bool(config.get("mlp_bias", False)) and family == "llama",
        qk_norm=family == "qwen3",
        causal=family not in MASKED_FAMILIES,
        eos_ids=union_of_ids(generation.get("eos_token_id"), config.get("eos_token_id")),
        bos_id=next(iter(union_of_ids(generation.get("bos_token_id"), config.get("bos_token_id"))), None),
        mask_id=config.get("mask_token_id"),
    )


def union_of_ids(*sources: Any) -> tuple[int, ...]:
    """Token ids from fields that hold nothing, one id or a list of them; first occurrence first."""
    ids: list[int] = []
    for source in sources:
        ids += [source] if isinstance(source, int) else list(source or [])
    return tuple(dict.fromkeys(ids))


def _windows(config: dict[str, Any], family: str, num_layers: int, where: Path) -> tuple[int | None, ...]:
    window = config.get("sliding_window")
    if window is None or not (family == "mistral" or config.get("use_sliding_window", False)):
        return (None,) * num_layers
    if not isinstance(window, int) or window < 1:
        raise InputError(f"{where}: sliding_window must be at least 1, got {window!r}")
    full = config.get("max_window_layers", num_layers) if family != "mistral" else 0
    default = ["full_attention"] * min(full, num_layers) + ["sliding_attention"] * max(num_layers - full, 0)
    types = config.get("layer_types") or default
    if len(types) != num_layers or not set(types) <= {"full_attention", "sliding_attention"}:
        raise InputError(f"{where}: layer_types must name full_attention or sliding_attention for {num_layers} layers")
    return tuple(window if kind == "sliding_attention" else None for kind in types)


def _rope(config: dict[str, Any], where: Path) -> tuple[float, RopeScaling | None, float]:
    parameters = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = parameters.get("rope_theta", config.get("rope_theta", 10000.0))
    rule = parameters.get("rope_type", parameters.get("type", "default"))
    if parameters.get("partial_rotary_factor", 1.0) != 1.0:
        raise InputError(f"{where}: partial_rotary_factor = {parameters['partial_rotary_factor']} is not offered")
    try:
        if rule == "llama3":
            scaling = RopeScaling(
                factor=float(parameters["factor"]),
                low_freq_factor=float(parameters["low_freq_factor"]),
                high_freq_factor=float(parameters["high_freq_factor"]),
                original_positions=int(parameters["original_max_position_embeddings"]),
            )
            return float(theta), scaling, 1.0
        if rule == "linear":
            return float(theta), None, float(parameters["factor"])
    except KeyError as missing:
        raise InputError(f"{where}: rope scaling {rule!r} lacks {missing}") from None
    if rule != "default":
        raise InputError(f"{where}: rope scaling {rule!r} is not offered; default, linear and llama3 are")
    return float(theta), None, 1.0


def config_dict_from_gguf(metadata: dict[str, Any], tensor_shapes: dict[str, tuple[int, ...]], where: Path) -> dict:
    """GGUF metadata as the `config.json` of the same model. Raises `InputError` naming the key."""
    family = metadata.get("general.architecture", "")
    if family not in GGUF_FAMILIES:
        raise InputError(f"{where}: {unknown_name('GGUF architecture', str(family), GGUF_FAMILIES)}")

    def value(key: str, default: Any = None) -> Any:
        found = metadata.get(f"{family}.{key}", default)
        if found is None:
            raise InputError(f"{where}: metadata {family}.{key} is missing")
        return found

    heads, hidden = value("attention.head_count"), value("embedding_length")
    if not all(isinstance(n, int) and 0 < n < 2**31 for n in (heads, hidden)):
        raise InputError(
            f"{where}: {family}.attention.head_count {heads!r} and embedding_length {hidden!r} are no sizes"
        )
    head_dim = metadata.get(f"{family}.attention.key_length", hidden // heads)
    rotary = metadata.get(f"{family}.rope.dimension_count", head_dim)
    if rotary != head_dim:
        raise InputError(f"{where}: {family}.rope.dimension_count {rotary} must equal the head size {head_dim}")
    config: dict[str, Any] = {
        "architectures": [{"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}[family] + "ForCausalLM"],
        "model_type": family,
        "hidden_act": "silu",
        "vocab_size": tensor_shapes.get("token_embd.weight", (0,))[0],
        "hidden_size": hidden,
        "intermediate_size": value("feed_forward_length"),
        "num_hidden_layers": value("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": value("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "rms_norm_eps": value("attention.layer_norm_rms_epsilon"),
        "rope_theta": value("rope.freq_base", 10000.0),
        "max_position_embeddings": value("context_length"),
        "tie_word_embeddings": "output.weight" not in tensor_shapes,
        "attention_bias": family != "qwen2" and "blk.0.attn_q.bias" in tensor_shapes,
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": metadata.get("tokenizer.ggml.eos_token_id"),
    }
    kind, factor = metadata.get(f"{family}.rope.scaling.type"), metadata.get(f"{family}.rope.scaling.factor", 1.0)
    if kind not in (None, "none") and not math.isclose(factor, 1.0):
        if kind != "linear":
            raise InputError(f"{where}: {family}.rope.scaling.type {kind!r} is not offered")
        config["rope_scaling"] = {"rope_type": "linear", "factor": factor}
    return config
