import pytest

from workbench.errors import InputError
from workbench.protocols import Strategy
from workbench.routing.prompts import load_prompts
from workbench.routing.question import AnswerKind, Question

CHOICE = Question(
    task="t",
    question_id="0",
    text="Which {one} is {question}?",
    kind=AnswerKind.CHOICE,
    answer="A",
    labels=("A", "B", "C"),
    options=("red.", "blue", "{labels}"),
)


def test_ours_render_every_kind_and_keep_braces_as_text():
    prompts = load_prompts()
    for strategy in Strategy:
        text = prompts.user_text(CHOICE, strategy)
        assert "Which {one} is {question}?" in text
        assert "C. {labels}" in text
    assert prompts.scored_texts(CHOICE) == (" red", " blue", " {labels}")
    label = Question(
        task="t", question_id="0", text="Is it?", kind=AnswerKind.LABEL, answer="true", labels=("true", "false")
    )
    assert "true or false" in prompts.user_text(label, Strategy.DIRECT)
    assert prompts.scored_texts(label) == (" true", " false")
    texts = {prompts.user_text(label, s) for s in Strategy}
    assert len(texts) == 3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("{options}", ""), r"choice must hold \{options\}"),
        (("{question}", "{qestion}"), "qestion.*did you mean question"),
        (("[cot]", "[thought]"), "thought"),
        (("[scoring]", "[scoring"), "cannot be read"),
        (('choice = "text"', 'choice = "words"'), "words"),
    ],
)
def test_bad_files_are_refused(tmp_path, change, says):
    from importlib.resources import files

    text = files("workbench.routing").joinpath("prompts.toml").read_text("utf-8")
    # Comments name the placeholders too: leave them out.
    body = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    assert change[0] in body
    path = tmp_path / "mine.toml"
    path.write_text(body.replace(*change), encoding="utf-8")
    with pytest.raises(InputError, match=says):
        load_prompts(path)
    with pytest.raises(InputError, match="cannot be read"):
        load_prompts(tmp_path / "absent.toml")
