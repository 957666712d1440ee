import json

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from tests.live.tiny import save, tiny_reference
from workbench.errors import InputError
from workbench.routing.evaluate import evaluate
from workbench.routing.generation_record import Settings
from workbench.routing.live_text_model import LiveTextModel
from workbench.routing.prompts import load_prompts
from workbench.routing.question import AnswerKind, Question

TEMPLATE = (
    "{% for m in messages %}user {{ m.content }} end {% endfor %}{% if add_generation_prompt %}assistant{% endif %}"
)


@pytest.fixture(scope="module")
def reference():
    return tiny_reference("llama")


def directory(path, reference, template=TEMPLATE, tokenizer=True):
    save(reference, path)
    if tokenizer:
        words = ["<unk>", "<s>", "</s>", "user", "assistant", "end"]
        vocab = {word: i for i, word in enumerate([*words, *(f"w{i}" for i in range(6, 97))])}
        made = Tokenizer(WordLevel(vocab, unk_token="<unk>"))
        made.pre_tokenizer = WhitespaceSplit()
        made.save(str(path / "tokenizer.json"))
        config = {"eos_token": "</s>"} | ({"chat_template": template} if template else {})
        (path / "tokenizer_config.json").write_text(json.dumps(config))
    return str(path)


def test_a_model_without_a_chat_template_or_tokenizer_is_one_line(tmp_path, reference):
    for name, options, says in (
        ("a", {"template": None}, "no chat template"),
        ("b", {"tokenizer": False}, "tokenizer"),
    ):
        (tmp_path / name).mkdir()
        path = directory(tmp_path / name, reference, **options)
        with pytest.raises(InputError, match=says):
            LiveTextModel(path, dtype="fp32", backend="torch")


def test_probe_entropies_start_at_the_first_answer_token(tmp_path, reference):
    model = LiveTextModel(directory(tmp_path, reference), dtype="fp32", backend="torch")
    prompt, text = model.prompt([{"role": "user", "content": "w10 w11 w12"}])
    assert text.endswith("assistant")
    other, _ = model.prompt([{"role": "user", "content": "w20 w21 w22 w23 w24 w25"}])
    replies = model.generate([prompt, other], max_tokens=12, temperature=0.0, seeds=[0, 1])
    for ids, reply in zip((prompt, other), replies, strict=True):
        whole = [*ids, *reply.token_ids]
        with torch.no_grad():
            rows = torch.log_softmax(reference(torch.tensor([whole])).logits[0].double(), dim=-1).numpy()
        rows = rows[len(ids) - 1 : -1]
        assert len(reply.entropy_raw_nats) == len(reply.token_ids) <= 12
        assert reply.entropy_raw_nats == pytest.approx(-(np.exp(rows) * rows).sum(axis=-1), abs=1e-3)
        assert list(reply.token_ids) == rows.argmax(axis=-1).tolist()
        if reply.finish_reason == "stop":
            assert reply.token_ids[-1] == 2
            assert 2 not in reply.content_ids


def test_token_counts_end_at_any_of_the_end_tokens(tmp_path, reference):
    """A second end token in generation_config stops the reply, and the router sees no more than that."""
    path = directory(tmp_path, reference)
    model = LiveTextModel(path, dtype="fp32", backend="torch")
    prompt, _ = model.prompt([{"role": "user", "content": "w10 w11 w12"}])
    free = model.generate([prompt], 12, 0.0, [0])[0]
    liked = free.token_ids[4]
    first = free.token_ids.index(liked)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, liked]}))
    stopped = LiveTextModel(path, dtype="fp32", backend="torch").generate([prompt], 12, 0.0, [0])[0]
    assert stopped.token_ids == free.token_ids[: first + 1]
    assert stopped.finish_reason == "stop"
    assert len(stopped.entropy_raw_nats) == first + 1


def test_sampled_replies_depend_on_their_seed_and_place_not_on_their_neighbours(tmp_path, reference):
    model = LiveTextModel(directory(tmp_path, reference), dtype="fp32", backend="torch")
    prompt, _ = model.prompt([{"role": "user", "content": "w10 w11 w12"}])
    a, b, _ = (r.token_ids for r in model.generate([prompt] * 3, 10, 1.0, [5, 6, 5]))
    assert a != b
    alone = model.generate([prompt], 10, 1.0, [5])[0].token_ids
    assert alone == a


def test_a_prompt_beyond_the_context_is_refused_with_both_lengths(tmp_path, reference):
    model = LiveTextModel(directory(tmp_path, reference), dtype="fp32", backend="torch")
    with pytest.raises(InputError, match=r"500 tokens and 20 new ones exceed the context of 512"):
        model.generate([[5] * 500], 20, 0.0, [0])


def test_a_small_evaluation_runs_on_a_real_directory(tmp_path, reference):
    (tmp_path / "model").mkdir()
    model = LiveTextModel(directory(tmp_path / "model", reference), dtype="fp32", backend="torch")
    questions = [
        Question(
            task="t", question_id=str(i), text=f"w{i + 10} w{i + 20}", kind=AnswerKind.CHOICE, answer="A",
            labels=("A", "B"), options=("w30 w31", "w32"),
        )
        for i in range(6)
    ]  # fmt: skip
    settings = Settings(
        num_questions=4, num_calibration=2, probe_tokens=8, max_standard_tokens=16, max_cot_tokens=16,
        max_direct_tokens=4, chunk_questions=3, check_every_tokens=8,
    )  # fmt: skip
    table = evaluate(model, {"t": questions}, load_prompts(), settings, tmp_path / "run").table()
    assert table.height == 18
    assert table["option_tokens"].to_list()[0] == [2, 1]
    assert (table["option_nats"].explode() < 0.0).all()
