import json

import pytest

from workbench.errors import InputError
from workbench.routing.question import AnswerKind
from workbench.routing.subsample import subsample
from workbench.routing.task_files import load_task


def write(path, *rows):
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("name", "count", "kind", "first_answer"),
    [
        ("gsm8k", 1319, AnswerKind.NUMBER, "18"),
        ("svamp", 1000, AnswerKind.NUMBER, "51.0"),
        ("arc-easy", 2376, AnswerKind.CHOICE, "A"),
        ("arc-challenge", 1172, AnswerKind.CHOICE, "C"),
        ("openbookqa", 500, AnswerKind.CHOICE, "B"),
        ("boolq", 3270, AnswerKind.LABEL, "false"),
        ("folio", 204, AnswerKind.LABEL, None),
        ("bbh-navigate", 250, AnswerKind.LABEL, "no"),
        ("bbh-boolean-expressions", 250, AnswerKind.LABEL, "false"),
        ("bbh-date-understanding", 250, AnswerKind.CHOICE, "B"),
        ("bbh-logical-deduction-three-objects", 250, AnswerKind.CHOICE, "A"),
        ("bbh-multistep-arithmetic-two", 250, AnswerKind.NUMBER, "24"),
        ("bbh-object-counting", 250, AnswerKind.NUMBER, "8"),
        ("bbh-web-of-lies", 250, AnswerKind.LABEL, "no"),
    ],
)
def test_public_sets(shared_data, name, count, kind, first_answer):
    questions = load_task(name, shared_data / "tasks")
    assert len(questions) == count
    assert {question.kind for question in questions} == {kind}
    if first_answer:
        assert questions[0].answer == first_answer


def test_a_choice_is_taken_apart(shared_data):
    first = load_task("arc-easy", shared_data / "tasks")[0]
    assert first.text == "Which statement best explains why photosynthesis is the foundation of most food webs?"
    assert first.options[1] == "Most ecosystems are found on land instead of in water."
    assert "Answer1" not in first.option_lines()


def test_own_jsonl(tmp_path):
    path = write(
        tmp_path / "mine.jsonl",
        {"question": "1+1?", "answer": 2},
        {"question": "Sky?", "answer": "blue", "options": ["red", "blue"], "id": "sky"},
        {"question": "Sky?", "answer": "A", "options": ["blue", "red"]},
        {"question": "Sure?", "answer": "yes", "labels": ["yes", "no"]},
        "",
    )
    questions = load_task(path)
    assert [(q.task, q.question_id, q.kind, q.answer) for q in questions] == [
        ("mine", "0", AnswerKind.NUMBER, "2"),
        ("mine", "sky", AnswerKind.CHOICE, "B"),
        ("mine", "2", AnswerKind.CHOICE, "A"),
        ("mine", "3", AnswerKind.LABEL, "yes"),
    ]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"question": "1+1?"}, "line 2.*no answer"),
        ({"question": "1+1?", "answer": None}, "line 2.*no answer"),
        ({"question": "1+1?", "answer": " "}, "line 2.*no answer"),
        ({"question": "  ", "answer": "2"}, "line 2.*question"),
        ({"question": "1+1?", "answer": "two"}, "line 2.*not a number"),
        ({"question": "?", "answer": "C", "options": ["a", "b"]}, "line 2.*neither"),
        ({"question": "?", "answer": "perhaps", "labels": ["yes", "no"]}, "line 2.*none of yes, no"),
        ({"question": "?", "answer": "yes", "labels": ["yes"]}, "line 2.*two different"),
        ({"question": "?", "answer": "1", "option": ["a"]}, "line 2.*option.*did you mean options"),
        ({"question": "?", "answer": "1", "id": "0"}, "two questions have the id '0'"),
        ("{broken", "line 2.*not JSON"),
        ("[1]", "line 2.*JSON object"),
    ],
)
def test_bad_rows_are_named(tmp_path, row, says):
    path = write(tmp_path / "mine.jsonl", {"question": "1+1?", "answer": 2}, row)
    with pytest.raises(InputError, match=says):
        load_task(path)


def test_bad_files(tmp_path):
    with pytest.raises(InputError, match="no questions"):
        load_task(write(tmp_path / "empty.jsonl"))
    with pytest.raises(InputError, match="cannot be read"):
        load_task(str(tmp_path / "absent.jsonl"))
    (tmp_path / "latin.jsonl").write_bytes("\xe9".encode("latin-1"))
    with pytest.raises(InputError, match="not UTF-8"):
        load_task(str(tmp_path / "latin.jsonl"))
    with pytest.raises(InputError, match=r"arc-esy.*did you mean arc-easy"):
        load_task("arc-esy", tmp_path)
    with pytest.raises(InputError, match="--tasks-dir"):
        load_task("arc-easy", tmp_path)


def test_a_byte_order_mark_is_no_part_of_the_first_row(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + b'{"question": "1+1?", "answer": 2}\r\n')
    assert load_task(str(path))[0].answer == "2"


def test_a_larger_subsample_keeps_the_smaller_one():
    items = list(range(1000))
    assert subsample(items, 300, seed=5)[:50] == subsample(items, 50, seed=5)
    assert subsample(items, 50, seed=6) != subsample(items, 50, seed=5)
    assert sorted(subsample(items, None, seed=5)) == items
    with pytest.raises(InputError, match=r"1 \.\. 1000"):
        subsample(items, 1001, seed=5)
