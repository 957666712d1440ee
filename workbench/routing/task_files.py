"""Task sets on disk as tuples of `Question`: the public sets under their usual names, and a plain JSONL of one's own.

    gsm8k svamp arc-easy arc-challenge openbookqa boolq folio bbh-<part>      in the folder `tasks_dir`
    anything.jsonl                                                            one JSON object a line:
        {"question": "...", "answer": "..."}                          a number
        {"question": "...", "answer": "B", "options": ["..", ".."]}   a choice; the answer is a letter or an option text
        {"question": "...", "answer": "yes", "labels": ["yes","no"]}  one of a few words
      "id" is optional. Unknown keys are refused.

Sources and licences of the public sets stand in their folders; none is part of this project.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from workbench.errors import InputError, unknown_name
from workbench.routing.question import AnswerKind, Question

LETTERS = "ABCDEFGHIJ"
Row = tuple[str, Any]  # where it stands, for messages; the parsed JSON
OWN_KEYS = {"question", "answer", "options", "labels", "id"}


def load_task(name: str, tasks_dir: Path | None = None) -> tuple[Question, ...]:
    """All questions of a task, in file order. `name` is a known set or the path of a JSONL file."""
    path = Path(name)
    if path.suffix == ".jsonl" or path.is_file():
        return _questions(path.stem, path, _own_question)
    known = dict(_KNOWN)
    folder = tasks_dir / "bbh" if tasks_dir else None
    for part in sorted(folder.glob("*.json")) if folder and folder.is_dir() else ():
        known[f"bbh-{part.stem.replace('_', '-')}"] = (f"bbh/{part.name}", _bbh)
    if name not in known:
        raise unknown_name("task", name, [*known, "FILE.jsonl"])
    file, parse = known[name]
    if tasks_dir is None or not (tasks_dir / file).is_file():
        place = f"{tasks_dir}" if tasks_dir else "no folder given"
        raise InputError(
            f"task {name!r} needs {file} in the folder of tasks ({place}); pass --tasks-dir or a JSONL file"
        )
    return _questions(name, tasks_dir / file, parse)


def _questions(task: str, path: Path, parse: Callable[[str, str, Any], Question]) -> tuple[Question, ...]:
    questions = []
    for index, (where, row) in enumerate(_rows(path)):
        try:
            questions.append(parse(task, f"{index}", row))
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InputError(f"{where}: not a row of a {task} file ({type(error).__name__}: {error})") from None
    if not questions:
        raise InputError(f"{path}: no questions in the file")
    ids = [question.question_id for question in questions]
    if len(set(ids)) < len(ids):
        twice = next(i for i in ids if ids.count(i) > 1)
        raise InputError(f"{path}: two questions have the id {twice!r}; ids must differ")
    return tuple(questions)


def _rows(path: Path) -> Iterator[Row]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"task file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"task file {path} is not UTF-8 (byte {error.start}); save it as UTF-8") from None
    if path.suffix == ".jsonl":
        for number, line in enumerate(text.splitlines(), start=1):
            if line.strip():
                yield f"{path} line {number}", _parse(line, f"{path} line {number}")
        return
    data = _parse(text, str(path))
    rows = data.get("examples") if isinstance(data, dict) else data
    if not isinstance(rows, list):
        raise InputError(f"task file {path} holds no list of questions")
    for number, row in enumerate(rows, start=1):
        yield f"{path} row {number}", row


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not JSON ({error.msg} at character {error.pos})") from None


def _required(row: Any, key: str) -> str:
    value = row.get(key)
    if value is None or (isinstance(value, str) and not value.strip()):
        raise InputError(f"no {key} given; every row needs one")
    return str(value)


def _choice(task: str, question_id: str, text: str, options: list[str], answer: str) -> Question:
    if len(options) > len(LETTERS):
        raise InputError(f"{len(options)} options, at most {len(LETTERS)} are offered")
    return Question(
        task=task,
        question_id=question_id,
        text=text,
        kind=AnswerKind.CHOICE,
        answer=answer,
        labels=tuple(LETTERS[: len(options)]),
        options=tuple(options),
    )


def _own_question(task: str, question_id: str, row: Any) -> Question:
    if not isinstance(row, dict):
        raise InputError(f"expected a JSON object, got {type(row).__name__}")
    for key in row:
        if key not in OWN_KEYS:
            raise unknown_name("key", str(key), OWN_KEYS)
    text, answer = _required(row, "question"), _required(row, "answer")
    question_id = str(row.get("id", question_id))
    if "options" in row:
        options = [str(option) for option in row["options"]]
        letter = answer if answer in LETTERS[: len(options)] else None
        if letter is None:
            if options.count(answer) != 1:
                raise InputError(f"answer {answer!r} is neither a letter nor one of the options")
            letter = LETTERS[options.index(answer)]
        return _choice(task, question_id, text, options, letter)
    if "labels" in row:
        return Question(
            task=task,
            question_id=question_id,
            text=text,
            kind=AnswerKind.LABEL,
            answer=answer,
            labels=tuple(str(label) for label in row["labels"]),
        )
    return _number(task, question_id, text, answer)


def _number(task: str, question_id: str, text: str, answer: str) -> Question:
    try:
        float(answer.replace(",", ""))
    except ValueError:
        raise InputError(f"answer {answer!r} is not a number; give options or labels for other answers") from None
    return Question(task=task, question_id=question_id, text=text, kind=AnswerKind.NUMBER, answer=answer)


def _gsm8k(task: str, question_id: str, row: Any) -> Question:
    solution = _required(row, "answer")
    if "####" not in solution:
        raise InputError("no answer given after '####'")
    return _number(task, question_id, _required(row, "question"), solution.rsplit("####", 1)[1].strip())


def _svamp(task: str, question_id: str, row: Any) -> Question:
    body = _required(row, "Body").rstrip()
    joined = body if body.endswith((".", "?", "!", ",")) else f"{body}."
    return _number(task, question_id, f"{joined} {_required(row, 'Question')}", _required(row, "Answer"))


_STEM = re.compile(r"^Please choose the correct answer to the question:\s*(?P<text>.*?)\n\nAnswer1:", re.DOTALL)
_BODY = re.compile(r"(?P<options>Answer1:.*)\n\nAnswer format:", re.DOTALL)


def _multiple_choice(task: str, question_id: str, row: Any) -> Question:
    instruction, answer = _required(row, "instruction"), _required(row, "answer")
    stem, body = _STEM.search(instruction), _BODY.search(instruction)
    if not stem or not body:
        raise InputError("the instruction does not hold a question and Answer1: ... options")
    options = [part.strip() for part in re.split(r"\s*Answer\d+:\s*", body["options"])[1:]]
    number = re.fullmatch(r"answer(\d+)", answer)
    if not number or not 1 <= int(number[1]) <= len(options):
        raise InputError(f"answer {answer!r} names none of the {len(options)} options")
    return _choice(task, question_id, stem["text"].strip(), options, LETTERS[int(number[1]) - 1])


_BOOLQ = re.compile(r"question:\s*(?P<text>.*?)\s*\n\nAnswer format:", re.DOTALL)


def _boolq(task: str, question_id: str, row: Any) -> Question:
    found = _BOOLQ.search(_required(row, "instruction"))
    if not found:
        raise InputError("the instruction does not hold a question")
    text = found["text"][:1].upper() + found["text"][1:]
    return _words(task, question_id, text, ("true", "false"), _required(row, "answer"))


def _words(task: str, question_id: str, text: str, labels: tuple[str, ...], answer: str) -> Question:
    return Question(
        task=task, question_id=question_id, text=text, kind=AnswerKind.LABEL, answer=answer.lower(), labels=labels
    )


def _folio(task: str, question_id: str, row: Any) -> Question:
    answer = _required(row, "label").lower().replace("unknown", "uncertain")
    text = " ".join(row["premises"]) + f" Does it follow that: {_required(row, 'conclusion')}"
    return _words(task, question_id, text, ("true", "false", "uncertain"), answer)


def _bbh(task: str, question_id: str, row: Any) -> Question:
    text, target = _required(row, "input"), _required(row, "target")
    letters = re.findall(r"^\(([A-J])\)\s*(.*)$", text, re.MULTILINE)
    if letters and re.fullmatch(r"\([A-J]\)", target):
        stem = text.split("\nOptions:")[0]
        return _choice(task, question_id, stem, [option for _, option in letters], target.strip("()"))
    for labels in (("true", "false"), ("yes", "no")):
        if target.lower() in labels:
            return _words(task, question_id, text.split("\nOptions:")[0], labels, target)
    return _number(task, question_id, text, target)


_KNOWN: dict[str, tuple[str, Callable[[str, str, Any], Question]]] = {
    "gsm8k": ("gsm8k/test.jsonl", _gsm8k),
    "svamp": ("svamp/SVAMP.json", _svamp),
    "arc-easy": ("arc/ARC-Easy/test.json", _multiple_choice),
    "arc-challenge": ("arc/ARC-Challenge/test.json", _multiple_choice),
    "openbookqa": ("openbookqa/test.json", _multiple_choice),
    "boolq": ("boolq/test.json", _boolq),
    "folio": ("folio/folio-validation.jsonl", _folio),
}
