"""Prompt templates: one TOML file, `prompts.toml` by default, read into a frozen object that renders questions.

Checked when read: every strategy has a template for every kind, each holds {question} (choice also {options}), and no
placeholder is unknown. Values are inserted as they are: braces in a question are text.
"""

import re
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from workbench.errors import InputError, unknown_name
from workbench.protocols import Strategy
from workbench.routing.question import AnswerKind, Question

PLACEHOLDERS = ("question", "options", "letters", "labels")
REQUIRED = {
    AnswerKind.CHOICE: ("question", "options"),
    AnswerKind.LABEL: ("question",),
    AnswerKind.NUMBER: ("question",),
    AnswerKind.TEXT: ("question",),
}
SCORED = {AnswerKind.CHOICE: ("text", "label"), AnswerKind.LABEL: ("label",)}


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """`templates[strategy, kind]` is the user's turn; `cue` and `scored` say how options are scored after a reply."""

    system: str
    templates: dict[tuple[Strategy, AnswerKind], str]
    cue: str
    scored: dict[AnswerKind, str]

    def user_text(self, question: Question, strategy: Strategy) -> str:
        values = {
            "question": question.text,
            "options": question.option_lines(),
            "letters": _either(question.labels),
            "labels": _either(question.labels),
        }
        template = self.templates[strategy, question.kind]
        return re.sub(r"\{(\w+)\}", lambda match: values[match[1]], template).strip()

    def messages(self, question: Question, strategy: Strategy) -> list[dict[str, str]]:
        turns = [{"role": "system", "content": self.system}] if self.system else []
        return [*turns, {"role": "user", "content": self.user_text(question, strategy)}]

    def scored_texts(self, question: Question) -> tuple[str, ...]:
        """What is scored for each label, in the order of `question.labels`; empty for numbers."""
        if question.kind not in self.scored:
            return ()
        texts = question.options if self.scored[question.kind] == "text" else question.labels
        return tuple(f" {text.strip().rstrip('.')}" for text in texts)


def _either(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else "".join(words)


def load_prompts(path: Path | None = None) -> Prompts:
    """The templates in `path`, or ours. Raises `InputError` naming the file and the entry."""
    where = path or "prompts.toml"
    try:
        text = (
            path.read_text(encoding="utf-8") if path else files(__package__).joinpath("prompts.toml").read_text("utf-8")
        )
        data = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"prompt file {where} cannot be read: {error}") from None
    for key in data:
        if key not in ("system", "standard", "direct", "cot", "scoring"):
            raise unknown_name(f"key in {where}", key, ("system", "standard", "direct", "cot", "scoring"))
    templates = {}
    for strategy in Strategy:
        table = data.get(strategy.name.lower(), {})
        for kind in AnswerKind:
            template = table.get(kind.value)
            if not isinstance(template, str):
                raise InputError(f"prompt file {where}: no template {strategy.name.lower()}.{kind.value}")
            used = re.findall(r"\{(\w+)\}", template)
            for name in used:
                if name not in PLACEHOLDERS:
                    raise unknown_name(f"placeholder in {where}", name, PLACEHOLDERS)
            for name in REQUIRED[kind]:
                if name not in used:
                    raise InputError(f"prompt file {where}: {strategy.name.lower()}.{kind.value} must hold {{{name}}}")
            templates[strategy, kind] = template
    scoring = data.get("scoring", {})
    scored = {}
    for kind, allowed in SCORED.items():
        scored[kind] = scoring.get(kind.value, allowed[0])
        if scored[kind] not in allowed:
            raise unknown_name(f"scoring.{kind.value} in {where}", str(scored[kind]), allowed)
    return Prompts(
        system=str(data.get("system", "")),
        templates=templates,
        cue=str(scoring.get("cue", "\n\nThe answer is")),
        scored=scored,
    )
