"""One question of a task, in the one form every loader produces and every prompt, extraction rule and score reads."""

from dataclasses import dataclass
from enum import StrEnum

from workbench.errors import InputError


class AnswerKind(StrEnum):
    CHOICE = "choice"  # a letter that stands for an option text
    LABEL = "label"  # one of a few words, such as true and false
    NUMBER = "number"
    TEXT = "text"  # free text: shown, not scored


@dataclass(frozen=True, kw_only=True)
class Question:
    """`labels` are the allowed answers of a CHOICE (A, B, ...) or LABEL question, empty for a NUMBER or free TEXT.

    `options` are the texts behind the letters of a CHOICE question, else empty. `answer` is one of `labels`, or a number
    as written.
    """

    task: str
    question_id: str  # unique within its task
    text: str
    kind: AnswerKind
    answer: str
    labels: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        where = f"question {self.question_id} of {self.task}"
        if not self.text.strip():
            raise InputError(f"{where}: the question text is empty")
        if not self.answer.strip():
            raise InputError(f"{where}: no answer given; every row of a task needs one")
        if self.kind in (AnswerKind.NUMBER, AnswerKind.TEXT):
            return
        if len(self.labels) < 2 or len(set(self.labels)) < len(self.labels):
            raise InputError(f"{where}: needs at least two different answers to choose from, got {list(self.labels)}")
        if self.answer not in self.labels:
            raise InputError(f"{where}: answer {self.answer!r} is none of {', '.join(self.labels)}")
        if self.kind is AnswerKind.CHOICE and len(self.options) != len(self.labels):
            raise InputError(f"{where}: {len(self.labels)} letters for {len(self.options)} options")

    def option_lines(self) -> str:
        """The options as shown to the model, one a line; empty for other kinds."""
        return "\n".join(f"{label}. {option}" for label, option in zip(self.labels, self.options, strict=False))
