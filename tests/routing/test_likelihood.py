import numpy as np
import pytest
import torch

from kernels.dispatch import backend
from tests.live.tiny import save, tiny_reference
from workbench.errors import InputError
from workbench.live.decoder import Decoder
from workbench.live.weights import load_model
from workbench.routing.likelihood import score_branches
from workbench.routing.text_model import Branch


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A tiny Llama in transformers and the same weights in our decoder."""
    reference = tiny_reference("smollm")
    model = load_model(save(reference, tmp_path_factory.mktemp("smollm")), "fp32")
    return reference, Decoder(model, backend("torch"))


def log_p(reference, ids):
    with torch.no_grad():
        return torch.log_softmax(reference(torch.tensor([ids])).logits[0].double(), dim=-1).numpy()


@pytest.mark.parametrize("length", [1, 15, 16, 17, 40])
def test_branches_equal_transformers_one_by_one(pair, length):
    reference, decoder = pair
    rng = np.random.default_rng(length)
    text = rng.integers(3, 97, length).tolist()
    branches = [
        Branch(at, tuple(rng.integers(3, 97, n).tolist()))
        for at in {1, (length + 1) // 2, max(length - 1, 1), length}
        for n in (1, 2, 20)
    ]
    for branch, got in zip(branches, score_branches(decoder, text, branches), strict=True):
        whole = [*text[: branch.at], *branch.ids]
        rows = log_p(reference, whole)[branch.at - 1 :]
        expected = -rows[np.arange(len(branch.ids)), list(branch.ids)]
        entropy = -(np.exp(rows) * rows).sum(axis=-1)
        assert got.surprisal_nats == pytest.approx(expected, abs=1e-4)
        assert got.entropy_nats == pytest.approx(entropy[:-1], abs=1e-4)
        assert got.next_entropy_nats == pytest.approx(entropy[-1], abs=1e-4)


def test_impossible_branches_are_refused(pair):
    _, decoder = pair
    for branch in (Branch(0, (5,)), Branch(4, (5,)), Branch(3, ())):
        with pytest.raises(InputError, match="1 <= at <= 3"):
            score_branches(decoder, [5, 6, 7], [branch])
    with pytest.raises(InputError, match="context of 512"):
        score_branches(decoder, [5, 6, 7], [Branch(3, (5,) * 600)])
    assert score_branches(decoder, [5, 6, 7], []) == []
