"""The fit to measured operators: held-out error, and that the shipped numbers are what the fit gives."""

import numpy as np
import pytest

from sims.gpus import GPUS
from sims.models import MODELS
from sims.operator_profiles import (
    DENSE_FIELDS,
    OPERATORS,
    REDUCE_FIELDS,
    DenseProfile,
    fit_dense,
    fit_reduce,
    held_out,
    layer_mape,
    operator_mape,
    predict,
    predict_reduce,
    read_dense_profile,
    read_reduce_profile,
)
from sims.roofline import FITTED
from workbench.errors import InputError

CASES = [("A100-80G", "Llama-3-8B", "a100_llama3-8b_mlp.csv"), ("H100", "Llama-2-7B", "h100_llama2-7b_mlp.csv")]


@pytest.fixture
def profiles(shared_data):
    folder = shared_data / "profiles" / "vidur"
    if not folder.is_dir():
        pytest.skip("no operator profiles beside the repository")
    return folder


@pytest.mark.parametrize(("gpu", "model", "file"), CASES)
def test_the_layer_error_on_token_counts_the_fit_never_saw_is_within_five_percent(profiles, gpu, model, file):
    gpu, model = GPUS[gpu], MODELS[model]
    profile = read_dense_profile(profiles / file, model)
    out = held_out(profile)
    assert 0.3 < out.mean() < 0.37
    fitted = fit_dense(gpu, model, profile.where(~out))
    assert layer_mape(gpu, fitted, model, profile.where(out)) < 0.05
    for size in (1, 2, 4, 8):
        assert layer_mape(gpu, fitted, model, profile.where(out & (profile.tensor_parallel == size))) < 0.05
    assert max(operator_mape(gpu, fitted, model, profile.where(out)).values()) < 0.35
    for name in DENSE_FIELDS:
        assert getattr(FITTED[gpu.name], name) == pytest.approx(getattr(fitted, name), rel=2e-2), name


def test_the_all_reduce_fit(profiles):
    profile = read_reduce_profile(profiles / "h100_dgx_all_reduce.csv")
    rows = np.arange(profile.seconds.size) % 3 == 1
    fitted = fit_reduce(GPUS["H100"], profile.where(~rows), FITTED["H100"])
    held = profile.where(rows)
    assert np.mean(np.abs(predict_reduce(GPUS["H100"], fitted, held) / held.seconds - 1.0)) < 0.12
    for name in REDUCE_FIELDS:
        assert getattr(FITTED["H100"], name) == pytest.approx(getattr(fitted, name), rel=2e-2), name


def test_the_fit_finds_the_numbers_a_profile_was_made_with():
    gpu, model, truth = GPUS["A100-80G"], MODELS["Llama-3-8B"], FITTED["A100-80G"]
    tokens = np.tile(np.array([1.0, 8, 64, 256, 1024, 4096, 16384]), 2)
    blank = DenseProfile(tokens, np.repeat([1, 4], 7), dict.fromkeys(OPERATORS, tokens))
    made = DenseProfile(tokens, blank.tensor_parallel, predict(gpu, truth, model, blank))
    fitted = fit_dense(gpu, model, made)
    for name in DENSE_FIELDS:
        assert getattr(fitted, name) == pytest.approx(getattr(truth, name), rel=1e-3), name


def test_a_profile_of_another_shape_or_a_missing_one_is_refused(profiles, tmp_path):
    with pytest.raises(InputError, match="another shape"):
        read_dense_profile(profiles / CASES[0][2], MODELS["Llama-2-7B"])
    with pytest.raises(InputError, match="no operator profile"):
        read_dense_profile(tmp_path / "none.csv", MODELS["Llama-2-7B"])
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="column"):
        read_dense_profile(tmp_path / "bad.csv", MODELS["Llama-2-7B"])
