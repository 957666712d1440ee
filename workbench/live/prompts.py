"""What the live model is asked: the built-in prompts of five kinds, or a user's own from a JSONL file.

A line of such a file is an object with `prompt` (text, put through the chat template), `messages` (a conversation) or
`token_ids`, and optionally `kind`, `max_tokens`, `arrival_s`, `priority` and `seed`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from workbench.errors import InputError, unknown_name
from workbench.live.tokenizer import Message

KINDS = ("copy", "code", "math", "fact", "creative")


@dataclass(frozen=True, kw_only=True)
class PromptSpec:
    """One request before it is tokenised; exactly one of `prompt`, `messages`, `token_ids` is given."""

    prompt: str | None = None
    messages: tuple[Message, ...] | None = None
    token_ids: tuple[int, ...] | None = None
    kind: str = "any"
    max_tokens: int | None = None
    arrival_s: float = 0.0
    priority: int = 0
    seed: int | None = None  # this request's own seed, instead of the run's


def builtin_prompts(kinds: Sequence[str] = KINDS, per_kind: int | None = None) -> list[PromptSpec]:
    """The built-in prompts, kinds taking turns, so that any first few hold every kind."""
    if unknown := sorted(set(kinds) - set(KINDS)):
        raise unknown_name("prompt kind", unknown[0], KINDS)
    rows = json.loads((files("workbench.live") / "prompts.json").read_text(encoding="utf-8"))["prompts"]
    by_kind = [[PromptSpec(prompt=row["text"], kind=kind) for row in rows if row["kind"] == kind] for kind in kinds]
    taken = [specs[:per_kind] for specs in by_kind]
    return [specs[i] for i in range(max(map(len, taken))) for specs in taken if i < len(specs)]


def load_prompts(path: Path) -> list[PromptSpec]:
    """Raises `InputError` with the line number of the first line that cannot be used."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8") from None
    specs = [_prompt(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not specs:
        raise InputError(f"{path}: holds no prompts")
    return specs


def _prompt(line: str, where: str) -> PromptSpec:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise InputError(f"{where}: not JSON ({error})") from None
    if not isinstance(row, dict):
        raise InputError(f"{where}: must be an object, got {type(row).__name__}")
    known = {field.name for field in fields(PromptSpec)}
    if extra := sorted(set(row) - known):
        raise InputError(f"{where}: {unknown_name('key', extra[0], known)}")
    given = [name for name in ("prompt", "messages", "token_ids") if row.get(name)]
    if len(given) != 1:
        raise InputError(f"{where}: exactly one of prompt, messages and token_ids must be given, got {given or 'none'}")
    _check(row, "prompt", isinstance(row.get("prompt", ""), str), "a text", where)
    _check(row, "messages", _all(row.get("messages", []), _is_message), "a list of {role, content}", where)
    _check(row, "token_ids", _all(row.get("token_ids", []), _is_count), "a list of whole numbers from 0", where)
    _check(row, "kind", isinstance(row.get("kind", ""), str), "a text", where)
    for name, low in (("max_tokens", 1), ("priority", 0), ("seed", 0)):
        value = row.get(name, low)
        _check(row, name, _is_count(value) and value >= low, f"a whole number from {low}", where)
    arrival = row.get("arrival_s", 0.0)
    numeric = isinstance(arrival, int | float) and not isinstance(arrival, bool)
    _check(row, "arrival_s", numeric and 0.0 <= arrival < float("inf"), "a number of seconds from 0", where)
    for name in ("messages", "token_ids"):
        if name in row:
            row[name] = tuple(row[name])
    return PromptSpec(**row)


def _check(row: dict[str, Any], name: str, holds: bool, what: str, where: str) -> None:
    if not holds:
        raise InputError(f"{where}: {name} must be {what}, got {row[name]!r}")


def _all(values: Any, test: Any) -> bool:
    return isinstance(values, list) and all(test(value) for value in values)


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(key), str) for key in ("role", "content"))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
