"""The answer a model's text gives, or None. None counts as wrong and is reported apart.

Common to all kinds: text from where the model starts another question ("\\nQuestion: ...", "\\nQ2:") is cut off; an echoed
placeholder ("A/B/C/D", "true or false", "<number>", "[letter]") is no answer; a stated conclusion ("the answer is ...",
"#### ...", "\\boxed{...}") beats everything else, the last one stated if there are several.

    number   "$1,640.50" is 1640.5; "31.00" is 31; "-3" keeps its sign, "10-3" has none; "a/b" is the quotient and
             "2 1/2" is 2.5; without a conclusion the last number counts; "####" counts where it stands first
    choice   a letter in conclusion form, alone, or opening the reply ("B", "(B)", "B. because"); else the one option whose
             text appears; two options named without a conclusion are no answer, nor is a list of the options
    label    the word, with yes = true and no = false; "not true" is false; "no" counts only where it stands alone
             ("No, ..."), not as in "no evidence"; two different words without a conclusion are no answer
Source: ours.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

from workbench.routing.question import AnswerKind, Question

CONCLUSION = re.compile(
    r"(?:answer(?:\s+choice)?\s*(?:is|:|would\s+be|should\s+be|=)|answer\s+to\s+(?:the|this)\s+question\s+is|"
    r"correct\s+(?:option|choice)\s*(?:is|:))\s*:?\s*",
    re.IGNORECASE,
)
RUN_ON = re.compile(r"\n\s*(?:question|q)\s*\d*\s*[:.)]", re.IGNORECASE)
MAX_DIGITS = 100  # a longer row of digits is a model that repeats itself, not an answer
PLACEHOLDER = re.compile(r"<[^<>\n]{0,30}>|\[(?:[a-z ]{2,30})\]|_{3,}|\.{3,}", re.IGNORECASE)


@dataclass(frozen=True)
class Extraction:
    """`answer` is a label, or a number in its shortest form; `rule` says how it was found (or why not)."""

    answer: str | None
    rule: str


def extract(text: str, question: Question) -> Extraction:
    """What `text` answers to `question`."""
    if question.kind is AnswerKind.TEXT:
        return Extraction(None, "free text")
    cut = RUN_ON.search(text)
    body = PLACEHOLDER.sub(" ", (text[: cut.start()] if cut else text).replace("\N{MINUS SIGN}", "-").replace("**", ""))
    if question.kind is AnswerKind.NUMBER:
        return _number(body)
    if question.kind is AnswerKind.CHOICE:
        return _choice(body, question)
    return _label(body, question.labels)


def is_correct(extraction: Extraction, question: Question) -> bool:
    if extraction.answer is None:
        return False
    if question.kind is AnswerKind.NUMBER:
        given, right = parse_number(extraction.answer), parse_number(question.answer)
        return given is not None and right is not None and abs(given - right) <= Fraction(1, 10**6) * max(1, abs(right))
    return extraction.answer == question.answer


# ---- numbers

_INTEGER = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)"
_DECIMAL = rf"(?:{_INTEGER}(?:\.\d+)?|\.\d+)"
NUMBER = re.compile(
    rf"(?<![\w.])(?:(?<![\d)\]]\s)(?P<sign>-)\s?)?(?:\$|£|€)?(?P<sign2>-)?"
    rf"(?:(?P<whole>\d+)\s+(?=\d+/\d))?(?P<value>{_DECIMAL}(?:e[+-]?\d{{1,2}})?)(?!\d|e[+-]?\d)(?:\s?/\s?(?P<under>{_INTEGER})(?![\d/]))?",
    re.IGNORECASE,
)
LATEX_FRACTION = re.compile(r"\\d?frac\{(-?\d+)\}\{(\d+)\}")


def parse_number(text: str) -> Fraction | None:
    """The first number in `text`, exactly; None if there is none (or it divides by zero)."""
    match = NUMBER.search(text)
    return _value(match) if match else None


def _value(match: re.Match[str]) -> Fraction | None:
    if len(match[0]) > MAX_DIGITS:
        return None
    value = Fraction(
        match["value"].replace(",", "").lower() if not match["value"].startswith(".") else "0" + match["value"]
    )
    if match["under"]:
        under = int(match["under"].replace(",", ""))
        if under == 0:
            return None
        value /= under
    if match["whole"]:
        value += int(match["whole"])
    return -value if match["sign"] or match["sign2"] else value


def _shortest(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else repr(float(value))


def _number(body: str) -> Extraction:
    body = LATEX_FRACTION.sub(r" \1/\2 ", body)
    hashed = body.find("####")
    if hashed >= 0 and (match := NUMBER.search(body, hashed + 4)) and (value := _value(match)) is not None:
        return Extraction(_shortest(value), "after ####")
    boxed = re.findall(r"\\boxed\{([^{}]*)\}", body)
    for inner in reversed(boxed):
        if (value := parse_number(inner)) is not None:
            return Extraction(_shortest(value), "boxed")
    for conclusion in reversed(list(CONCLUSION.finditer(body))):
        sentence = re.split(r"\n|(?<=[^\d])\.\s|\.\s+(?=[A-Z])", body[conclusion.end() :], maxsplit=1)[0]
        found = [value for match in NUMBER.finditer(sentence) if (value := _value(match)) is not None]
        if found:
            # "the answer is 3 + 4 = 7": what stands after the equals sign counts.
            return Extraction(_shortest(found[-1] if "=" in sentence else found[0]), "conclusion")
    found = [value for match in NUMBER.finditer(body) if (value := _value(match)) is not None]
    if found:
        return Extraction(_shortest(found[-1]), "last number")
    return Extraction(None, "no number")


# ---- choices


def _choice(body: str, question: Question) -> Extraction:
    letters = "".join(question.labels)
    several = re.compile(rf"\(?\b[{letters}]\)?(?:\s*(?:/|\||,|,?\s*or)\s*\(?[{letters}]\b\)?)+")
    body = several.sub(" ", body)
    listed = re.compile(rf"^\s*\(?([{letters}])[).:]\s.*$", re.MULTILINE)
    if len(set(listed.findall(body))) > 1:
        body = listed.sub(" ", body)  # the options repeated, which is no answer
    after = re.compile(
        rf"(?:option|choice|letter)?\s*[\"'(\[]?(?P<letter>[{letters}])(?P<next>[^\w]|$)(?P<rest>.{{0,12}})", re.DOTALL
    )
    closed = re.compile(rf"\(([{letters}{letters.lower()}])\)")
    for inner in reversed(re.findall(r"\\boxed\{(?:\\text\{)?\(?([A-J])\)?\}?\}", body)):
        if inner in letters:
            return Extraction(inner, "boxed")
    for start in reversed([m.end() for m in CONCLUSION.finditer(body)] + [m.end() for m in re.finditer("####", body)]):
        rest = body[start:]
        match = after.match(rest.lstrip())
        if match and not _article(match):
            return Extraction(match["letter"], "conclusion")
        if closing := closed.match(rest.lstrip()):
            return Extraction(closing[1].upper(), "conclusion")
        named = _named_options(rest.split("\n", 1)[0], question)
        if len(named) == 1:
            return Extraction(named[0], "conclusion names an option")
    opening = body.strip()
    if len(opening) <= 3 and opening.strip("().:").upper() in question.labels:
        return Extraction(opening.strip("().:").upper(), "letter alone")
    match = after.match(opening)
    if match and not _article(match):
        return Extraction(match["letter"], "opening letter")
    if closing := closed.match(opening):
        return Extraction(closing[1].upper(), "opening letter")
    named = _named_options(body, question)
    if len(named) == 1:
        return Extraction(named[0], "names one option")
    return Extraction(None, "names several options" if named else "no option named")


def _article(match: re.Match[str]) -> bool:
    """'A lion' is an article, 'A. lion', 'A because' and 'B lion' are letters."""
    reason = re.match(r"(?:because|since|as|is|and|-)\b", match["rest"])
    return match["letter"] == "A" and match["next"] == " " and bool(re.match(r"[a-z]", match["rest"])) and not reason


def _named_options(text: str, question: Question) -> list[str]:
    """Labels whose option text stands in `text`; a text inside another named one does not count twice."""
    spans = {}
    for label, option in zip(question.labels, question.options, strict=True):
        core = re.escape(option.strip().rstrip(".").lower())
        if core and (match := re.search(rf"(?<!\w){core}(?!\w)", text.lower())):
            spans[label] = match.span()
    return [
        a
        for a, (start, end) in spans.items()
        if not any(b != a and s <= start and end <= e and (e - s) > (end - start) for b, (s, e) in spans.items())
    ]


# ---- labels

_SAME = {"yes": "true", "no": "false", "true": "yes", "false": "no"}


def _label(body: str, labels: tuple[str, ...]) -> Extraction:
    meaning = {label.lower(): label for label in labels}
    for word, other in _SAME.items():
        if word not in meaning and other in meaning:
            meaning[word] = meaning[other]
    words = "|".join(sorted(map(re.escape, meaning), key=len, reverse=True))
    text = re.sub(rf"\b(?:{words})\b(?:\s*(?:/|\||,|,?\s*or)\s*\b(?:{words})\b)+", " ", body, flags=re.IGNORECASE)
    token = re.compile(rf"\b(?P<negated>not\s+)?(?P<word>{words})\b(?P<next>\s*\w?)", re.IGNORECASE)

    def read(match: re.Match[str]) -> str | None:
        word = match["word"].lower()
        if word == "no" and match["next"].strip():
            return None  # "no evidence"
        if match["negated"]:
            opposite = {"true": "false", "false": "true", "yes": "no", "no": "yes"}.get(word)
            return meaning.get(opposite) if opposite else None
        return meaning[word]

    for start in reversed([m.end() for m in CONCLUSION.finditer(text)] + [m.end() for m in re.finditer("####", text)]):
        match = token.match(text[start:].lstrip(" \n\t\"'(*"))
        if match and (answer := read(match)):
            return Extraction(answer, "conclusion")
    opening = token.match(text.strip().lstrip("\"'("))
    if opening and (answer := read(opening)):
        return Extraction(answer, "opening word")
    named = {answer for match in token.finditer(text) if (answer := read(match))}
    if len(named) == 1:
        return Extraction(named.pop(), "only word named")
    return Extraction(None, "names several answers" if named else "no answer named")
