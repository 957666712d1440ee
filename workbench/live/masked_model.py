"""Masked protein models for the unmasking studies: tokens are the 20 amino acids, -1 where masked.

Two are packaged: `sapiens-heavy`, `sapiens-light` (RoBERTa, 4 layers) and `antiberty` (BERT, 8 layers). Their published
checkpoints are pickles; they are read once, with `weights_only` and the one class they need allowed, and kept as
safetensors in the user's cache. Nothing else is ever unpickled.
"""

import argparse
import hashlib
import json
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from kernels.dispatch import backend as choose_backend
from workbench.errors import InputError, unknown_name
from workbench.live.encoder import Encoder, load_encoder
from workbench.live.weights import cache_directory
from workbench.signals import FloatArray, IntArray

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
PACKAGED = {
    "sapiens-heavy": ("sapiens", "models/v1/checkpoint_vh.pt"),
    "sapiens-light": ("sapiens", "models/v1/checkpoint_vl.pt"),
    "antiberty": ("antiberty", "trained_models/AntiBERTy_md_smooth/pytorch_model.bin"),
}
# (id of the first amino acid, mask, begin, end) in each vocabulary.
SPECIAL = {"sapiens": (4, 24, 0, 2), "antiberty": (5, 4, 2, 3)}
FAIRSEQ_NAMES = {
    "self_attn.q_proj": "attention.self.query",
    "self_attn.k_proj": "attention.self.key",
    "self_attn.v_proj": "attention.self.value",
    "self_attn.out_proj": "attention.output.dense",
    "self_attn_layer_norm": "attention.output.LayerNorm",
    "fc1": "intermediate.dense",
    "fc2": "output.dense",
    "final_layer_norm": "output.LayerNorm",
}


class MaskedModel:
    """A `MaskedPredictor`: marginals over `num_symbols` amino acids at every position, given the revealed ones."""

    def __init__(self, encoder: Encoder, first_id: int, mask_id: int, begin_id: int, end_id: int) -> None:
        self.encoder, self.num_symbols, self.symbols = encoder, len(AMINO_ACIDS), AMINO_ACIDS
        self.first_id, self.mask_id, self.begin_id, self.end_id = first_id, mask_id, begin_id, end_id

    @classmethod
    def load(cls, name: str, backend: str = "torch", dtype: str = "fp32") -> "MaskedModel":
        """One of `PACKAGED`. Raises `InputError`."""
        if name not in PACKAGED:
            raise unknown_name("masked model", name, PACKAGED)
        try:
            ops = choose_backend(backend)
        except ValueError as error:
            raise InputError(str(error)) from None
        return cls(load_encoder(packaged_directory(name), ops, dtype), *SPECIAL[PACKAGED[name][0]])

    @property
    def max_length(self) -> int:
        """Positions of a sequence, begin and end tokens not counted."""
        return self.encoder.config.max_length - 2

    def logits(self, tokens: IntArray) -> FloatArray:
        """tokens [rows, length] in [0, num_symbols), -1 where masked. Returns logits [rows, length, num_symbols]."""
        tokens = np.asarray(tokens, np.int64)
        if tokens.size and (tokens.min() < -1 or tokens.max() >= self.num_symbols):
            raise InputError(f"tokens must be in [0, {self.num_symbols}), or -1 where masked")
        ids = np.full((tokens.shape[0], tokens.shape[1] + 2), self.begin_id, np.int64)
        ids[:, -1] = self.end_id
        ids[:, 1:-1] = np.where(tokens < 0, self.mask_id, tokens + self.first_id)
        every = self.encoder.logits(torch.from_numpy(ids))
        return every[:, 1:-1, self.first_id : self.first_id + self.num_symbols].double().cpu().numpy()

    def predict(self, tokens: IntArray) -> Any:
        """`Marginals` of every position."""
        from workbench.unmasking.predictor import Marginals

        z = self.logits(tokens)
        p = np.exp(z - z.max(axis=-1, keepdims=True))
        return Marginals(probability=p / p.sum(axis=-1, keepdims=True))

    def encode(self, sequence: str) -> IntArray:
        """Tokens of a protein sequence; `*` or `X` is masked. Raises `InputError` for another letter."""
        if bad := sorted(set(sequence) - set(AMINO_ACIDS + "*X")):
            raise InputError(f"{bad[0]!r} is not an amino acid; allowed: {AMINO_ACIDS}, * or X for masked")
        return np.array([AMINO_ACIDS.find(letter) for letter in sequence], np.int64)

    def decode(self, tokens: IntArray) -> str:
        return "".join("*" if t < 0 else AMINO_ACIDS[t] for t in tokens)


def packaged_directory(name: str) -> Path:
    """Hugging Face directory of a packaged masked model, converted once into the user's cache."""
    package, file = PACKAGED[name]
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise InputError(f"model {name!r} needs the package {package}; run make env")
    path = Path(spec.submodule_search_locations[0]) / file
    content = path.read_bytes()
    target = cache_directory() / f"{name}-{hashlib.sha256(content).hexdigest()[:16]}-v1"
    if target.is_dir():
        return target
    with torch.serialization.safe_globals([argparse.Namespace]):
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    config, tensors = _from_fairseq(loaded) if package == "sapiens" else _from_antiberty(loaded, path.parent)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            save_file(tensors, work / "model.safetensors", metadata={"format": "pt"})
            (work / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
            try:
                work.rename(target)
            except OSError:
                if not target.is_dir():
                    raise
        finally:
            shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        raise InputError(f"cannot write the converted model to {target.parent} ({error}); set XDG_CACHE_HOME") from None
    return target


def _from_fairseq(loaded: dict[str, Any]) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    args, model = vars(loaded["args"]), loaded["model"]
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in model.items():
        name = name.removeprefix("decoder.")
        if name.startswith("sentence_encoder.layers."):
            index, rest = name.removeprefix("sentence_encoder.layers.").split(".", 1)
            part, kind = rest.rsplit(".", 1)
            tensors[f"roberta.encoder.layer.{index}.{FAIRSEQ_NAMES[part]}.{kind}"] = tensor
        elif name != "lm_head.weight":
            name = name.replace("sentence_encoder.embed_tokens", "roberta.embeddings.word_embeddings")
            name = name.replace("sentence_encoder.embed_positions", "roberta.embeddings.position_embeddings")
            tensors[name.replace("sentence_encoder.emb_layer_norm", "roberta.embeddings.LayerNorm")] = tensor
    words = tensors["roberta.embeddings.word_embeddings.weight"]
    tensors["roberta.embeddings.token_type_embeddings.weight"] = torch.zeros(1, words.shape[1])
    config = {
        "model_type": "roberta",
        "architectures": ["RobertaForMaskedLM"],
        "vocab_size": words.shape[0],
        "hidden_size": words.shape[1],
        "intermediate_size": args["encoder_ffn_embed_dim"],
        "num_hidden_layers": args["encoder_layers"],
        "num_attention_heads": args["encoder_attention_heads"],
        "max_position_embeddings": tensors["roberta.embeddings.position_embeddings.weight"].shape[0],
        "layer_norm_eps": 1e-5,
        "hidden_act": "gelu",
        "type_vocab_size": 1,
        "pad_token_id": 1,
        "tie_word_embeddings": True,
    }
    return config, {name: tensor.contiguous() for name, tensor in tensors.items()}


def _from_antiberty(loaded: dict[str, torch.Tensor], folder: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config |= {"architectures": ["BertForMaskedLM"], "tie_word_embeddings": True}
    dropped = (
        "cls.species",
        "cls.chain",
        "cls.graft",
        "bert.pooler",
        "bert.embeddings.position_ids",
        "cls.predictions.decoder",
    )
    return config, {n: t.contiguous() for n, t in loaded.items() if not n.startswith(dropped)}
