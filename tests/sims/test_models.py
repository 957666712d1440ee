"""Model shapes against published parameter counts."""

import pytest

from sims.gpus import GPUS
from sims.models import MODELS, model_named
from workbench.errors import InputError


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Llama-3-8B", 8_030_261_248),
        ("Llama-2-7B", 6_738_415_616),
        ("Llama-3-70B", 70_553_706_496),
        ("Qwen2.5-7B", 7_615_616_512),
        ("SmolLM2-135M", 134_515_008),
    ],
)
def test_parameters_are_the_published_counts(name, parameters):
    assert MODELS[name].parameters == parameters


def test_kv_bytes_a_token():
    # 46,080 bytes a token in fp32 were measured on SmolLM2; bf16 is half. Llama-3-8B is known for 128 KiB.
    assert MODELS["SmolLM2-135M"].kv_bytes_per_token == 46_080 / 2
    assert MODELS["Llama-3-8B"].kv_bytes_per_token == 128 * 1024
    assert MODELS["Llama-2-7B"].kv_bytes_per_token == 512 * 1024


def test_two_operations_a_weight():
    model = MODELS["Llama-3-8B"]
    embeddings = model.vocab * model.hidden
    assert model.dense_flop_per_token + model.output_flop_per_sample == pytest.approx(
        2 * (model.parameters - embeddings), rel=1e-3
    )


def test_what_does_not_fit_is_refused_and_what_fits_is_counted():
    with pytest.raises(InputError, match=r"Llama-3-8B needs 16\.1 GB"):
        MODELS["Llama-3-8B"].kv_capacity_tokens(GPUS["L4"], memory_share=0.6)
    tokens = MODELS["Llama-3-8B"].kv_capacity_tokens(GPUS["H100"])
    assert tokens == pytest.approx((0.9 * 80 * 2**30 - 2e9 - 16.06e9) / 131072, rel=1e-3)


def test_an_unknown_model_names_the_nearest():
    with pytest.raises(InputError, match="Llama-3-8B"):
        model_named("Llama-3-8b")
