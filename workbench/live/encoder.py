"""BERT and RoBERTa encoders with a masked-LM head: token ids [rows, length] to logits [rows, length, vocab].

    x = LN(word + position + type)
    x = LN(x + W_o attention(x));  x = LN(x + W_2 gelu(W_1 x))        each layer, every position sees every other
    logits = W_out LN(gelu(W_d x)) + b

RoBERTa differs in tensor names, in counting positions from `pad_id` + 1, and in having one token type.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from workbench.errors import InputError, unknown_name
from workbench.live.decoder import Linear, packed_linear
from workbench.live.safetensors_file import read_json, read_tensors, tensor_files
from workbench.live.weights import DTYPES, check_finite

FAMILIES = ("bert", "roberta")
IGNORED = (".position_ids", ".token_type_ids", "pooler.dense.weight", "pooler.dense.bias")  # not part of the logits


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    family: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    norm_eps: float
    num_positions: int  # rows of the position table
    num_types: int
    pad_id: int

    @property
    def first_position(self) -> int:
        return self.pad_id + 1 if self.family == "roberta" else 0

    @property
    def max_length(self) -> int:
        return self.num_positions - self.first_position

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor the logits need, by Hugging Face name."""
        h, m, v, f = self.hidden_size, self.intermediate_size, self.vocab_size, self.family
        shapes: dict[str, tuple[int, ...]] = {
            f"{f}.embeddings.word_embeddings.weight": (v, h),
            f"{f}.embeddings.position_embeddings.weight": (self.num_positions, h),
            f"{f}.embeddings.token_type_embeddings.weight": (self.num_types, h),
        }

        def norm(name: str) -> None:
            shapes[name + ".weight"] = shapes[name + ".bias"] = (h,)

        def linear(name: str, rows: int, columns: int) -> None:
            shapes[name + ".weight"], shapes[name + ".bias"] = (rows, columns), (rows,)

        norm(f"{f}.embeddings.LayerNorm")
        for layer in range(self.num_layers):
            p = f"{f}.encoder.layer.{layer}."
            for part in ("query", "key", "value"):
                linear(f"{p}attention.self.{part}", h, h)
            linear(p + "attention.output.dense", h, h)
            norm(p + "attention.output.LayerNorm")
            linear(p + "intermediate.dense", m, h)
            linear(p + "output.dense", h, m)
            norm(p + "output.LayerNorm")
        head = head_names(f)
        linear(head["dense"], h, h)
        norm(head["norm"])
        shapes[head["bias"]] = (v,)
        return shapes


def head_names(family: str) -> dict[str, str]:
    if family == "bert":
        return {
            "dense": "cls.predictions.transform.dense",
            "norm": "cls.predictions.transform.LayerNorm",
            "bias": "cls.predictions.bias",
            "decoder": "cls.predictions.decoder",
        }
    return {
        "dense": "lm_head.dense",
        "norm": "lm_head.layer_norm",
        "bias": "lm_head.bias",
        "decoder": "lm_head.decoder",
    }


def encoder_config(config: dict[str, Any], where: Path) -> EncoderConfig:
    """From a `config.json`. Raises `InputError` naming the field."""
    family = str(config.get("model_type", ""))
    if family not in FAMILIES:
        raise InputError(f"{where}: {unknown_name('encoder model_type', family, FAMILIES)}")
    for field, wanted in (("hidden_act", "gelu"), ("position_embedding_type", "absolute"), ("is_decoder", False)):
        if config.get(field, wanted) != wanted:
            raise InputError(f"{where}: {field} must be {wanted!r}, got {config[field]!r}")
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    for name in (*names, "max_position_embeddings"):
        if not isinstance(config.get(name), int) or config[name] < 1:
            raise InputError(f"{where}: {name} must be a positive whole number, got {config.get(name)!r}")
    if config["hidden_size"] % config["num_attention_heads"]:
        raise InputError(f"{where}: hidden_size must be a multiple of num_attention_heads")
    return EncoderConfig(
        family=family,
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        intermediate_size=config["intermediate_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=config["num_attention_heads"],
        norm_eps=float(config.get("layer_norm_eps", 1e-12)),
        num_positions=config["max_position_embeddings"],
        num_types=config.get("type_vocab_size", 2 if family == "bert" else 1),
        pad_id=config.get("pad_token_id", 0 if family == "bert" else 1) or 0,
    )


@dataclass(frozen=True)
class EncoderLayer:
    qkv: Linear
    output: Linear
    attention_norm: tuple[torch.Tensor, torch.Tensor]
    up: Linear
    down: Linear
    output_norm: tuple[torch.Tensor, torch.Tensor]


class Encoder:
    """`logits` is the whole model; rows of one call have one length, without padding."""

    def __init__(
        self, config: EncoderConfig, tensors: dict[str, torch.Tensor], ops: Any, device: torch.device | str = "cpu"
    ) -> None:
        self.config, self.ops, self.device = config, ops, torch.device(device)
        t = {name: tensor.to(self.device) for name, tensor in tensors.items()}
        f = config.family

        def linear(*names: str) -> Linear:
            weight = torch.cat([t[f"{name}.weight"] for name in names])
            return packed_linear(ops, weight, torch.cat([t[f"{name}.bias"] for name in names]))

        def norm(name: str) -> tuple[torch.Tensor, torch.Tensor]:
            return t[f"{name}.weight"], t[f"{name}.bias"]

        self.words = t[f"{f}.embeddings.word_embeddings.weight"]
        # The type of every token is 0: its row joins the position table.
        self.places = (
            t[f"{f}.embeddings.position_embeddings.weight"] + t[f"{f}.embeddings.token_type_embeddings.weight"][0]
        )
        self.embedding_norm = norm(f"{f}.embeddings.LayerNorm")
        self.layers = []
        for index in range(config.num_layers):
            p = f"{f}.encoder.layer.{index}."
            self.layers.append(
                EncoderLayer(
                    qkv=linear(*(f"{p}attention.self.{part}" for part in ("query", "key", "value"))),
                    output=linear(p + "attention.output.dense"),
                    attention_norm=norm(p + "attention.output.LayerNorm"),
                    up=linear(p + "intermediate.dense"),
                    down=linear(p + "output.dense"),
                    output_norm=norm(p + "output.LayerNorm"),
                )
            )
        head = head_names(f)
        self.head_dense, self.head_norm = linear(head["dense"]), norm(head["norm"])
        self.head = packed_linear(ops, self.words, t[head["bias"]])

    @torch.inference_mode()
    def logits(self, token_ids: torch.Tensor) -> torch.Tensor:
        """token_ids: [rows, length] int64. Returns float32 [rows, length, vocab]. Raises `InputError`."""
        rows, length = token_ids.shape
        config, ops, eps = self.config, self.ops, self.config.norm_eps
        if length > config.max_length:
            raise InputError(f"{length} tokens exceed the {config.max_length} positions of this model")
        if token_ids.numel() and (int(token_ids.min()) < 0 or int(token_ids.max()) >= config.vocab_size):
            raise InputError(f"token ids must be in [0, {config.vocab_size})")
        first, heads = config.first_position, config.num_heads
        x = self.words[token_ids.to(self.device)] + self.places[first : first + length]
        x = ops.layer_norm(x, *self.embedding_norm, eps)
        for layer in self.layers:
            qkv = layer.qkv(x).view(rows, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])
            mixed = layer.output(mixed.transpose(1, 2).reshape(rows, length, -1))
            x = ops.layer_norm(x + mixed, *layer.attention_norm, eps)
            x = ops.layer_norm(x + layer.down(ops.gelu(layer.up(x))), *layer.output_norm, eps)
        x = ops.layer_norm(ops.gelu(self.head_dense(x)), *self.head_norm, eps)
        return self.head(x).float()


def load_encoder(directory: Path, ops: Any, dtype: str = "fp32", device: torch.device | str = "cpu") -> Encoder:
    """From a Hugging Face directory of a BERT or RoBERTa masked-LM. Raises `InputError`."""
    if dtype not in DTYPES:
        raise unknown_name("dtype", dtype, DTYPES)
    config = encoder_config(read_json(directory / "config.json"), directory)
    shapes = config.tensor_shapes()
    decoder = head_names(config.family)["decoder"]
    tensors: dict[str, torch.Tensor] = {}
    for path in tensor_files(directory):
        for name, tensor in read_tensors(path).items():
            if name.endswith(IGNORED) or name in (f"{decoder}.weight", f"{decoder}.bias"):
                tensors.setdefault(name, tensor)
                continue
            if name not in shapes:
                raise InputError(f"{path}: tensor {name!r} is not part of a {config.family} masked-LM")
            if tuple(tensor.shape) != shapes[name]:
                raise InputError(f"{path}: tensor {name!r} has shape {list(tensor.shape)}, not {list(shapes[name])}")
            check_finite(tensor, name, path)
            tensors[name] = tensor
    if missing := [name for name in shapes if name not in tensors]:
        raise InputError(
            f"{directory}: tensor {missing[0]!r} {list(shapes[missing[0]])} is missing ({len(missing)} such)"
        )
    words = tensors[f"{config.family}.embeddings.word_embeddings.weight"]
    if (own := tensors.get(f"{decoder}.weight")) is not None and not torch.equal(own, words):
        raise InputError(f"{directory}: an output layer that is not tied to the word embeddings is not offered")
    return Encoder(config, {name: tensors[name].to(DTYPES[dtype]) for name in shapes}, ops, device)
