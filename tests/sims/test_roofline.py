"""The roofline step cost against limits that physics sets."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sims.gpus import GPUS
from sims.models import MODELS
from sims.roofline import FITTED, layer_shapes, numbers_for, product_s, roofline_step_cost
from workbench.errors import InputError


@pytest.mark.parametrize("name", ["Llama-3-8B", "Qwen2.5-7B", "SmolLM2-135M"])
@pytest.mark.parametrize("gpu", GPUS)
def test_no_step_beats_the_data_sheet(gpu, name):
    gpu, model = GPUS[gpu], MODELS[name]
    cost = roofline_step_cost(gpu, model)
    for tokens in (1, 8, 64, 512, 4096):
        bound = max(
            model.num_layers * model.layer_weights * 2 / gpu.bandwidth_bytes_per_s,
            tokens * model.dense_flop_per_token / gpu.peak_flop_per_s,
        )
        assert bound < cost.dense_s[tokens] < 40 * bound


@given(
    st.integers(1, 20_000), st.integers(1, 20_000), st.sampled_from([64, 576, 4096]), st.sampled_from([64, 1536, 28672])
)
def test_a_product_never_gets_cheaper_by_more_rows(few, more, inner, cols):
    few, more = sorted((few, more))
    times = product_s(GPUS["H100"], FITTED["H100"], np.array([few, more], float), inner, cols)
    assert 0.0 < times[0] <= times[1]


def test_large_products_reach_the_fitted_share_of_the_peak():
    gpu, numbers = GPUS["A100-80G"], FITTED["A100-80G"]
    rows, inner, cols = 108 * 256.0, 4096, 128 * 64
    rate = 2 * rows * inner * cols / product_s(gpu, numbers, np.array([rows]), inner, cols)[0]
    assert rate / gpu.peak_flop_per_s == pytest.approx(numbers.product_flop_frac, rel=0.03)


def test_decode_of_a_known_pair_takes_a_known_time():
    # vLLM serves Llama-3-8B on one H100 at about 7 to 9 ms a step at batch 1; weights alone take 4.8 ms.
    cost = roofline_step_cost(GPUS["H100"], MODELS["Llama-3-8B"])
    assert 6e-3 < cost.step_s(np.array([500]), np.array([1]), np.array([True])) < 9e-3


def test_four_gpus_share_the_work_and_pay_for_talking():
    model = MODELS["Llama-3-70B"]
    two = roofline_step_cost(GPUS["H200"], model, num_gpus=2)
    four = roofline_step_cost(GPUS["H200"], model, num_gpus=4)
    assert 0.5 < four.dense_s[4096] / two.dense_s[4096] < 0.65
    assert four.kv_s_per_token == pytest.approx(two.kv_s_per_token / 2)
    free = replace(numbers_for(GPUS["H200"]), reduce_latency_s=0.0, reduce_bandwidth_frac=1e9)
    assert roofline_step_cost(GPUS["H200"], model, num_gpus=4, numbers=free).dense_s[1] < four.dense_s[1]


def test_heads_that_do_not_divide_count_the_larger_shard():
    assert layer_shapes(MODELS["SmolLM2-135M"], 2).products["attn_pre_proj"] == (576, (5 + 2 * 2) * 64)


def test_decode_graphs_pad_to_the_next_captured_size():
    cost = roofline_step_cost(GPUS["H100"], MODELS["Llama-3-8B"])
    eager = roofline_step_cost(GPUS["H100"], MODELS["Llama-3-8B"], graphs=False)
    assert cost.dense_s[9] == cost.dense_s[16] == eager.dense_s[16] > eager.dense_s[9]
    assert cost.dense_s[600] == eager.dense_s[600]


def test_a_context_beyond_every_profile_still_costs_its_reads():
    # The longest Mooncake prompt, decoded once: its KV alone takes this long at full bandwidth.
    cost = roofline_step_cost(GPUS["H100"], MODELS["Llama-3-8B"])
    floor = 126_195 * 131_072 / GPUS["H100"].bandwidth_bytes_per_s
    step = cost.step_s(np.array([126_195]), np.array([1]), np.array([True]))
    assert floor < step < 0.05


def test_what_is_not_measured_says_so_and_what_does_not_fit_is_refused():
    assert "assumed" in roofline_step_cost(GPUS["MI300X"], MODELS["Llama-3-8B"]).source
    with pytest.raises(InputError, match="does not fit"):
        roofline_step_cost(GPUS["L4"], MODELS["Llama-3-70B"])
    with pytest.raises(InputError, match="at least 1"):
        roofline_step_cost(GPUS["H100"], MODELS["Llama-3-8B"], max_tokens=0)
