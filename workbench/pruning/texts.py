"""What pruning is judged on: long prompts with a reference continuation, and retrieval tasks with known answers.

    gsm8k     worked problems one after another (a task file)          prose and arithmetic
    code      this project's own source files                          repository text
    keyvalue  a list of names with numbers, four of them asked for     every line may matter
    needles   four such lines hidden in worked problems or source      few lines matter

A text is token ids; the last `num_tail` of them are the continuation that is decoded step by step, teacher-forced, with
pruning on. Answers are spans of the continuation: an answer is right where the most likely token is the right one at
each of its places, which is when greedy decoding would have written it. Every text is a function of (kind, seed, length).
"""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workbench.errors import InputError, unknown_name

ROOT = Path(__file__).resolve().parents[2]
NUM_ANSWERS = 4
NAMES = (
    "Amber", "Basil", "Cedar", "Delta", "Ember", "Fjord", "Grove", "Hazel", "Ivory", "Jasper", "Karma", "Lotus", "Maple",
    "North", "Ocean", "Pearl", "Quartz", "River", "Stone", "Thorn", "Umber", "Viola", "Water", "Xenon", "Yarrow", "Zephyr",
)  # fmt: skip


@dataclass(frozen=True)
class Text:
    """ids: the whole text; answers: (first, last + 1) places in it, inside the tail."""

    kind: str
    seed: int
    ids: tuple[int, ...]
    num_tail: int
    answers: tuple[tuple[int, int], ...] = ()

    @property
    def name(self) -> str:
        return f"{self.kind}-{len(self.ids)}-{self.seed}"


Encode = Callable[[str], Sequence[int]]


def make_text(kind: str, seed: int, num_tokens: int, num_tail: int, encode: Encode, tasks_dir: Path | None) -> Text:
    """`num_tokens` long with a tail of `num_tail` (retrieval: about; the tail is the questions). Raises `InputError`."""
    if kind not in KINDS:
        raise unknown_name("text kind", kind, KINDS)
    if not 1 <= num_tail < num_tokens:
        raise InputError(f"the continuation must be in [1, context) = [1, {num_tokens}) tokens, got {num_tail}")
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    if kind in ("gsm8k", "code"):
        ids = _filler(kind, num_tokens, rng, encode, tasks_dir)
        return Text(kind, seed, tuple(ids), num_tail)
    return _retrieval(kind, seed, num_tokens, rng, encode, tasks_dir)


KINDS = ("gsm8k", "code", "keyvalue", "needles")


def tasks_folder(given: Path | None) -> Path | None:
    """The folder of task files: the one given, else tasks/ in $ENTROPIC_DATA, else beside the project."""
    root = os.environ.get("ENTROPIC_DATA")
    for place in (given, Path(root) / "tasks" if root else None, ROOT.parent / "shared" / "data" / "tasks"):
        if place is not None and place.is_dir():
            return place
    return None


def gsm8k_file(tasks_dir: Path | None) -> Path:
    """Raises `InputError` where the task file is not there."""
    path = (tasks_dir or Path()) / "gsm8k" / "train.jsonl"
    if tasks_dir is None or not path.is_file():
        raise InputError("texts of kind gsm8k need gsm8k/train.jsonl in the folder of tasks; pass --tasks-dir")
    return path


def _filler(kind: str, num_tokens: int, rng: np.random.Generator, encode: Encode, tasks_dir: Path | None) -> list[int]:
    if kind == "gsm8k":
        rows = [json.loads(line) for line in gsm8k_file(tasks_dir).read_text(encoding="utf-8").splitlines() if line]
        parts = [f"Question: {row['question']}\nAnswer: {row['answer']}\n\n" for row in rows]
    else:
        files = sorted(p for name in ("workbench", "controllers", "sims") for p in (ROOT / name).rglob("*.py"))
        parts = [path.read_text(encoding="utf-8") for path in files if path.stat().st_size > 500]
    ids: list[int] = []
    for index in rng.permutation(len(parts)):
        ids += encode(parts[index])
        if len(ids) >= num_tokens:
            return ids[:num_tokens]
    raise InputError(f"there are only {len(ids)} tokens of {kind} text, {num_tokens} asked for")


def _retrieval(
    kind: str, seed: int, num_tokens: int, rng: np.random.Generator, encode: Encode, tasks_dir: Path | None
) -> Text:
    """Facts, then questions put as the beginnings of the same sentences."""

    def fact(name: str, number: str) -> str:
        return f"The access code of {name} is {number}.\n"

    many = list(NAMES) if kind == "needles" else [f"{a} {b}" for a in NAMES for b in NAMES if a != b]
    names = [many[i] for i in rng.permutation(len(many))]
    numbers = [f"{n}" for n in rng.permutation(np.arange(100, 1000))[: len(names)]]
    questions: list[list[int]] = []
    spans: list[tuple[int, int]] = []
    tail_length = 0
    for name, number in zip(names[:NUM_ANSWERS], numbers, strict=False):
        asked, whole = list(encode(fact(name, "#").split(" #")[0])), list(encode(fact(name, number)))
        end = len(encode(fact(name, number)[:-2]))  # without full stop and line end
        spans.append((tail_length + len(asked), tail_length + end))
        questions.append(whole)
        tail_length += len(whole)
    tail = [token for question in questions for token in question]
    lead = list(encode("\nRepeat the codes given above.\n"))
    room = num_tokens - len(tail) - len(lead)
    if room < 400:
        raise InputError(f"retrieval texts need at least {400 + num_tokens - room} tokens, got {num_tokens}")
    if kind == "keyvalue":
        pieces = [list(encode(fact(a, b))) for a, b in zip(names, numbers, strict=True)]
        wanted, rest, total = pieces[:NUM_ANSWERS], [], sum(map(len, pieces[:NUM_ANSWERS]))
        for piece in pieces[NUM_ANSWERS:]:
            if total + len(piece) > room:
                break
            rest.append(piece)
            total += len(piece)
        body = wanted + rest
        body = [body[i] for i in rng.permutation(len(body))]
        context = [token for piece in body for token in piece]
    else:
        wanted = [list(encode("\n" + fact(a, b))) for a, b in zip(names[:NUM_ANSWERS], numbers, strict=False)]
        context = _filler("gsm8k" if seed % 2 == 0 else "code", room - sum(map(len, wanted)), rng, encode, tasks_dir)
        places = np.sort(rng.integers(0, len(context), NUM_ANSWERS))[::-1]
        for place, piece in zip(places, wanted, strict=True):
            context[place:place] = piece
    first = len(context) + len(lead)
    answers = tuple((first + a, first + b) for a, b in spans)
    return Text(kind, seed, tuple(context + lead + tail), len(tail), answers)
