import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.routing.extraction import extract, is_correct
from workbench.routing.question import AnswerKind, Question


def number(answer="1"):
    return Question(task="t", question_id="0", text="?", kind=AnswerKind.NUMBER, answer=answer)


def choice(answer="B", options=("red", "blue", "light blue", "a green lion")):
    letters = tuple("ABCDE"[: len(options)])
    return Question(
        task="t", question_id="0", text="?", kind=AnswerKind.CHOICE, answer=answer, labels=letters, options=options
    )


def label(*labels, answer=None):
    return Question(
        task="t", question_id="0", text="?", kind=AnswerKind.LABEL, answer=answer or labels[0], labels=labels
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("she pays $31.00.", "31"),
        ("That makes 85 in all, give or take.", "85"),
        ("$1,640.50", "1640.5"),
        ("-3", "-3"),
        ("$-3", "-3"),
        ("-$3", "-3"),
        ("\N{MINUS SIGN}3", "-3"),
        ("#### 18\n\nQuestion: what is next?\n#### 5", "18"),
        ("#### 18 and then something else #### 5", "18"),
        ("no idea", None),
        ("", None),
        (",", None),
        ("well, no.", None),
        ("1/2", "0.5"),
        ("the answer is 3/4 of a pie", "0.75"),
        ("2 1/2 cups", "2.5"),
        ("6/0", None),
        (r"\frac{3}{2}", "1.5"),
        (r"so \boxed{42} it is, out of 100", "42"),
        ("10-3", "3"),
        ("10 - 3 = 7", "7"),
        ("(5) - 3", "3"),
        ("The answer is 3 + 4 = 7.", "7"),
        ("The answer is 12. There were 30 at first.", "12"),
        ("The answer is 12.5. There were 30.", "12.5"),
        ("The answer is 5.\nWait. The answer is 6.", "6"),
        ("The answer is: **72**", "72"),
        ("<number>", None),
        ("The answer is [number].", None),
        ("1,234,567 people", "1234567"),
        ("answers 1, 2, 3", "3"),
        ("2e3 units", "2000"),
        ("It costs 50%.", "50"),
        ("He ran .5 miles", "0.5"),
        ("a 3rd of 9 is unknown, b2b", "9"),
        ("1e999999999", None),
        ("9" * 5000, None),
        ("12 \nQ2: what is 4+4? 8", "12"),
    ],
)
def test_numbers(text, expected):
    assert extract(text, number()).answer == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("B", "B"),
        ("b", "B"),
        ("(B)", "B"),
        ("(b) blue", "B"),
        ("B.", "B"),
        ("B. blue", "B"),
        ("B because it is blue, not red", "B"),
        ("The answer is B.", "B"),
        ("The correct answer is: (C) light blue", "C"),
        ("Answer: option D", "D"),
        ("The answer is A. Or rather, the answer is C.", "C"),
        ("I think it is light blue.", "C"),
        ("It is blue.", "B"),
        ("It could be red or blue.", None),
        ("The answer is A/B/C/D", None),
        ("A, B, C or D", None),
        ("The answer is [letter].", None),
        ("<letter>", None),
        ("A lion is green.", None),
        ("The answer is a green lion.", "D"),
        ("The answer is A lion", None),
        ("A because red is warm", "A"),
        ("#### C", "C"),
        (r"\boxed{D}", "D"),
        ("F", None),
        ("A. red\nB. blue\nC. light blue", None),
        ("A. red\nB. blue\nC. light blue\nThe answer is B", "B"),
        ("A. red\nA. red", "A"),
        ("", None),
        ("I do not know", None),
        ("B\nQuestion: another?\nThe answer is C", "B"),
        ("Be careful: nothing here", None),
    ],
)
def test_choices(text, expected):
    assert extract(text, choice()).answer == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", "true"),
        ("True.", "true"),
        ("Yes, it is.", "true"),
        ("No, it is not.", "false"),
        ("No", "false"),
        ("true/false", None),
        ("The answer is true or false.", None),
        ("There is no evidence for it.", None),
        ("There is no doubt, so the answer is yes.", "true"),
        ("It is not true.", "false"),
        ("The statement is false because it is never so.", "false"),
        ("Some say true, some say false.", None),
        ("Some say true. The answer is: False", "false"),
        ("untrue", None),
        ("", None),
        ("maybe", None),
    ],
)
def test_labels(text, expected):
    assert extract(text, label("true", "false")).answer == expected


def test_labels_of_other_sets():
    assert extract("Yes.", label("yes", "no")).answer == "yes"
    assert extract("That is true.", label("yes", "no")).answer == "yes"
    assert extract("It is uncertain.", label("true", "false", "uncertain")).answer == "uncertain"
    assert extract("True", label("Positive", "Negative")).answer is None


@pytest.mark.parametrize(
    ("said", "answer", "right"),
    [
        ("31.00", "31", True),
        ("2,125", "2125", True),
        ("0.5", "1/2", True),
        ("31.01", "31", False),
        ("nothing", "0", False),
    ],
)
def test_numbers_are_compared_by_value(said, answer, right):
    assert is_correct(extract(said, number()), number(answer)) is right


@given(st.text(max_size=200))
def test_any_text_gives_an_allowed_answer_or_none(text):
    assert extract(text, choice()).answer in (None, "A", "B", "C", "D")
    assert extract(text, label("true", "false")).answer in (None, "true", "false")
    answer = extract(text, number()).answer
    assert answer is None or isinstance(float(answer), float)


@given(
    st.integers(-(10**9), 10**9), st.sampled_from(["{}", "#### {}", "The answer is {}.", "so x = {}.", r"\boxed{{{}}}"])
)
def test_a_written_number_comes_back(value, template):
    for written in (str(value), f"{value:,}", f"{value}.00"):
        assert extract(template.format(written), number()).answer == str(value)
