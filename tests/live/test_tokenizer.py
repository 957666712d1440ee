import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import models, pre_tokenizers, processors

from workbench.errors import InputError
from workbench.live.tokenizer import Tokenizer

OPENER = "{% if add_generation_prompt %}<a>{% endif %}"
BODY = "{% for m in messages %}<u>{{ m['content'] }}{% endfor %}"


def directory(path: Path, *, template: str | None, adds_bos: bool = False, declared: bool | None = None) -> Path:
    """A word-level tokenizer with a begin token 0, an end token 1, and markers <u> and <a>."""
    words = {w: i for i, w in enumerate(["<s>", "</s>", "<u>", "<a>", "one", "two", "three", "[UNK]"])}
    fast = FastTokenizer(models.WordLevel(words, unk_token="[UNK]"))
    fast.pre_tokenizer = pre_tokenizers.Whitespace()
    fast.add_special_tokens(["<s>", "</s>", "<u>", "<a>"])
    if adds_bos:
        fast.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    path.mkdir(exist_ok=True)
    fast.save(str(path / "tokenizer.json"))
    options = {"bos_token": "<s>", "eos_token": {"content": "</s>"}}
    if template is not None:
        options["chat_template"] = template
    if declared is not None:
        options["add_bos_token"] = declared
    (path / "tokenizer_config.json").write_text(json.dumps(options))
    return path


@pytest.mark.parametrize("in_template", [True, False])
@pytest.mark.parametrize("adds_bos", [True, False])
def test_exactly_one_begin_token(tmp_path: Path, in_template: bool, adds_bos: bool) -> None:
    template = ("{{ bos_token }}" if in_template else "") + BODY + OPENER
    tokenizer = Tokenizer(directory(tmp_path / "t", template=template, adds_bos=adds_bos))
    prompt = tokenizer.chat_prompt("one two")
    begins = 1 if in_template or adds_bos else 0
    assert prompt.token_ids == [0] * begins + [2, 4, 5, 3]
    assert tokenizer.encode(prompt.text) == prompt.token_ids, "the record's text is what the ids encode"
    assert prompt.warnings == ()


def test_two_begin_tokens_in_the_template_become_one(tmp_path: Path) -> None:
    tokenizer = Tokenizer(directory(tmp_path / "t", template="{{ bos_token }}<s>" + BODY + OPENER, adds_bos=True))
    assert tokenizer.chat_prompt("one").token_ids == [0, 2, 4, 3]


def test_a_template_without_an_opener_is_used_and_warned_about(tmp_path: Path) -> None:
    tokenizer = Tokenizer(directory(tmp_path / "t", template=BODY))
    prompt = tokenizer.chat_prompt("one")
    assert prompt.token_ids == [2, 4]
    assert len(prompt.warnings) == 1
    assert "no assistant opener" in prompt.warnings[0]


@pytest.mark.parametrize("adds_bos", [True, False])
def test_without_a_template_the_text_is_continued(tmp_path: Path, adds_bos: bool) -> None:
    tokenizer = Tokenizer(directory(tmp_path / "t", template=None, adds_bos=adds_bos))
    prompt = tokenizer.chat_prompt("one two")
    assert prompt.token_ids == [0] * adds_bos + [4, 5]
    assert "no chat template" in prompt.warnings[0]
    assert tokenizer.plain_prompt("one two").token_ids == prompt.token_ids


def test_the_tokenizers_own_setting_wins(tmp_path: Path) -> None:
    tokenizer = Tokenizer(directory(tmp_path / "t", template=BODY + OPENER, adds_bos=True, declared=False))
    assert tokenizer.chat_prompt("one").token_ids == [2, 4, 3]


def test_templates_come_from_either_file(tmp_path: Path) -> None:
    path = directory(tmp_path / "t", template=BODY)
    (path / "chat_template.jinja").write_text(BODY + OPENER)
    assert Tokenizer(path).chat_prompt("one").token_ids == [2, 4, 3]


def test_a_template_cannot_reach_outside_and_its_refusal_is_one_line(tmp_path: Path) -> None:
    for template in ("{{ raise_exception('no system role') }}", "{{ messages.__class__.__mro__[1].__subclasses__() }}"):
        tokenizer = Tokenizer(directory(tmp_path / "t", template=template))
        with pytest.raises(InputError, match="template refuses"):
            tokenizer.chat_prompt("one")


def test_bad_files_and_empty_prompts(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no tokenizer\.json"):
        Tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match=r"tokenizer\.json"):
        Tokenizer(tmp_path)
    tokenizer = Tokenizer(directory(tmp_path / "t", template=None))
    with pytest.raises(InputError, match="at least one token"):
        tokenizer.plain_prompt("")


def test_end_tokens_are_found(tmp_path: Path) -> None:
    assert Tokenizer(directory(tmp_path / "t", template=None)).eos_ids == (1,)


def test_smollm2_prompts(smollm2_fp32) -> None:
    tokenizer = smollm2_fp32.tokenizer
    prompt = tokenizer.chat_prompt("What is 2 + 2?")
    assert prompt.text.endswith("<|im_start|>assistant\n")
    assert prompt.token_ids[0] == tokenizer.bos_id
    assert prompt.token_ids[1] != tokenizer.bos_id
    assert tokenizer.decode(tokenizer.encode("été 漢字 \t x 12345")) == "été 漢字 \t x 12345"
    assert len(tokenizer.encode("12345")) == 5, "digits are tokens of their own"
    template = tokenizer.chat_template.split("{% if add_generation_prompt %}")[0]
    assert tokenizer.chat_prompt("hi", template=template).warnings
    assert smollm2_fp32.stop_ids == (2,)
