"""The byte-level BPE tokenizer a GGUF file carries, as a `tokenizers` object.

GGUF stores the vocabulary, the merges and the *name* of the rule that splits text into words; the rule itself is known
by that name. A file with another kind of tokenizer still loads as a model: prompts are then given as token ids.
"""

from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

CONTROL, USER_DEFINED = 3, 4  # token types of the GGUF specification
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def tokenizer_from_gguf(metadata: dict[str, Any]) -> Tokenizer | None:
    """None where the file's tokenizer is not byte-level BPE with a known splitting rule."""
    rule = metadata.get("tokenizer.ggml.pre", "gpt-2")
    tokens, merges = metadata.get("tokenizer.ggml.tokens"), metadata.get("tokenizer.ggml.merges")
    if metadata.get("tokenizer.ggml.model") != "gpt2" or not tokens or merges is None:
        return None
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    unsplit = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    splitters = {
        "smollm": [pre_tokenizers.Digits(individual_digits=True), byte_level],
        "gpt-2": [byte_level],
        "default": [byte_level],
        "qwen2": [pre_tokenizers.Split(Regex(WORDS % ""), "isolated"), unsplit],
        "llama-bpe": [pre_tokenizers.Split(Regex(WORDS % "{1,3}"), "isolated"), unsplit],
    }
    if rule not in splitters:
        return None
    pairs = [tuple(merge.split(" ")) for merge in merges]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens) or any(len(pair) != 2 for pair in pairs):
        return None
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=pairs, ignore_merges=rule == "llama-bpe"))
    if rule == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splitters[rule])
    tokenizer.decoder = decoders.ByteLevel()
    types = metadata.get("tokenizer.ggml.token_type") or [1] * len(tokens)
    tokenizer.add_special_tokens(
        [AddedToken(t, special=True, normalized=False) for t, k in zip(tokens, types, strict=False) if k == CONTROL]
    )
    tokenizer.add_tokens(
        [AddedToken(t, normalized=False) for t, k in zip(tokens, types, strict=False) if k == USER_DEFINED]
    )
    return tokenizer
