"""Any masked language model in a directory as a predictor of text: BERT, RoBERTa, Dream, LLaDA.

    given text and masked positions -> token ids -> Encoder (BERT, RoBERTa) or the decoder seeing both ways (Dream, LLaDA)
                                    -> logits at every position, over the whole vocabulary

Dream was made from an autoregressive model: what its decoder says at position i is about position i + 1, so logits are
shifted by one. The mask token itself is never a prediction: its logit is minus infinity. Sources: Dream (arXiv 2508.15487),
LLaDA (arXiv 2502.09992), their published generation code for the shift.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kernels.dispatch import backend as choose_backend
from workbench.errors import InputError
from workbench.live.decoder import Chunk, Decoder, ForwardInput
from workbench.live.encoder import FAMILIES as ENCODERS
from workbench.live.encoder import Encoder, load_encoder
from workbench.live.kv_cache import KVCache, allocate_kv_cache
from workbench.live.model_config import MASKED_FAMILIES
from workbench.live.safetensors_file import read_json
from workbench.live.tokenizer import Tokenizer
from workbench.live.weights import load_model
from workbench.signals import FloatArray, IntArray

BLOCK = 16


class BidirectionalDecoder:
    """Logits of whole sequences from a decoder that sees both ways. Rows of one call have one length, without padding."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder, self.shifts = decoder, decoder.config.family == "dream"
        self._cache: KVCache | None = None

    @property
    def vocab_size(self) -> int:
        return self.decoder.config.vocab_size

    @property
    def max_length(self) -> int:
        return self.decoder.config.max_context_tokens

    @torch.inference_mode()
    def logits(self, token_ids: torch.Tensor) -> torch.Tensor:
        """token_ids: [rows, length] int64. Returns float32 [rows, length, vocab]. Raises `InputError`."""
        rows, length = token_ids.shape
        if length > self.max_length:
            raise InputError(f"{length} tokens exceed the {self.max_length} positions of this model")
        decoder, blocks = self.decoder, -(-length // BLOCK)
        if self._cache is None or self._cache.num_blocks < rows * blocks:
            self._cache = allocate_kv_cache(decoder.config, rows * blocks, BLOCK, decoder.dtype, decoder.device)
        table = torch.arange(rows * blocks, dtype=torch.int32, device=decoder.device).view(rows, blocks)
        place = torch.arange(length, device=decoder.device)
        row = torch.arange(rows, device=decoder.device)[:, None]
        chunks = tuple(
            Chunk(first=r * length, last=(r + 1) * length, start=0, block_table=table[r]) for r in range(rows)
        )
        batch = ForwardInput(
            token_ids=token_ids.to(decoder.device).reshape(-1),
            positions=place.repeat(rows),
            slot_index=(row * blocks * BLOCK + place).reshape(-1),
            num_decode=0,
            block_table=table[:0, :0],
            context_tokens=table.new_zeros(0),
            chunks=chunks,
            logit_rows=None,
        )
        out = decoder.forward(batch, self._cache).logits.view(rows, length, -1)
        return torch.cat([out[:, :1], out[:, :-1]], dim=1) if self.shifts else out


@dataclass(frozen=True)
class GivenText:
    """A text with masked positions: token ids, -1 where masked, and what stands before and after it."""

    tokens: IntArray  # [length]
    text: str


class MaskedTextModel:
    """A model for `ModelPredictor`: `num_symbols` is the vocabulary, a token its id. Raises `InputError`."""

    def __init__(
        self, network: Encoder | BidirectionalDecoder, tokenizer: Tokenizer | None, mask_id: int, family: str, name: str
    ) -> None:
        self.network, self.tokenizer, self.mask_id, self.family, self.name = network, tokenizer, mask_id, family, name
        self.num_symbols = (
            network.vocab_size if isinstance(network, BidirectionalDecoder) else network.config.vocab_size
        )
        self.max_length = network.max_length if isinstance(network, BidirectionalDecoder) else network.config.max_length

    @classmethod
    def load(cls, directory: Path, backend: str = "torch", dtype: str = "fp32") -> "MaskedTextModel":
        """From a Hugging Face directory."""
        if not (directory / "config.json").is_file():
            raise InputError(f"{directory}: no config.json; give the directory of a masked model")
        try:
            ops = choose_backend(backend)
        except ValueError as error:
            raise InputError(str(error)) from None
        config = read_json(directory / "config.json")
        family = str(config.get("model_type", "")).lower()
        network: Any
        if family in ENCODERS:
            network = load_encoder(directory, ops, dtype)
        elif family in MASKED_FAMILIES:
            network = BidirectionalDecoder(Decoder(load_model(directory, dtype), ops))
        else:
            raise InputError(
                f"{directory}: model_type {family!r} is no masked model; {', '.join((*ENCODERS, *MASKED_FAMILIES))} are"
            )
        tokenizer = Tokenizer(directory) if (directory / "tokenizer.json").is_file() else None
        return cls(network, tokenizer, _mask_id(config, tokenizer, directory), family, directory.name)

    def raw_logits(self, tokens: IntArray) -> torch.Tensor:
        """[rows, length, vocab] as the network gives them, the mask token's included."""
        tokens = np.asarray(tokens, np.int64)
        if tokens.size and (tokens.min() < -1 or tokens.max() >= self.num_symbols):
            raise InputError(f"tokens must be in [0, {self.num_symbols}), or -1 where masked")
        return self.network.logits(torch.from_numpy(np.where(tokens < 0, self.mask_id, tokens)))

    def logits(self, tokens: IntArray) -> FloatArray:
        """tokens [rows, length], -1 where masked. Returns logits [rows, length, num_symbols]."""
        out = self.raw_logits(tokens).double().cpu().numpy()
        out[..., self.mask_id] = -np.inf
        return out

    def given(self, prompt: str | list[int], num_masked: int) -> GivenText:
        """`prompt` with `num_masked` masked positions behind it; mask tokens written in the prompt are masked as well.

        A chat template is used where there is one. BERT and RoBERTa get their begin and end tokens.
        """
        if isinstance(prompt, str):
            if self.tokenizer is None:
                raise InputError(f"{self.name} has no tokenizer.json; give the prompt as token ids, or add the file")
            if self.family in MASKED_FAMILIES and self.tokenizer.chat_template is not None:
                ids = list(self.tokenizer.chat_prompt(prompt).token_ids)
            else:
                ids = self.tokenizer.encode(prompt)
        else:
            ids = [int(token) for token in prompt]
        before, after = [], []
        if self.family in ENCODERS and self.tokenizer is not None:
            before, after = self.tokenizer.around()
        tokens = np.array([*before, *ids, *[self.mask_id] * num_masked, *after], np.int64)
        if tokens.size > self.max_length:
            raise InputError(
                f"{tokens.size} tokens exceed the {self.max_length} positions of {self.name}; lower --length"
            )
        return GivenText(np.where(tokens == self.mask_id, -1, tokens), self.decode(tokens))

    def decode(self, tokens: IntArray) -> str:
        """Text of a row; masked positions as `_`. Without a tokenizer, the ids."""
        if self.tokenizer is None:
            return " ".join("_" if t in (-1, self.mask_id) else str(int(t)) for t in tokens)
        parts: list[str] = []
        run: list[int] = []
        for token in [*map(int, tokens), None]:
            if token is None or token in (-1, self.mask_id):
                parts += [self.tokenizer.decode(run)] if run else []
                parts += [] if token is None else ["_"]
                run = []
            else:
                run.append(token)
        return "".join(parts)


def _mask_id(config: dict[str, Any], tokenizer: Tokenizer | None, directory: Path) -> int:
    """From `config.json` or the tokenizer's own mask token. Raises `InputError` where neither names one."""
    found = config.get("mask_token_id")
    if found is None and tokenizer is not None:
        found = tokenizer.mask_id
    vocab = config.get("embedding_size") or config.get("vocab_size")
    if not isinstance(found, int) or not 0 <= found < vocab:
        raise InputError(
            f"{directory}: no mask token; config.json needs mask_token_id, or tokenizer_config.json mask_token"
        )
    return found
