from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM, BertConfig, RobertaConfig

from kernels.dispatch import backend
from workbench.errors import InputError
from workbench.live.encoder import load_encoder
from workbench.live.masked_model import AMINO_ACIDS, MaskedModel, packaged_directory

HEAVY = "EVQLVESGGGLVQPGGSLRLSCAASGFTFSSYAMSWVRQAPGKGLEWVSAISGSGGSTYYADSVKGRFTISRDNSKNTLYLQMNSLRAEDTAVYYC"
SHAPE = {
    "vocab_size": 31, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
    "max_position_embeddings": 40,
}  # fmt: skip


@pytest.mark.parametrize(
    "config", [BertConfig(**SHAPE), RobertaConfig(**SHAPE, type_vocab_size=1)], ids=["bert", "roberta"]
)
def test_tiny_random_encoders_match_transformers(tmp_path: Path, config) -> None:
    torch.manual_seed(1)
    reference = AutoModelForMaskedLM.from_config(config).eval()
    with torch.no_grad():
        for name, value in reference.named_parameters():
            value.normal_(1.0 if "LayerNorm.weight" in name or "layer_norm.weight" in name else 0.0, 0.2)
    reference.tie_weights()
    reference.save_pretrained(tmp_path)
    encoder = load_encoder(tmp_path, backend("torch"))
    ids = torch.randint(3, 31, (5, 17), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        expected = reference(ids).logits
    torch.testing.assert_close(encoder.logits(ids), expected, atol=1e-4, rtol=0)
    with pytest.raises(InputError, match="positions"):
        encoder.logits(torch.zeros((1, 41), dtype=torch.int64))
    with pytest.raises(InputError, match="token ids"):
        encoder.logits(torch.full((1, 4), 31))


@pytest.mark.parametrize("name", ["sapiens-heavy", "sapiens-light", "antiberty"])
def test_packaged_models_match_transformers_and_know_antibodies(name: str) -> None:
    if find_spec("sapiens") is None or find_spec("antiberty") is None:
        pytest.skip("the packages sapiens and antiberty are not installed")
    model = MaskedModel.load(name)
    reference = AutoModelForMaskedLM.from_pretrained(packaged_directory(name)).eval()
    tokens = model.encode(HEAVY)[None]
    masked = tokens.copy()
    masked[0, 10::7] = -1
    ids = np.where(masked < 0, model.mask_id, masked + model.first_id)
    ids = np.concatenate([[[model.begin_id]], ids, [[model.end_id]]], axis=1)
    with torch.no_grad():
        expected = reference(torch.from_numpy(ids)).logits
    torch.testing.assert_close(model.encoder.logits(torch.from_numpy(ids)), expected, atol=1e-4, rtol=0)
    p = model.predict(masked).probability
    assert p.shape == (1, len(HEAVY), 20)
    np.testing.assert_allclose(p.sum(axis=-1), 1.0, atol=1e-12)
    if name != "sapiens-light":
        right = p[0].argmax(axis=-1)[10::7] == tokens[0, 10::7]
        assert right.mean() > 0.7, "residues of a germline heavy chain are mostly predictable"
    assert model.decode(masked[0])[10] == "*"


def test_rows_do_not_depend_on_each_other() -> None:
    if find_spec("sapiens") is None:
        pytest.skip("the package sapiens is not installed")
    model = MaskedModel.load("sapiens-heavy")
    rng = np.random.default_rng(0)
    tokens = rng.integers(-1, 20, (6, 50))
    together = model.logits(tokens)
    alone = np.concatenate([model.logits(row[None]) for row in tokens])
    np.testing.assert_allclose(together, alone, atol=1e-4)


def test_bad_input_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="sapiens-heavy"):
        MaskedModel.load("sapiens-hevy")
    BertConfig(**SHAPE, hidden_act="relu").save_pretrained(tmp_path)
    with pytest.raises(InputError, match="gelu"):
        load_encoder(tmp_path, backend("torch"))
    assert len(AMINO_ACIDS) == 20
