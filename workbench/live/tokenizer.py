"""Text to token ids and back, and prompts from chat templates.

Prompt assembly. The template is rendered with its assistant opener and tokenised once, without adding special tokens
again: the prompt begins with exactly one begin token where the tokenizer has one to add, never two. A template that
ignores the request for an opener is used as it is and warned about; without a template the text is used as it is.
The rendered text goes in the record.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer as FastTokenizer

from workbench.errors import InputError
from workbench.live.model_config import union_of_ids
from workbench.live.safetensors_file import read_json

Message = dict[str, str]  # {"role": ..., "content": ...}


@dataclass(frozen=True)
class Prompt:
    """What the model is given: `text` is exactly what `token_ids` encode."""

    token_ids: list[int]
    text: str
    warnings: tuple[str, ...] = ()


class Tokenizer:
    """The tokenizer of a model directory. `None`-like models without one take token ids only."""

    def __init__(self, directory: Path) -> None:
        file = directory / "tokenizer.json"
        if not file.is_file():
            raise InputError(f"{directory}: no tokenizer.json; give prompts as token ids, or add the file")
        try:
            self._fast = FastTokenizer.from_file(str(file))
        except Exception as error:  # the library raises its own untyped error
            raise InputError(f"{file}: {error}") from None
        self._fast.no_padding()
        self._fast.no_truncation()
        options_file = directory / "tokenizer_config.json"
        options = read_json(options_file) if options_file.is_file() else {}
        self.bos = _token_text(options.get("bos_token"))
        self.eos = _token_text(options.get("eos_token"))
        self.mask = _token_text(options.get("mask_token"))
        self.chat_template = _chat_template(directory, options)
        self.bos_id = self._fast.token_to_id(self.bos) if self.bos else None
        self.mask_id = self._fast.token_to_id(self.mask) if self.mask else None
        self.eos_ids = union_of_ids(self._fast.token_to_id(self.eos) if self.eos else None)
        probe = self._fast.encode("a", add_special_tokens=True).ids
        post_processor_adds = self.bos_id is not None and probe[:1] == [self.bos_id]
        self.adds_bos = self.bos_id is not None and bool(options.get("add_bos_token", post_processor_adds))

    @property
    def vocab_size(self) -> int:
        return self._fast.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str) -> list[int]:
        """Token ids of a piece of text, nothing added."""
        return self._fast.encode(text, add_special_tokens=False).ids

    def around(self) -> tuple[list[int], list[int]]:
        """What the tokenizer puts before and after a text, as BERT's [CLS] and [SEP]."""
        bare, whole = self.encode("a"), self._fast.encode("a", add_special_tokens=True).ids
        for start in range(len(whole) - len(bare) + 1):
            if whole[start : start + len(bare)] == bare:
                return whole[:start], whole[start + len(bare) :]
        return [], []

    def decode(self, token_ids: Sequence[int], skip_special: bool = True) -> str:
        return self._fast.decode(list(token_ids), skip_special_tokens=skip_special)

    def plain_prompt(self, text: str) -> Prompt:
        """Text to be continued, without a template."""
        return self._with_one_bos(text, ())

    def chat_prompt(self, messages: str | Sequence[Message], template: str | None = None) -> Prompt:
        """The prompt of a conversation; a string is one user message. Raises `InputError` if the template does."""
        conversation = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
        source = self.chat_template if template is None else template
        if source is None:
            text = "\n\n".join(message["content"] for message in conversation)
            return self._with_one_bos(text, ("the tokenizer has no chat template; the text is continued as it is",))
        text = self._render(source, conversation, opener=True)
        warnings: tuple[str, ...] = ()
        if text == self._render(source, conversation, opener=False):
            warnings = ("the chat template has no assistant opener; the model may continue the user's turn",)
        return self._with_one_bos(text, warnings)

    def _with_one_bos(self, text: str, warnings: tuple[str, ...]) -> Prompt:
        """A text that begins with the begin token has it already; any beyond one in a row are taken off."""
        if self.bos and self.adds_bos and not text.startswith(self.bos):
            text = self.bos + text
        while self.bos and text.startswith(self.bos + self.bos):
            text = text[len(self.bos) :]
        ids = self.encode(text)
        if not ids:
            raise InputError("a prompt must hold at least one token, got an empty text")
        return Prompt(ids, text, warnings)

    def _render(self, source: str, messages: Sequence[Message], opener: bool) -> str:
        def refuse(message: str) -> None:
            raise jinja2.TemplateError(message)

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
        environment.globals["raise_exception"] = refuse
        try:
            return environment.from_string(source).render(
                messages=messages,
                add_generation_prompt=opener,
                bos_token=self.bos or "",
                eos_token=self.eos or "",
                tools=None,
            )
        except jinja2.TemplateError as error:
            raise InputError(f"the chat template refuses this conversation: {error}") from None


def _token_text(value: object) -> str | None:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) and value else None


def _chat_template(directory: Path, options: dict) -> str | None:
    file = directory / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = options.get("chat_template")
    if isinstance(template, list):  # several named templates
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None
