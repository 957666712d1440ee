import json
from pathlib import Path

import pytest

from workbench.errors import InputError
from workbench.live.prompts import KINDS, builtin_prompts, load_prompts


def test_the_built_in_set_has_at_least_24_prompts_of_five_kinds() -> None:
    specs = builtin_prompts()
    assert len(specs) >= 24
    assert len({spec.prompt for spec in specs}) == len(specs)
    assert {spec.kind for spec in specs} == set(KINDS)
    assert {spec.kind for spec in specs[:5]} == set(KINDS), "any first few hold every kind"
    assert len(builtin_prompts(kinds=("math",), per_kind=2)) == 2
    with pytest.raises(InputError, match="did you mean math"):
        builtin_prompts(kinds=("maths",))


def test_a_file_of_prompts(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    rows = [
        {"prompt": "one", "kind": "fact", "max_tokens": 7},
        {"messages": [{"role": "user", "content": "hi"}], "arrival_s": 1.5, "priority": 2},
        {"token_ids": [3, 4], "seed": 11},
    ]
    path.write_text("\ufeff" + "\r\n".join(json.dumps(row) for row in rows) + "\n\n", encoding="utf-8")
    one, two, three = load_prompts(path)
    assert (one.prompt, one.kind, one.max_tokens) == ("one", "fact", 7)
    assert (two.messages, two.arrival_s, two.priority) == (({"role": "user", "content": "hi"},), 1.5, 2)
    assert (three.token_ids, three.seed) == ((3, 4), 11)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("{", "not JSON"),
        ("[1]", "object"),
        ('{"promt": "x"}', "did you mean prompt"),
        ('{"kind": "fact"}', "exactly one"),
        ('{"prompt": "a", "token_ids": [1]}', "exactly one"),
        ('{"prompt": 3}', "prompt must be"),
        ('{"token_ids": [1, -1]}', "token_ids must be"),
        ('{"messages": [{"role": "user"}]}', "messages must be"),
        ('{"prompt": "a", "max_tokens": 0}', "max_tokens must be"),
        ('{"prompt": "a", "arrival_s": -1}', "arrival_s must be"),
        ('{"prompt": "a", "arrival_s": NaN}', "arrival_s must be"),
        ('{"prompt": "a", "seed": 1.5}', "seed must be"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str, word: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "fine"}\n' + line + "\n")
    with pytest.raises(InputError, match="line 2") as caught:
        load_prompts(path)
    assert word in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n\n")
    (tmp_path / "wide.jsonl").write_text('{"prompt": "x"}', encoding="utf-16")
    for name, word in (("none.jsonl", "No such file"), ("empty.jsonl", "no prompts"), ("wide.jsonl", "not UTF-8")):
        with pytest.raises(InputError, match=word):
            load_prompts(tmp_path / name)
